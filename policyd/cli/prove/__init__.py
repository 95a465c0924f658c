"""Proofs about policies: `policyd prove`.

Imports `prove`, `engine` and `cli/formats`. Start with `command`.
"""

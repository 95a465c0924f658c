"""Policies that act on the cluster by themselves: what they generate, and what they delete.

Decisions only: the objects come from the caller, and the caller writes. Imports `api`, `cel`,
`patch` and its neighbours in the engine. Start with `evaluation`.
"""

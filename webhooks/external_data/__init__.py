"""Data that policies ask for beyond the request: objects, permissions, URLs, registries.

Imports `cel`, `engine` and `kube`. Start with `lookups`: how a decision that never waits
gets its data.
"""

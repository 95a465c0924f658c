"""Data that policies ask for beyond the request: objects, permissions, URLs, registries.

Imports `cel`, `engine`, `kube`, `admission`, `dialects` and `jobs`. Start with `lookups`: how a
decision that never waits gets its data.
"""

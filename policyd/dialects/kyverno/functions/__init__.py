"""Implement the CEL functions that Kyverno adds, for Kyverno's own policies only.

Its newer names, such as `hash.sha256` and `resource.get`, stand beside the older ones, `sha256` and
`resource.Get`. The caller provides external data.

Imports `cel` and its libraries, and `engine`. Start with `values`.
"""

"""Check an expression against its environment: names, types, overloads.

Imports `syntax` and the environment of `cel`. Start with `checker`.
"""

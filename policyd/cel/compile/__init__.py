"""Compile a checked expression to a Python function.

Imports `syntax`, `check` and `lib` of `cel`. Start with `program`.
"""

"""Read YAML and JSON with positions, for findings that name them.

Imports `api` and `patch`. Start with `reading` and `findings`.
"""

"""YAML and JSON documents that remember places, and findings that name them.

Imports `api` and `patch`. Start with `reading` and `findings`.
"""

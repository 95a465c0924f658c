"""Policies as the API server's own kinds.

Start with `policies`.
"""

"""OpenAPI v3: what kubectl reads to explain kinds, to check fields, and to patch lists.

Imports `api` and the server's registry. Start with `document`.
"""

"""OpenAPI v3, by which kubectl explains kinds, checks fields and patches lists.

Imports `api` and the server's registry. Start with `document`.
"""

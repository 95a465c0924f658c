"""The rules that objects keep, in the API server's words.

Imports `api` and the server's statuses. Start with `metadata`.
"""

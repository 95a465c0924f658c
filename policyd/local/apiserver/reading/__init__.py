"""Answers to GET and watch: objects, lists, tables.

Imports `wire` and `checks` of the server, `status` and `api`. Start with `read` and `watching`.
"""

"""Kinds that CustomResourceDefinitions add: their schemas, and what the server does by them.

Imports `cel`, `api` and the server's registry. Start with `definitions`.
"""

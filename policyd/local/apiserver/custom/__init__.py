"""Kinds that CustomResourceDefinitions add: their schemas, defaults and rules.

Imports `cel`, `api` and the server's registry. Start with `definitions`.
"""

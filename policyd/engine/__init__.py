"""Load policies, and match, mutate, validate and inject by them. Pure.

Imports `api`, `cel` and `patch`. Start with `compile` (from documents to policies), then `evaluate`
(from a request to a decision).
"""

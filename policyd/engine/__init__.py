"""The policy engine: load, match, mutate, validate, inject. Pure.

Imports `api`, `cel` and `patch`. Start with `compile` (from documents to policies), then `evaluate`
(from a request to a decision).
"""

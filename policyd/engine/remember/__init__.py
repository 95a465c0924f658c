"""Decisions that are reused: the fields that policies read in a pod, found in their expressions.

Imports `model`, `objects`, `inject` and `evaluate` of the engine, `patch` and `cel`. Start with
`remembering`.
"""

"""Decisions that are reused: what policies look at in a pod, found in their expressions.

Imports `model`, `objects`, `inject` and `evaluate` of the engine, and `cel`. Start with
`remembering`.
"""

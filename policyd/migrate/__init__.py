"""Conversion of policies of other tools to policies in CEL. Pure.

Imports `cel`, `api`, `dialects` and `engine`. Start with `jmespath`, which makes terms of
`cel_values` with the functions of `jmespath_functions`; whole policies are in `kyverno` and
`gatekeeper`.
"""

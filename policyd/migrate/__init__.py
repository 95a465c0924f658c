"""Conversion of policies of other tools to policies in CEL. Pure.

Imports `cel` and `api`. Expressions begin in `jmespath`, which makes values of `cel_values` with
the functions of `jmespath_functions`.
"""

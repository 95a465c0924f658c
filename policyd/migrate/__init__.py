"""Conversion of policies of other tools to policies in CEL. Pure.

Imports `cel` for names of the field's types, and `api`. Expressions begin in `jmespath`, which makes
values of `cel_values` with `jmespath_functions`.
"""

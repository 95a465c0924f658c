"""The static cost of an expression.

Imports `syntax` and `check` of `cel`. Start with `estimator`.
"""

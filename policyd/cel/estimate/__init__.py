"""Estimate the cost of an expression before it is evaluated.

Imports `syntax` and `check` of `cel`. Start with `estimator`.
"""

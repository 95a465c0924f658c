"""The static cost of an expression.

Start with `estimator`.
"""

"""The types that cross the process boundary, and what is known of Kubernetes' kinds. Pure.

Imports `errors` alone. Start with `meta` (what all objects have) and `kinds` (the table of kinds).
"""

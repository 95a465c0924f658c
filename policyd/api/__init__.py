"""The types that cross the process boundary, and the tables of Kubernetes' kinds. Pure.

Imports `errors` alone. Start with `meta` (fields of all objects) and `kinds` (the table of kinds).
"""

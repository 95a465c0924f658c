"""Admission: changes or refuses a write before it is stored.

Imports `engine`, `cel` and `patch`. Start with `chain`.
"""

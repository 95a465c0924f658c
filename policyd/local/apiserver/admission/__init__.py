"""Admission: what may change or refuse a write before it is stored.

Imports `engine`, `cel` and `patch`. Start with `chain`.
"""

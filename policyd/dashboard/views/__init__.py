"""What each view shows, made of values alone: values in, view models out. Pure.

Imports `snapshot`, `simulate` and `status`. Start with `overview`.
"""

"""Gangs that another scheduler starts whole: what it must be told of one, in its own words.

Imports `api`, `jobs`, `patch` and `status`. Start with `hand_over`.
"""

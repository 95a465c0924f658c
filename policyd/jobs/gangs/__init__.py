"""Gangs that another scheduler starts whole: the objects and labels that it needs for one.

Imports `api`, `jobs`, `patch` and `status`. Start with `hand_over`.
"""

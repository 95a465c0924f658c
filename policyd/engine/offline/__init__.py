"""Policies without a cluster: cases, explanations, replays, scans and reports.

Imports the other folders of the engine, and `cel`. Start with `cases` and `replay`.
"""

"""Evaluate policies without a cluster: cases, explanations, replays, scans, reports.

Imports the other folders of the engine, `patch` and `cel`. Start with `cases` and `replay`.
"""

"""Policies without a cluster: cases, explanations, replays, scans and reports."""

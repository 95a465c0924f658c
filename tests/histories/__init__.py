"""Whole histories of a cluster in simulated time, each from a seed: `python -m tests.histories`."""

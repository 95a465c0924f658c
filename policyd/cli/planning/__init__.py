"""Traces, virtual clusters, sweeps and charts of `policyd simulate`.

Imports `simulate`, and what is next to the folder. Start with `planning`, which has the steps of a
simulation in order.
"""

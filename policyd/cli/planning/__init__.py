"""Traces, virtual clusters, sweeps and charts of `policyd simulate`.

Imports `simulate`, and what is next to the folder. Start with `trace_command`, which has the steps
of a simulation in order.
"""

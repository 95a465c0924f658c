"""`policyd simulate`: scenarios, traces, virtual clusters, sweeps and charts.

Imports the pure folders, above all `simulate`, `kube`, `questions` and `controller/watch`, and what
is next to the folder. Start with `trace_command`, which has the steps of a simulation in order.
"""

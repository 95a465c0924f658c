"""Jobs that run on other clusters, by Kueue's MultiKueue: what to do next, decided from values.

The manager is the cluster that jobs are submitted to, workers are those that run them. Pure.
Imports `api`, `alloc`, `jobs`, `snapshot`, `workload` and `patch`. Start with `dispatch`.
"""

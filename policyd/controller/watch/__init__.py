"""What the controller knows of the cluster: mirrors of API objects, and the state of the core.

Imports `alloc`, `jobs`, `workload` and `kube`. Start with `mirrors` (what is watched) and `cache`
(what the scheduling loop decides on).
"""

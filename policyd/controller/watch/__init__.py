"""The cluster, as the controller knows it: mirrors of API objects, and the allocator's state.

Imports `alloc`, `jobs`, `workload` and `kube`. Start with `mirrors` (what is watched) and `cache`
(what the scheduling loop decides on).
"""

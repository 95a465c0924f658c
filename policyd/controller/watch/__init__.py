"""The cluster, as the controller knows it: mirrors of API objects, and the allocator's state.

Imports `alloc`, `jobs`, `workload`, `kube`, `devices`, `multikueue`, `optimize`, `snapshot`,
`status` and `usage`. Start with `mirrors` (the watched objects) and `cache` (the state of the
scheduling loop).
"""

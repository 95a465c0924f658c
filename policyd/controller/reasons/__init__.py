"""Why workloads are pending: reasons in conditions, and events on jobs.

Imports `watch` and `jobs` of the controller, `alloc`, `optimize`, `workload`, `status` and `kube`.
Start with `refreshing`, which decides when reasons are written.
"""

"""Why workloads are pending: reasons in conditions, and events on jobs.

Imports `watch` and `jobs` of the controller, `alloc`, `workload` and `status`. Start with
`refreshing`, which decides when reasons are written.
"""

"""The loops: watch, cache, cycle, actions.

Imports `alloc`, `jobs`, `workload`, `status` and `kube`; nothing of `webhooks`. Start with
`workload_reconciler` and `jobs/job_reconciler`, which have the numbered steps of a Workload and of
a job; `run` puts all parts together.
"""

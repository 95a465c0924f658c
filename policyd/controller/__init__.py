"""The loops: watch, cache, cycle, actions.

Imports `alloc`, `optimize`, `simulate`, `jobs`, `devices`, `multikueue`, `patch`, `workload`,
`status` and `kube`; a contract forbids the webhooks. Start with `workload_reconciler` and
`jobs/job_reconciler`, which have the numbered steps of a Workload and of a job; `run` puts all
parts together.
"""

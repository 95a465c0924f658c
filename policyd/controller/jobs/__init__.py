"""Reconcilers of jobs, pods and their parents: from a job to its Workload, and back to its pods.

Imports `policyd.jobs` for every decision, `watch` of the controller, `alloc`, `patch`, `status`,
`workload` and `kube`. Start with `job_reconciler`, then `job_steps`.
"""

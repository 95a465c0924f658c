"""Answers about jobs, nodes and queues, read from a cluster with the rights of the user.

Commands print them, and the page shows them. Imports `kube`, `jobs`, `simulate`, `snapshot`,
`alloc`, `devices`, `engine`, `patch`, `status` and `workload`. Start with `snapshots`.
"""

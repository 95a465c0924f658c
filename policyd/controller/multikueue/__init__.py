"""Sends jobs to other clusters, as Kueue's MultiKueue: connections, copies, statuses.

It is imported once there is an admission check that sends jobs away, or a MultiKueueCluster. What
to do is decided in `policyd/multikueue`. Imports `api`, `controller`, `jobs`, `kube`, `multikueue`,
`workload`, `patch` and `snapshot`. Start with `service`.
"""

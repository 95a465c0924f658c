"""Queues on the API server: statuses, deletion while in use, admission checks and visibility.

Imports `watch`, `jobs`, `metrics` and `reasons` of the controller, `kube`, `certificates`, and of
the pure folders above all `alloc`, `snapshot`, `status` and `workload`. Start with
`queue_statuses`; `visibility` serves Kueue's visibility API.
"""

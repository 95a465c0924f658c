"""Queues on the API server: statuses, deletion while in use, admission checks and visibility.

Imports `watch`, `metrics` and `reasons` of the controller, `alloc`, `status` and `workload`. Start
with `queue_statuses`; `visibility` serves Kueue's visibility API.
"""

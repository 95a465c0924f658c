"""Metrics and health of the controller.

Imports `watch` of the controller, `alloc`, `status`, and the sockets of programs. Start with
`metric_families`, the list of all metrics.
"""

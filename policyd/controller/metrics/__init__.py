"""Metrics and health of the controller.

A metric is declared in `metric_families`. `queue_metrics` computes gauges when they are scraped;
`workload_metrics` and `counters` count what happens.

Imports `watch` of the controller, `alloc`, `optimize`, `jobs`, `workload`, `status` and `kube`, and
the sockets of programs. Start with `metric_families`, the list of all metrics.
"""

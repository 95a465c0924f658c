"""Metrics and health of the controller.

Start with `metric_families`, the list of all metrics.
"""

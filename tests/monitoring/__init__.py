"""Dashboards and alert rules of the chart, and their run against a real Prometheus."""

"""The use of GPUs: busy and idle ones, GPU-hours by month, prices and budgets. Pure.

Samples come from the series of the DCGM exporter, hours from the reservations of Workloads.

Imports `alloc` and `optimize`. Start with `devices`, and with `record`.
"""

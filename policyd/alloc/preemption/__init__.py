"""Preemption: which workloads to stop so that another fits. Pure.

`targets` searches by priority and nominal quota (`classical`) or by shares (`fair`), which have the
claim and its candidates in common (`search`). Imports `alloc`. Start with `targets`.
"""

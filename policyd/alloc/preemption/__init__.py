"""Preemption: which workloads to stop so that another fits. Pure; start with `targets`.

It searches by priority and nominal quota (`classical`) or by shares (`fair`), which have the claim
and its candidates in common (`search`).
"""

"""Statuses and reasons: whether queues are active, who holds quota, why workloads wait. Pure.

The allocation core decides, and says why in types and numbers; here these become sentences.

Imports `alloc` and `node_rules`. Start with `queues` and `messages`.
"""

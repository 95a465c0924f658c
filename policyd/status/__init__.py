"""Statuses of queues, and messages about pending workloads: reasons and remedies. Pure.

The allocation core decides, and gives reasons as types and numbers; here these become messages.

- *Reasons*: `messages` (Kueue's, word for word), `pending_reasons`, `excluded_nodes`, `shortages`.
- *Remedies*: `remedies` (what each is, in words), `remedy_search` (which of them help), `trials`.
- *Order and counts*: `pending_order`, `queues`, `shares`.

Imports `alloc`, `node_rules` and `optimize`. Start with `queues` and `messages`.
"""

"""The loops: watch, cache, cycle, actions.

Imports `alloc`, `jobs`, `workload`, `status` and `kube`; nothing of `webhooks`. Start with `run`,
which puts all together, and `cycle_loop`.
"""

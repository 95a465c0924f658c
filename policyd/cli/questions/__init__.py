"""Commands that ask a cluster's queues: `why`, `queue`, `quota`, `top`, `events`.

Imports `snapshot`, `kube` and `jobs`, and what is next to the folder. Start with `why`.
"""

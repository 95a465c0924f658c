"""Commands that operate a cluster's queues: `stop`, `resume`.

Imports `kube`, `jobs` and `questions`, and what is next to the folder. Start with `stopping`.
"""

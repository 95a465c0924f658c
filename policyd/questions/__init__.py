"""Answers about jobs, nodes and queues, read from a cluster with the reader's rights.

Commands print them, and the page shows them. Imports `kube`, `jobs`, `simulate` and `snapshot`.
Start with `snapshots`.
"""

"""Running jobs come under queues: `policyd import`.

Imports `alloc`, `controller/watch`, `jobs`, `kube`, `questions`, `cel` and `cli/formats`. Start
with `command`, then read `rules`, `reading`, `planning`, `writing`: the order in which it works.
"""

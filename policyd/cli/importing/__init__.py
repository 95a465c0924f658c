"""Running jobs come under queues: `policyd import`.

Imports the pure folders, `controller/watch`, `kube`, `questions` and `cli/formats`. Start with
`command`, then read `rules`, `reading`, `planning`, `writing`: the order in which it works.
"""

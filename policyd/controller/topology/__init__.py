"""Topology-aware placement on the API server: nodes that change or fail, and pods sent to domains.

Imports `watch` and `jobs` of the controller, `alloc`, `workload`, `status` and `kube`. Start with
`topologies`, which puts the others together.
"""

"""Topology-aware placement on the API server: nodes that change or fail, and pods sent to domains.

Start with `topologies`, which puts the others together.
"""

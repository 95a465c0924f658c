"""Where policies come from, and which are in force.

Imports `engine`, `registration` and `kube`. Start with `sources`, then `in_force`.
"""

"""Where policies come from, and which are in force.

Imports `engine`, `registration` and `kube`. Start with `reading`, then `sources` and `in_force`.
"""

"""Where policies come from, and which are in force.

Imports `engine`, `registration`, `kube`, `dialects` and `jobs`. Start with `reading`, then
`sources` and `in_force`.
"""

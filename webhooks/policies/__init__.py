"""Where policies come from, and which are in force.

Start with `sources`, then `in_force`.
"""

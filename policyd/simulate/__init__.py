"""Virtual time over the allocation core: the decisions of cycles, and their times. Pure.

Imports `alloc` alone. Start with `scenario`.
"""

"""Virtual time over the allocation core: what cycles would decide, and when. Pure.

Imports `alloc` alone. Start with `scenario`.
"""

"""Virtual time over the allocation core: the decisions of cycles, and their times. Pure.

Traces of jobs run in it, and have figures. Imports `alloc`, `optimize` and `errors`. Start with
`scenario`.
"""

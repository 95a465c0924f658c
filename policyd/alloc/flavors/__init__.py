"""Which flavors a workload gets. Pure.

`options` turns requests into flavor options; `search` tries these in the order of the queue; an
`assignment` is the result. Imports `alloc`. Start with `search`.
"""

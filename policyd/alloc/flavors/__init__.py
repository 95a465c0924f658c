"""Which flavors a workload gets. Pure; start with `search`.

`options` turns requests into flavor options; `search` tries these in the order of the queue; an
`assignment` is the result.
"""

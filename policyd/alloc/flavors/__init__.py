"""Which flavors a workload gets: what a queue options, the search, and what it found. Pure.

`options` turns what a workload asks into `options`, flavor by flavor; `search` tries these in the
order of the queue; an `assignment` is what came of it.
Imports of `alloc` only what is above this folder in it. Start with `search`.
"""

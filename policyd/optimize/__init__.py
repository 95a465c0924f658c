"""What goes beyond Kueue's decisions: opt-in by annotations of a ClusterQueue. Pure.

`alloc` decides as Kueue does, and knows nothing of this folder: `Optimizer` is the `Extension`
that a state is made with, and `opt_ins` what a queue may want. Imports `alloc`
alone. Start with `optimizer`.

- *Time*: `reservation` (backfill, gangs that run short).
- *Order*: `local_order` (of LocalQueues), `packing` (of flavors).
- *Moves*: `consolidation` in a cycle, `moves`, `crowding` and `together` to work them out.
- *Devices*: `devices`, `mig`, `fragmentation`.
"""

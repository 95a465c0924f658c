"""Decisions beyond Kueue's: opt-in by annotations of a ClusterQueue. Pure.

`alloc` decides as Kueue does, and knows nothing of this folder: `Optimizer` is the `Extension`
that a state is made with, and `opt_ins` the settings of a queue. Imports `alloc`
alone. Start with `optimizer`.

- *Time*: `reservation` (backfill, gangs that run short, releases gathered after a preemption).
- *Order*: `local_order` (of LocalQueues); packing of flavors is in `optimizer`.
- *Moves*: `moves` in a cycle or in a plan, and `joint_placement` of several workloads at once.
- *Devices*: `devices`, `mig`, `fragmentation`.
"""

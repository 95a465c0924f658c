"""The allocation core: the decisions of Kueue's scheduler, over integers and names. Pure.

Keep a `CoreState` up to date with the cluster, call `plan_cycle`, carry the plan out and
`commit` it to the state:

    state = CoreState()
    state.put_flavor(FlavorSpec(name="default"))
    state.put_queue(QueueSpec(name="team-a", groups=(...)))
    state.put_workload(QueuedWorkload(key="ns/train", ...))
    plan = plan_cycle(state)
    state.commit(plan)

Start with `cycle`, and read in this order:

1. `cycle`: nominate, order, process; its result is a `plan`. The values that it works on are in
   `queue` and `workload`, its explanations in `reasons`.
2. `quota`: the tree of ClusterQueues and Cohorts; `fair_sharing` compares their borrowing.
3. `nominate`, then the folders that it calls: `flavors`, `preemption`, `topology`.
4. `state`: the state that is kept between cycles, with `pending` workloads, the `ledger` of quota
   and nodes in use, and the `usage_history` of LocalQueues.

`extension` is the interface for decisions beyond Kueue's. Imports `node_rules` alone.
"""

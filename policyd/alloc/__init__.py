"""The allocation core: quota, order, flavors, plans, over integers and names. Pure.

Keep a `State` up to date with what there is, ask `plan_cycle` what to do, carry the plan out in the
world and `commit` it to the state:

    state = State()
    state.put_flavor(FlavorSpec(name="default"))
    state.put_queue(QueueSpec(name="team-a", groups=(...)))
    state.put_workload(Workload(key="ns/train", ...))
    plan = plan_cycle(state)
    state.commit(plan)

Imports `errors` and `node_rules` alone. Start with `cycle`, then `quota`.
"""

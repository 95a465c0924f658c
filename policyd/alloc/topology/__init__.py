"""Where the pods of a workload go: nodes, their topology, and placement. Pure.

Keep `Nodes` up to date with what there is, and ask `place` where pods could go:

    nodes = Nodes()
    nodes.put_flavor(FlavorSpec(name="gpu", topology="racks"), levels=("rack", HOSTNAME))
    nodes.put(NodeSpec(name="a1", labels={...}, allocatable={"cpu": 8000, "pods": 110}))
    found = place(nodes, {"gpu": [TopologyRequest(pod_set="main", count=4, ...)]})

Read `placement`, then `feasibility` and `fitting`; `placing` is what cycles ask.
"""

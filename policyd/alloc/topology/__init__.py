"""Where the pods of a workload go: nodes, their topology, and placement. Pure.

Keep `Nodes` up to date with the cluster, and call `place` to find places for pods:

    nodes = Nodes()
    nodes.put_flavor(FlavorSpec(name="gpu", topology="racks"), levels=("rack", HOSTNAME))
    nodes.put(TopologyNode(name="a1", labels={...}, allocatable={"cpu": 8000, "pods": 110}))
    found = place(nodes, {"gpu": [PlacementRequest(pod_set="main", count=4, ...)]})

Cycles call `placing`. Imports `alloc` and `node_rules`. Start with `placement`, then read
`feasibility` and `fitting`.
"""

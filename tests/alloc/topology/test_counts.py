"""What is counted along the way, against counting everything again."""

from hypothesis import given, settings

from policyd.alloc.queue import FlavorSpec
from policyd.alloc.topology.counts import NodeNeeds, PodKind, requests_of
from policyd.alloc.topology.nodes import ClaimedOfNode, Nodes
from policyd.alloc.topology.values import CLAIMED, HOSTNAME, Placement, TopologyPlacement
from policyd.node_rules import LabelRequirement, NodeTaint, TaintToleration
from tests.alloc.choices import scenarios
from tests.alloc.topology.builders import node

RATE = settings(deadline=None)
TAINT = NodeTaint(key="broken")
FLAVORS = {
    "hosts": (FlavorSpec(name="hosts"), ("block", "rack", HOSTNAME)),
    "fast": (FlavorSpec(name="fast", labels={"speed": "fast"}), ("rack", HOSTNAME)),
    "racks": (FlavorSpec(name="racks"), ("block", "rack")),
}
NOT_FAST = (
    LabelRequirement(key="speed", operator="DoesNotExist"),
    LabelRequirement(key="rack", operator="NotIn", values=("r2",)),
)
NAMED = (LabelRequirement(key="field:metadata.name", operator="In", values=("n1", "n2")),)
GPU_BY_CLAIM = CLAIMED + "gpu"
NEEDS = (
    NodeNeeds(),
    NodeNeeds(selector=(("speed", "fast"),), tolerations=(TaintToleration(operator="Exists"),)),
    NodeNeeds(affinity=(NOT_FAST, NAMED)),
)
HOSTS = ("x1", "x2", "x3", "x4")
RACKS = (("b1", "r1"), ("b1", "r2"), ("b2", "r1"), ("b9", "r9"))
HOMES = {"n1": "b1/r1/x1", "n2": "b1/r1/x2", "n3": "b1/r2/x3", "n4": "b2/r1/x4", "n5": "b2/r1/x1"}


def kinds(tree):
    """Return what is counted in a topology, whose `limits` decide which requests matter."""
    asked, more = ({"gpu": 2}, {"gpu": 1, GPU_BY_CLAIM: 2}), {"gpu": 3, GPU_BY_CLAIM: 1}
    return [
        PodKind(requests=requests_of(requests, tree), empty=empty, needs=needs, beside=beside)
        for requests in asked
        for empty in (False, True)
        for beside in ((), requests_of(more, tree))
        for needs in NEEDS
    ]


def changed(choose):
    """A node as it comes, or as it changes: seldom its place, its name least of all."""
    name, moves = choose.one(sorted(HOMES)), choose.once_in(6)
    gpu = choose.maybe(0, 20)
    return node(
        f"{choose.one(('b1/r1', 'b2/r1'))}/{choose.one(HOSTS)}" if moves else HOMES[name],
        name=name,
        labels=choose.one(({}, {"speed": "fast"})),
        taints=choose.one(((), (TAINT,))),
        **({} if gpu is None else {"gpu": gpu}),
        pods=9,
        ready=not choose.once_in(6),
    )


def holding(choose):
    flavor = choose.one(sorted(FLAVORS))
    levels = FLAVORS[flavor][1] if flavor == "racks" else (HOSTNAME,)
    places = RACKS if flavor == "racks" else [(host,) for host in HOSTS]
    there = {choose.one(places): choose.number(1, 3) for _ in range(choose.number(0, 3))}
    assignment = TopologyPlacement(levels=levels, domains=tuple(sorted(there.items())))
    requests = {"gpu": choose.number(0, 4), GPU_BY_CLAIM: choose.number(0, 3)}
    return Placement(flavor=flavor, assignment=assignment, requests=requests)


def offers(choose):
    """What some nodes offer by claims, of which others have some."""
    names = choose.shuffled(sorted(HOMES))[: choose.number(0, 4)]
    return {name: (choose.number(0, 9), choose.number(0, 3)) for name in sorted(names)}


STEPS = {
    "look": lambda choose: (),
    "node": lambda choose: (changed(choose),),
    "gone": lambda choose: (choose.one(sorted(HOMES)),),
    "pod": lambda choose: (choose.one("pqr"), choose.one(sorted(HOMES)[:3]), choose.number(0, 5)),
    "pod gone": lambda choose: (choose.one("pqr"),),
    "hold": lambda choose: (
        choose.one("uvw"),
        [holding(choose) for _ in range(choose.number(0, 2))],
    ),
    "offer": lambda choose: (offers(choose),),
    "flavor": lambda choose: (choose.one(sorted(FLAVORS)),),
    "no flavor": lambda choose: (choose.one(sorted(FLAVORS)),),
}
KINDS_OF_STEPS = (*STEPS, "look", "node", "hold")


MOST_OF_A_STEP = 23
"""Choices of a step, with that of its kind: two who hold three places each."""


def step(choose, kind):
    """A step, of `MOST_OF_A_STEP` choices at most."""
    return kind, *STEPS[kind](choose)


def history(choose):
    """Flavors, and up to thirty steps, or as many as there are choices for."""
    first = choose.shuffled(sorted(FLAVORS))[: choose.number(1, len(FLAVORS))]
    return [("flavor", name) for name in sorted(first)] + [
        step(choose, choose.one(KINDS_OF_STEPS))
        for _ in range(choose.number(5, 30))
        if choose.left >= MOST_OF_A_STEP
    ]


def trials(choose):
    """What happens, and what is tried after it: who holds what, up to six times."""
    tried = [step(choose, "hold") for _ in range(choose.number(0, 6))]
    return history(choose), tried


def apply(nodes, step):
    kind, *facts = step
    change = {
        "node": nodes.put,
        "gone": nodes.remove,
        "pod": lambda key, name, gpu: nodes.put_pod(key, name, {"gpu": gpu}),
        "pod gone": nodes.remove_pod,
        "hold": nodes.hold,
        "offer": lambda found: nodes.put_claimed(
            {
                name: ClaimedOfNode({GPU_BY_CLAIM: total}, {GPU_BY_CLAIM: total - others})
                for name, (total, others) in found.items()
            },
            {GPU_BY_CLAIM} if found else set(),
        ),
        "flavor": lambda name: nodes.put_flavor(*FLAVORS[name]),
        "no flavor": nodes.remove_flavor,
        "look": lambda: counted(nodes),
    }
    change[kind](*facts)


def counted(nodes):
    """Return how many pods of each kind go into each domain, by its values, as it is kept."""
    return {
        flavor: [
            {tree.values[domain]: counts[domain] for level in tree.at for domain in level}
            for kind in kinds(tree)
            for counts in [nodes.counts[flavor].counts(kind).pods]
            for _ in [tree.settle()]
        ]
        for flavor, tree in nodes.trees.items()
    }


class Facts:
    """All there is at the end, and everything counted from it."""

    def __init__(self, steps):
        self.nodes, self.pods, self.held, self.flavors, self.offers = {}, {}, {}, {}, {}
        for step in steps:
            self._note(step)

    def _note(self, step):  # noqa: C901 - a line for each kind of step
        match step:
            case ("node", spec):
                self.nodes[spec.name] = spec
            case ("gone", name):
                self.nodes.pop(name, None)
            case ("pod", key, name, gpu):
                self.pods[key] = (name, gpu)
            case ("pod gone", key):
                self.pods.pop(key, None)
            case ("hold", workload, held):
                self.held[workload] = held
            case ("offer", offers):
                self.offers = offers
            case ("flavor", name):
                self.flavors[name] = FLAVORS[name]
            case ("no flavor", name):
                self.flavors.pop(name, None)

    def limits(self, resource):
        return resource != GPU_BY_CLAIM or bool(self.offers)

    def counted(self):
        return {
            name: [self._counts(flavor, levels, kind) for kind in kinds(self)]
            for name, (flavor, levels) in self.flavors.items()
        }

    def _counts(self, flavor, levels, kind):
        counts = {}
        for path, members in self._leaves(flavor, levels).items():
            pods = self._pods(flavor, levels, path, members, kind)
            for depth in range(1, len(path) + 1):
                counts[path[:depth]] = counts.get(path[:depth], 0) + pods
        return counts

    def _leaves(self, flavor, levels):
        leaves, seen = {}, set()
        for spec in sorted(self.nodes.values(), key=lambda spec: spec.name):
            wanted = flavor.labels.items() <= spec.labels.items()
            name = spec.labels[HOSTNAME] if levels[-1] == HOSTNAME else spec.name
            if spec.usable and wanted and name not in seen:
                seen.add(name)
                path = tuple(spec.labels[level] for level in levels)
                leaves.setdefault(path, []).append(spec)
        return leaves

    def _pods(self, flavor, levels, path, members, kind):
        to_nodes = levels[-1] == HOSTNAME
        if to_nodes and kind.needs.obstacle(members[0]):
            return 0
        free = {"gpu": 0, GPU_BY_CLAIM: 0}
        for spec in members:
            total, others = self.offers.get(spec.name, (0, 0))
            free[GPU_BY_CLAIM] += total - others
            for name, amount in spec.allocatable.items():
                free[name] = free.get(name, 0) + amount
            for where, gpu in self.pods.values():
                if where == spec.name:
                    free["gpu"] -= gpu
                    free["pods"] -= 1
        if not kind.empty:
            self._use(free, flavor, path, to_nodes=to_nodes)
        for name, amount in kind.beside:
            free[name] -= amount
        return max(0, min(free[name] // amount for name, amount in kind.requests))

    def _use(self, free, flavor, path, *, to_nodes):
        name = path[-1:] if to_nodes else path
        for held in (each for holdings in self.held.values() for each in holdings):
            shared = held.assignment.levels == (HOSTNAME,)
            if shared == to_nodes and (shared or held.flavor == flavor.name):
                for where, count in held.assignment.domains:
                    if where == name:
                        for resource, amount in {**held.requests, "pods": 1}.items():
                            free[resource] -= amount * count


@given(scenarios(history, 200))
@RATE
def test_counts_kept_up_to_date_are_those_of_a_recount(steps):
    nodes = Nodes()
    for each in steps:
        apply(nodes, each)

    assert counted(nodes) == Facts(steps).counted()
    for tree in nodes.trees.values():
        for domain in (domain for level in tree.at for domain in level):
            within = tree.values[domain]
            inside = [d for level in tree.at for d in level if tree.values[d][:-1] == within]
            assert tree.children[domain] == inside


@given(scenarios(trials, 240))
@RATE
def test_trials_are_undone(trial):
    nodes, (steps, tried) = Nodes(), trial
    for each in steps:
        apply(nodes, each)
    before, held = counted(nodes), dict(nodes.held)

    with nodes.trial():
        for each in tried:
            apply(nodes, each)
        during = counted(nodes)

    assert during == Facts([*steps, *tried]).counted()
    assert counted(nodes) == before
    assert nodes.held == held

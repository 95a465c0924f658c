"""Small clusters, and what is asked of them."""

from policyd.alloc.queue import FlavorSpec
from policyd.alloc.settings import Gates
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.placement import place
from policyd.alloc.topology.values import (
    HOSTNAME,
    Placement,
    PlacementRequest,
    SliceLayer,
    TopologyNode,
    TopologyPlacement,
)
from policyd.status.messages import placement_text

FLAVOR = "gpu"
LEVELS = ("block", "rack", HOSTNAME)


def node(path, *, labels=None, levels=LEVELS, name="", **facts):
    """A node at `block/rack/host`, named as its host; amounts in cores and GPUs, many pods."""
    where = dict(zip(levels, path.split("/"), strict=True))
    name = name or path.rpartition("/")[2]
    amounts = {key: facts.pop(key) for key in ("cpu", "gpu", "pods") if key in facts}
    return TopologyNode(
        name=name, labels={**where, **(labels or {})}, allocatable={"pods": 100, **amounts}, **facts
    )


def cluster(*nodes, levels=LEVELS, flavor=None, **options):
    found = Nodes(**options)
    found.put_flavor(flavor or FlavorSpec(name=FLAVOR, topology="racks"), levels)
    for each in nodes:
        found.put(each)
    return found


def hosts(**amounts):
    """A cluster of nodes with so many GPUs each: `hosts(b1_r1_x1=4)`."""
    return cluster(*(node(path.replace("_", "/"), gpu=gpu) for path, gpu in amounts.items()))


def request(count=1, mode="Unconstrained", level="", *, slices=(), pod_set="main", **others):
    amounts = {key: others.pop(key) for key in ("cpu", "gpu") if key in others} or {"gpu": 1}
    requests = others.pop("requests", amounts)
    layers = tuple(SliceLayer(level=name, size=size) for name, size in slices)
    return PlacementRequest(
        pod_set=pod_set, count=count, mode=mode, level=level, slices=layers, requests=requests,
        **others,
    )  # fmt: skip


def placed(nodes, *requests, gates=None, **options):
    """Return what becomes of each pod set: pods by host, or the text of its refusal."""
    found = place(nodes, {FLAVOR: list(requests)}, gates=gates or Gates(), **options)
    return {name: describe_outcome(outcome) for name, outcome in found.items()}


def describe_outcome(outcome):
    if isinstance(outcome, TopologyPlacement):
        return {"/".join(values): count for values, count in outcome.domains}
    return placement_text(outcome)


def only(nodes, asked, **options):
    return placed(nodes, asked, **options)[asked.pod_set]


def assignment(levels=(HOSTNAME,), **pods):
    domains = tuple((tuple(name.split("_")), count) for name, count in pods.items())
    return TopologyPlacement(levels=levels, domains=domains)


def holding(flavor=FLAVOR, *, gpu=1, levels=(HOSTNAME,), **pods):
    return Placement(flavor=flavor, assignment=assignment(levels, **pods), requests={"gpu": gpu})

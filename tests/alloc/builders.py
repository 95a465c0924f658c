"""Short ways to say queues and workloads."""

from collections import Counter

from policyd.alloc.plan import Admit
from policyd.alloc.queue import (
    CohortQuotas,
    FlavorAmounts,
    FlavorGroup,
    FlavorSpec,
    QueueSpec,
    Quota,
)
from policyd.alloc.settings import DEFAULTS
from policyd.alloc.state import CoreState
from policyd.alloc.workload import PodSetFlavors, QueuedPodSet, QueuedWorkload, ReservedQuota


def quota(nominal, borrow=None, lend=None):
    return Quota(nominal=nominal, borrowing_limit=borrow, lending_limit=lend)


def group(**flavors):
    """A group of flavors: `group(spot={"gpu": 8})`; names take `_` for `-`."""
    quotas = {
        name: {r: q if isinstance(q, Quota) else quota(q) for r, q in resources.items()}
        for name, resources in flavors.items()
    }
    resources = tuple(dict.fromkeys(r for each in quotas.values() for r in each))
    return FlavorGroup(
        resources=resources,
        flavors=tuple(FlavorAmounts(name=n.replace("_", "-"), quotas=q) for n, q in quotas.items()),
    )


def queue(name, cohort="", *, groups=(), strict=False, gpu=None, **fields):
    """A queue; `gpu=8` is short for eight GPUs of flavor `default`."""
    if gpu is not None:
        groups = (group(default={"gpu": gpu}),)
    return QueueSpec(name=name, cohort=cohort, groups=tuple(groups), strict=strict, **fields)


def cohort(name, parent="", gpu=None, **fields):
    groups = () if gpu is None else (group(default={"gpu": gpu}),)
    return CohortQuotas(name=name, parent=parent, groups=groups, **fields)


def pod_set(
    name="main", count=1, *, minimum=None, tolerations=(), selector=None, affinity=(), **requests
):
    return QueuedPodSet(
        name=name,
        count=count,
        minimum=minimum,
        requests=requests,
        tolerations=tolerations,
        node_selector=selector or {},
        affinity=affinity,
    )


def workload(key, queue_name, *pod_sets, at=0, priority=0, count=1, **fields):
    """A pending workload; `gpu=4` is short for one pod set that requests four."""
    resources = {k: fields.pop(k) for k in ("gpu", "cpu", "memory") if k in fields}
    return QueuedWorkload(
        key=key,
        uid=fields.pop("uid", key),
        cluster_queue=queue_name,
        queued_at=float(at),
        priority=priority,
        pod_sets=pod_sets or (pod_set(count=count, **resources),),
        **fields,
    )


def admission(queue_name, flavor="default", name="main", count=1, **usage):
    assignment = PodSetFlavors(
        name=name, count=count, flavors=dict.fromkeys(usage, flavor), usage=usage
    )
    return ReservedQuota(cluster_queue=queue_name, pod_sets=(assignment,))


def state(*things, flavors=("default",), rules=DEFAULTS, extend=None):
    """A state of queues, cohorts, flavors and workloads."""
    new = CoreState(rules, extend)
    for name in flavors:
        new.put_flavor(FlavorSpec(name=name))
    for thing in things:
        put(new, thing)
    return new


def put(to, thing):
    match thing:
        case FlavorSpec():
            to.put_flavor(thing)
        case CohortQuotas():
            to.put_cohort(thing)
        case QueueSpec():
            to.put_queue(thing)
        case QueuedWorkload():
            to.put_workload(thing)


def keys(actions, kind=Admit):
    return [action.workload.key for action in actions if isinstance(action, kind)]


def held(state):
    """What all who hold quota were given, by queue, flavor and resource, keyed as in `usage`."""
    found = Counter()
    for queue in state.queues.values():
        for holding in queue.holdings.values():
            for names, amount in holding.admission.usage().items():
                found[(True, queue.name, *names)] += amount
    return {key: amount for key, amount in found.items() if amount}


def usage(of):
    """What every queue and cohort uses, zeros left out, by kind, name, flavor and resource."""
    tree = of.tree
    tree.refresh()
    nodes = [*tree.hierarchy.queues.values(), *tree.hierarchy.cohorts.values()]
    return {
        (node.queue, node.name, *names): tree.usage[cell]
        for node in nodes
        for names, cell in node.cells.items()
        if tree.usage[cell]
    }

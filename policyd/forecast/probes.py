"""Probes: workloads that are not submitted but forecast, so that a new one can get its start.

Of each queue: what workloads in it request, the most frequent first, and numbers of devices, each
alone and with as much else as the largest share of a device so far. A new workload that requests
what lies between two of them starts between their starts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from policyd.alloc.amount import total_of
from policyd.alloc.queue import QueueSpec, quotas_of
from policyd.alloc.quota import QuotaNode
from policyd.alloc.state import CoreState
from policyd.alloc.workload import QueuedPodSet, QueuedWorkload
from policyd.forecast.run_times import JobTraits
from policyd.forecast.starts import KnownJob, size_class_of

MOST: Final = 240
"""Probes of all queues."""
MOST_PRIORITIES, MOST_ALIKE = 3, 8
"""Of one queue: priorities, and requests of other workloads."""
DEVICES: Final = (1, 2, 4, 8, 16, 32, 64)

_Totals = tuple[tuple[str, int], ...]
Request = tuple[int, _Totals]
"""A priority, and how much of each resource is requested together."""


def probes_of(queues: Mapping[str, "Counter[Request]"], *, now: float) -> Iterator[KnownJob]:
    """Yield the workloads that are tried; their keys name no other workload.

    Args:
        queues: How often workloads that run or wait have which request, by queue.
        now: When they would be submitted, in seconds.
    """
    share, number = MOST // max(1, len(queues)), 0
    for name, others in list(queues.items())[:MOST]:
        for priority, totals in islice(_wanted(others), max(1, share)):
            key, number = f"probe {number}", number + 1
            yield KnownJob(
                workload=QueuedWorkload(
                    key=key,
                    uid=key,
                    cluster_queue=name,
                    queued_at=now,
                    priority=priority,
                    pod_sets=(QueuedPodSet(name="main", requests=dict(totals)),),
                ),
                traits=JobTraits(queue=name),
                size_class=size_class_of(sum(n for each, n in totals if "/" in each)),
            )


def _wanted(alike: "Counter[Request]") -> Iterator[Request]:
    """Yield priorities and requests, the most frequent priority first."""
    priorities, requests = Counter[int](), Counter[_Totals]()
    for (priority, totals), count in alike.items():
        priorities[priority] += count
        requests[totals] += count
    often = [totals for totals, _ in requests.most_common(MOST_ALIKE) if totals]
    tried = dict.fromkeys((*often, *_sizes(requests)))
    for priority, _ in priorities.most_common(MOST_PRIORITIES):
        yield from ((priority, totals) for totals in tried)


def _sizes(requests: Iterable[_Totals]) -> Iterator[_Totals]:
    """Yield numbers of the devices that are requested most, alone and with all else."""
    devices, shares = Counter[str](), dict[str, int]()
    for totals in requests:
        named = [name for name, _ in totals if "/" in name]
        if len(named) == 1:
            devices.update(named)
            count = dict(totals)[named[0]]
            for name, amount in totals:
                shares[name] = max(shares.get(name, 0), -(-amount // count))
    for device, _ in devices.most_common(1):
        for count in DEVICES:
            alone = (device, count)
            yield (alone,)
            rest = ((name, each * count) for name, each in sorted(shares.items()))
            yield (*(each for each in rest if "/" not in each[0]), alone)


def request_of(workload: QueuedWorkload) -> Request:
    """Return the priority of a workload, and what it requests."""
    found = total_of(*(each.totals() for each in workload.pod_sets))
    totals = sorted((name, amount) for name, amount in found.items() if amount)
    return workload.priority, tuple(totals)


def plain_queues(state: CoreState, beyond: Callable[[QueueSpec], bool]) -> frozenset[str]:
    """Return the queues in which nothing but quota and order decides, like in all of their tree.

    Args:
        state: The queues.
        beyond: Tells whether a queue has settings beyond Kueue's rules.
    """
    settings = state.settings
    if settings.fair_sharing is not None or settings.blocks_until_ready:
        return frozenset()
    state.settle()
    placing = {name for name, each in state.flavors.items() if each.topology}
    found, odd = dict[str, QuotaNode](), set[QuotaNode]()
    for name, queue in state.queues.items():
        if queue.spec is None or queue.node is None:
            continue
        found[name] = node = queue.node
        nested = node.parent is not None and node.parent is not node.root
        if nested or not _is_plain(queue.spec, placing) or beyond(queue.spec):
            odd.add(node.root)
    return frozenset(name for name, node in found.items() if node.root not in odd)


def _is_plain(spec: QueueSpec, placing: set[str]) -> bool:
    """Tell whether a queue preempts no workload, chooses no flavors or nodes, and lends all."""
    rules = spec.preemption
    preempts = (rules.within_cluster_queue, rules.reclaim_within_cohort, rules.borrow_within_cohort)
    quotas = quotas_of(spec.groups)
    return (
        set(preempts) == {"Never"}
        and all(len(group.flavors) == 1 for group in spec.groups)
        and placing.isdisjoint(spec.flavors)
        and all(each.lending_limit is None for each in quotas.values())
        and not (spec.by_usage or spec.elsewhere or spec.delayed)
    )

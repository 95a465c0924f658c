"""Queues, cohorts and workloads of all sorts, out of choices."""

from policyd.alloc.queue import Fungibility
from tests.alloc.builders import cohort, group, pod_set, queue, quota, workload

NAMES = ("a", "b", "c", "d")
FLAVORS = ("default", "spot")


def world(choose):
    """Queues in up to two cohorts, and workloads for them: all that there is, of 180 choices."""
    number = choose.one((0, 1, 2, 3, 3, 4, 4, 4))
    specs = [queues(choose, name) for name in choose.shuffled(NAMES)[:number]]
    waiting = [workloads(choose, number) for number in range(choose.number(0, 9))]
    return [*cohorts(choose), *specs, *waiting]


def queues(choose, name):
    """One queue, of 16 choices at most."""
    groups = (
        group(default={"gpu": choose.number(0, 9)})
        if choose.once_in(3)
        else group(default=_resources(choose), spot=_resources(choose))
    )
    return queue(
        name,
        choose.one(("x", "x", "y", "")),
        groups=[groups],
        strict=choose.yes(),
        fungibility=Fungibility(when_can_borrow=choose.one(("MayStopSearch", "TryNextFlavor"))),
    )


def _resources(choose):
    return {"gpu": quotas(choose, 9), "cpu": quotas(choose, 9)}


def quotas(choose, most):
    return quota(choose.number(0, most), choose.maybe(0, most), choose.maybe(0, most))


def cohorts(choose):
    """Two cohorts, of 9 choices at most."""
    return [
        cohort("x", choose.one(("", "y")), quotas(choose, 9) if choose.yes() else None),
        cohort("y", "", quotas(choose, 9) if choose.yes() else None),
    ]


def workloads(choose, number):
    """One workload, of 10 choices at most."""
    name, at, priority = choose.one(NAMES), choose.number(0, 3), choose.number(0, 2)
    sets = [_pod_set(choose, f"s{n}") for n in range(choose.number(1, 2))]
    return workload(f"w{number}", name, *sets, at=at, priority=priority)


def _pod_set(choose, name):
    requests, cpu = {"gpu": choose.number(0, 4)}, choose.maybe(0, 4)
    if cpu is not None:
        requests["cpu"] = cpu
    return pod_set(name, choose.number(1, 3), **requests)

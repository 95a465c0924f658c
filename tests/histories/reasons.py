"""A judge of reasons: a workload that waits says why, and the numbers are those of the queue."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict

from policyd.api.kueue.names import GROUP, QUOTA_RESERVED
from tests.histories.accounts import OWN
from tests.histories.order import MOMENT_SECONDS, as_waiting
from tests.histories.record import WORKLOADS, condition, held_gpus, requested

NEAR_SECONDS = 75.0
"""A reason may be of a moment so long before or after it is written."""
MISSING = re.compile(
    r"couldn't assign flavors to pod set (\S+): insufficient unused quota for \S+ in flavor \S+,"
    r" (\d+) more needed"
)


def reasons_are_true(world, log):
    """Numbers in a reason were so when it was written."""
    alone = {n for n, queue in world.plan.setting["queues"].items() if not queue["cohort"]}
    quota, used = _series(world.record)
    for v in world.record.of(WORKLOADS):
        if not v.new or v.who != OWN or _message_of(v.new) == _message_of(v.old):
            continue
        found, waits = MISSING.match(_message_of(v.new)), as_waiting(v.new, v.at)
        # What is missing may be missing for fewer pods, where fewer are enough.
        fewer = any("minCount" in each for each in v.new["spec"]["podSets"])
        if not found or waits is None or waits.queue not in alone or fewer:
            continue
        near = (v.at - NEAR_SECONDS, v.at + NEAR_SECONDS)
        free = {
            given - held  # less than nothing after a cut
            for given in _during(quota[waits.queue], *near)
            for held in _during(used[waits.queue], *near)
        }
        calm = world.record.was_calm(v.at, NEAR_SECONDS)
        asked = _asked_until(v.new, found[1])
        if len(_during(used[waits.queue], v.at - MOMENT_SECONDS, v.at + MOMENT_SECONDS)) > 1:
            free = range(min(free), max(free) + 1)  # what is decided is written in any order
        if calm and asked - int(found[2]) not in {*free, max(0, min(free))}:
            text = f"{asked} GPUs, {_message_of(v.new)[:150]!r}: free {free}"
            yield f"{v.at:.1f} s: {v.key}, {text}"


def _asked_until(workload, name):
    """Return the GPUs of the pod sets up to one: flavors are assigned in their order."""
    names = [each["name"] for each in workload["spec"]["podSets"]]
    first = workload["spec"]["podSets"][: names.index(name) + 1]
    return requested({**workload, "spec": {"podSets": first}})


def _series(record):
    """Return the quota and the use of each queue, with the moment of each change."""
    quota, used, held = defaultdict(list), defaultdict(list), {}
    for v in record.versions:
        if v.resource == f"clusterqueues.{GROUP}" and v.new is not None:
            (group,) = v.new["spec"]["resourceGroups"]
            nominal = int(group["flavors"][0]["resources"][0]["nominalQuota"])
            quota[v.key.lstrip("/")].append((v.at, nominal))
        elif v.resource == WORKLOADS:
            before, held[v.key] = held.get(v.key, {}), held_gpus(v.new)
            for queue in {*before, *held[v.key]}:
                used[queue].append((v.at, sum(each[queue] for each in held.values())))
    return quota, used


def _message_of(workload):
    found = condition(workload, QUOTA_RESERVED)
    return found.get("message", "") if found.get("status") == "False" else ""


def _during(changes, first, last):
    """Return the values that something had within some time; 0 before the first change."""
    times = [at for at, _ in changes]
    began, ended = bisect_right(times, first), bisect_left(times, last)
    before = changes[began - 1][1] if began else 0
    return {before, *(value for _, value in changes[began:ended])}


def all_have_reasons(world, log):
    """In the end, each workload that waits says why."""
    if not world.record.quiet_since:
        return
    for _, workload in world.cluster.store.items(WORKLOADS):
        if as_waiting(workload, 0.0) and not _message_of(workload):
            yield f"workload {workload['metadata']['name']} waits, and does not say why"

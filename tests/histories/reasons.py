"""Judges of reasons: a workload that waits says why, with true numbers and names, all the time."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict

from policyd.api.kueue.names import GROUP, QUOTA_RESERVED
from tests.histories.accounts import OWN
from tests.histories.order import MOMENT_SECONDS, as_waiting
from tests.histories.record import WORKLOADS, condition, held_gpus, requested

NEAR_SECONDS = 75.0
"""A reason may be of a moment so long before or after it is written."""
STALE_SECONDS = 90.0
"""So long may a reason stay that is no longer true."""
MISSING = re.compile(
    r"couldn't assign flavors to pod set (\S+): insufficient unused quota for \S+ in flavor \S+,"
    r" (\d+) more needed"
)
HELD_BY = re.compile(r"; held by (.*?)(?:; to help it: |$)")
HOLDER = re.compile(r"(team/[\w.-]+) \((\d+)\)")
BEHIND = re.compile(r"behind (team/[\w.-]+), which")


def reasons_are_true(world, log):
    """Numbers in a reason were so when it was written."""
    alone = {n for n, queue in world.plan.setting["queues"].items() if not queue["cohort"]}
    quota, used, holds = _series(world.record)
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
        moment = (v.at - MOMENT_SECONDS, v.at + MOMENT_SECONDS)
        each = [_during(changes, *moment) for changes in holds[waits.queue].values()]
        if any(len(amounts) > 1 for amounts in each):
            # What is decided is written in any order: what ends may be counted with what begins.
            most = max(sum(map(max, each)), *_during(used[waits.queue], *near))
            least = min(_during(quota[waits.queue], *near)) - most
            free = range(least, max(free) + 1)
        if calm and asked - int(found[2]) not in {*free, max(0, min(free))}:
            text = f"{asked} GPUs, {_message_of(v.new)[:150]!r}: free {free}"
            yield f"{v.at:.1f} s: {v.key}, {text}"


def _asked_until(workload, name):
    """Return the GPUs of the pod sets up to one: flavors are assigned in their order."""
    names = [each["name"] for each in workload["spec"]["podSets"]]
    first = workload["spec"]["podSets"][: names.index(name) + 1]
    return requested({**workload, "spec": {"podSets": first}})


def _series(record):
    """Return the quota and the use of each queue, and that by its workloads, with each change."""
    quota, used, held = defaultdict(list), defaultdict(list), {}
    holds = defaultdict(lambda: defaultdict(list))
    for v in record.versions:
        if v.resource == f"clusterqueues.{GROUP}" and v.new is not None:
            (group,) = v.new["spec"]["resourceGroups"]
            nominal = int(group["flavors"][0]["resources"][0]["nominalQuota"])
            quota[v.key.lstrip("/")].append((v.at, nominal))
        elif v.resource == WORKLOADS:
            before, held[v.key] = held.get(v.key, {}), held_gpus(v.new)
            for queue in {*before, *held[v.key]}:
                holds[queue][v.key].append((v.at, held[v.key][queue]))
                used[queue].append((v.at, sum(each[queue] for each in held.values())))
    return quota, used, holds


def reasons_stay_true(world, log):
    """Numbers and names in a reason are not long otherwise than in the queues."""
    alone = {n for n, queue in world.plan.setting["queues"].items() if not queue["cohort"]}
    truth, written = Truth(world.record), {}
    for v in world.record.of(WORKLOADS):
        before, waits = written.pop(v.key, None), v.new and as_waiting(v.new, v.at)
        message = _message_of(v.new) if waits else ""
        now = (message, waits and waits.gpus, waits and waits.queue)
        same = before is not None and now == before[1]
        if before is not None and not same:
            for claim, changes, right in truth.claims(before[2], before[1][2] in alone):
                seconds, until = _longest(changes, right, before[0], v.at)
                if seconds > STALE_SECONDS and world.record.was_calm(until, seconds):
                    yield f"{until:.1f} s: {v.key} says for {seconds:.0f} s {claim!r}"
        if message:
            written[v.key] = before if same else (v.at, now, v.new)


class Truth:
    """What reasons may be about, with the moment of each change."""

    def __init__(self, record):
        self._free, self._held, self._waits = (defaultdict(list) for _ in range(3))
        quota, used, _ = _series(record)
        for queue, changes in quota.items():
            given = held = 0
            both = [(at, 0, value) for at, value in changes]
            both += [(at, 1, value) for at, value in used[queue]]
            for at, kind, value in sorted(both, key=lambda each: each[0]):
                given, held = (given, value) if kind else (value, held)
                self._free[queue].append((at, given - held))
        of_jobs = defaultdict(dict)
        for v in record.of(WORKLOADS):
            owners = v.last["metadata"].get("ownerReferences") or ()
            names = [each["name"] for each in owners if each.get("controller")]
            name = f"team/{names[0]}" if names else v.key
            waits = v.new is not None and as_waiting(v.new, v.at) is not None
            of_jobs[name][v.last["metadata"]["uid"]] = held_gpus(v.new).total(), waits
            held, waiting = zip(*of_jobs[name].values(), strict=True)
            self._held[name].append((v.at, sum(held)))
            self._waits[name].append((v.at, any(waiting)))

    def claims(self, workload, alone):
        """Yield what a reason claims, how that changed, and what tells whether it is so."""
        message, queue = _message_of(workload), workload["spec"]["queueName"]
        fewer = any("minCount" in each for each in workload["spec"]["podSets"])
        found = MISSING.match(message) if alone and not fewer else None
        if found:
            left = _asked_until(workload, found[1]) - int(found[2])
            yield found[0], self._free[queue], lambda free: left in {free, max(0, free)}
        holders = HELD_BY.search(message)
        for name, gpus in HOLDER.findall(holders[1]) if holders else ():
            yield f"{name} holds {gpus}", self._held[name], int(gpus).__eq__
        if ahead := BEHIND.match(message):
            yield ahead[0], self._waits[ahead[1]], bool


def _longest(changes, right, first, last):
    """Return the longest time in which something was not as it should be, and its end."""
    worst, since = (0.0, first), None
    begun = bisect_right([at for at, _ in changes], first)
    inside = [(at, value) for at, value in changes[begun:] if at < last]
    before = changes[begun - 1][1] if begun else 0
    for at, value in [(first, before), *inside, (last, None)]:
        if since is not None:
            worst = max(worst, (at - since, at))
        if at == last or right(value):
            since = None
        elif since is None:
            since = at
    return worst


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

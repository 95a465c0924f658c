"""Judges of order: priority within a queue, a queue's own quota, and fair shares of the rest."""

from dataclasses import dataclass

from policyd.api.kueue.names import EVICTED, FINISHED, GROUP, QUOTA_RESERVED, REQUEUED
from policyd.jobs.lifecycle import ON_HOLD
from tests.histories.record import (
    WORKLOADS,
    condition,
    held_gpus,
    is_true,
    preemptor_of,
    requested,
)

LATE_SECONDS = 75.0
"""So long ago something must have been so that a decision has to heed it."""
MOMENT_SECONDS = 5.0
"""Within which all is written that was decided together."""
RECLAIM_SECONDS = 400.0
"""Within which a queue gets its own quota back from others that may be preempted."""


@dataclass(slots=True)
class Waiting:
    """A workload that waits, and since when it is as it is."""

    since: float
    queue: str
    priority: int
    gpus: int
    queued: str
    """Since when it has its place among workloads of its priority."""
    uid: str
    """Decides between those of the same second."""


def as_waiting(workload, at):
    """Return a workload that waits for quota; None if it does not, or may not have any now."""
    spec, status = workload["spec"], workload.get("status", {})
    if (
        is_true(workload, FINISHED)
        or is_true(workload, QUOTA_RESERVED)
        or condition(workload, QUOTA_RESERVED).get("reason") == ON_HOLD
        or not spec.get("active", True)
        or workload["metadata"].get("deletionTimestamp")
        or is_true(workload, "WaitingForReplacementPods")
        or status.get("requeueState", {}).get("requeueAt")
        or condition(workload, REQUEUED).get("status") == "False"
    ):
        return None
    return Waiting(
        at, spec.get("queueName", ""), spec.get("priority", 0), requested(workload),
        queued(workload), workload["metadata"]["uid"],
    )  # fmt: skip


def queued(workload):
    """Return since when a workload has its place among those of its priority."""
    evicted = condition(workload, EVICTED)
    checked = evicted.get("reason") == "AdmissionCheck"
    return evicted["lastTransitionTime"] if checked else workload["metadata"]["creationTimestamp"]


def priority_is_heeded(world, log):
    """No workload overtakes one of its queue that comes first, and that it leaves room for.

    What is decided in one moment is written in any order. Quota that is decided, and not written,
    goes back at once for one that comes first: then only that one is written.
    """
    waiting, overtaken, record = {}, {}, world.record
    for v in record.of(WORKLOADS):
        before, now = waiting.pop(v.key, None), v.new and as_waiting(v.new, v.at)
        if not now and v.at < overtaken.get(v.key, (0.0, ""))[0] + MOMENT_SECONDS:
            overtaken.pop(v.key, None)
        if now:
            same = before and (before.queue, before.priority) == (now.queue, now.priority)
            now.since = before.since if same else v.at
            waiting[v.key] = now
        elif before and is_true(v.new, QUOTA_RESERVED) and record.was_calm(v.at, LATE_SECONDS):
            queue = world.plan.setting["queues"].get(before.queue)
            for key, other in waiting.items():
                if other.queue == before.queue and _overtaken(other, before, queue, v, record):
                    text = f"{v.at:.1f} s: {v.key} overtakes {key} in queue {other.queue}"
                    overtaken.setdefault(key, (v.at, text))
            _excuse(before, v.at, waiting, overtaken)
    yield from (text for _, text in overtaken.values())


def _excuse(winner, at, waiting, overtaken):
    """Drop what was overtaken a moment ago, and comes after what is admitted now."""
    for key in [key for key, (when, _) in overtaken.items() if at < when + MOMENT_SECONDS]:
        other = waiting.get(key)
        if other is not None and other.queue == winner.queue and _comes_first(winner, other):
            del overtaken[key]


def _overtaken(other, winner, queue, v, record):
    if other.since > v.at - LATE_SECONDS:
        return False
    strict = queue is not None and queue["strategy"] == "StrictFIFO"
    fits = strict or (other.gpus <= held_gpus(v.new).total() and not record.places_decide)
    return fits and _comes_first(other, winner)


def _comes_first(one, other):
    """Tell whether a workload comes before another one of its queue."""
    return (-one.priority, one.queued) < (-other.priority, other.queued)


def own_quota_comes_back(world, log):
    """A queue that may reclaim does not wait long for quota that is its own."""
    queues = [
        Own(name, world)
        for name, queue in world.plan.setting["queues"].items()
        if queue["cohort"] and queue["reclaim"] == "Any"
    ]
    for v in world.record.versions:
        for queue in queues:
            if v.resource == f"clusterqueues.{GROUP}" and v.key.lstrip("/") == queue.name:
                queue.change(v)
            elif v.resource == WORKLOADS:
                yield from queue.take(v)


def shares_are_fair(world, log):
    """With fair sharing, no queue borrows while one of its cohort waits for a lower share.

    There is one resource: what is borrowed, divided by the weight, is in the order of the shares.
    One for which others were preempted gets their room.
    """
    setting, record, passed, preemptors = world.plan.setting, world.record, {}, set()
    members = [name for name, queue in setting["queues"].items() if queue["cohort"]]
    queues = {name: Own(name, world) for name in members if setting["fair"]}
    for v in record.versions:
        if v.resource == f"clusterqueues.{GROUP}" and v.key.lstrip("/") in queues:
            queues[v.key.lstrip("/")].change(v)
        elif v.resource == WORKLOADS:
            waits = v.new and as_waiting(v.new, v.at)
            if not waits and v.at < passed.get(v.key, (0.0, ""))[0] + MOMENT_SECONDS:
                passed.pop(v.key, None)
            preemptors.add(preemptor_of(v.new))
            begins = is_true(v.new, QUOTA_RESERVED) and not is_true(v.old, QUOTA_RESERVED)
            if begins and v.new["metadata"]["uid"] not in preemptors:
                for key, text in _less_borrowed(v, queues, record):
                    passed.setdefault(key, (v.at, text))
            for queue in queues.values():
                queue.note(v)
    yield from (text for _, text in passed.values())


def _less_borrowed(v, queues, record):
    """Yield the workloads that come first in their queues, and should have come before this."""
    gpus = held_gpus(v.new)
    borrower = queues.get(next(iter(gpus), ""))
    # What a queue does not lend is of no use to others.
    own_left = borrower is not None and borrower.lends_in_part and borrower.borrowed(0) < 0
    if borrower is None or own_left or not record.was_calm(v.at, LATE_SECONDS):
        return
    if borrower.changed_at > v.at - LATE_SECONDS:
        return
    more = borrower.borrowed(gpus.total())
    for queue in queues.values():
        key, head = queue.first()
        sibling = queue is not borrower and queue.cohort == borrower.cohort
        if not sibling or not key or not queue.is_settled(head, v.at):
            continue
        less = max(0, queue.borrowed(head.gpus))
        lower = less / queue.weight < more / borrower.weight
        if head.gpus <= gpus.total() and lower and less <= queue.limit:
            text = f"{v.key} brings {borrower.name} to {more} GPUs borrowed before {key}"
            yield key, f"{v.at:.1f} s: {text}, with which {queue.name} would borrow {less}"


def _quota(queue):
    """Return the GPUs that a queue has for itself, and may borrow; none while it is stopped.

    The third value tells whether it keeps some of them from others.
    """
    if queue is None or queue["spec"].get("stopPolicy", "None") != "None":
        return -1, 0, False
    (group,) = queue["spec"]["resourceGroups"]
    resource = group["flavors"][0]["resources"][0]
    limit = float(resource.get("borrowingLimit", "inf"))
    return int(resource["nominalQuota"]), limit, "lendingLimit" in resource


class Own:
    """One queue: what waits, what is held, and since when its first could have its own quota."""

    def __init__(self, name, world):
        about = world.plan.setting["queues"][name]
        self.name, self._record = name, world.record
        self.cohort, self.weight = about["cohort"], about["weight"]
        self.nominal, self.limit = -1, 0
        self.lends_in_part = False
        self.changed_at = 0.0
        self._waiting, self._held = {}, {}
        self._since = (0.0, "")

    def change(self, v):
        """Take a write of the queue."""
        quota = _quota(v.new)
        if quota != (self.nominal, self.limit, self.lends_in_part):
            self.nominal, self.limit, self.lends_in_part = quota
            self.changed_at = v.at

    @property
    def held(self):
        """How many GPUs its workloads hold."""
        return sum(self._held.values())

    def note(self, v):
        """Take a write of a workload; tell whether it holds another amount, or waits otherwise."""
        before, held = self._waiting.pop(v.key, None), self._held.get(v.key, 0)
        self._held[v.key] = held_gpus(v.new)[self.name]
        found = v.new and as_waiting(v.new, v.at)
        if found and found.queue == self.name:
            same = before is not None and before.priority == found.priority
            found.since = before.since if same else v.at
            self._waiting[v.key] = found
        return held != self._held[v.key] or before != self._waiting.get(v.key)

    def borrowed(self, more):
        """Return how much it would borrow with so many GPUs more; less than 0 if some are left."""
        return self.held + more - self.nominal

    @property
    def is_open(self):
        """Whether it gives out quota, and nothing else decides about it."""
        return self.nominal >= 0 and not self._record.places_decide

    def is_settled(self, head, at):
        """Tell whether its first has waited for a while, and its quota alone decides about it."""
        return self.is_open and max(self.changed_at, head.since) <= at - LATE_SECONDS

    def take(self, v):
        """Take a write of a workload; yield what is wrong before it."""
        began, key = self._since
        late = v.at - began
        if key and late > RECLAIM_SECONDS and self._record.was_calm(v.at, late):
            yield f"{v.at:.1f} s: {key} waits since {began:.1f} s for the own quota of {self.name}"
            self._since = (0.0, "")
        self.note(v)
        first, head = self.first()
        fits = first and self.is_open and self.borrowed(head.gpus) <= 0
        if not fits:
            self._since = (0.0, "")
        elif self._since[1] != first:
            self._since = (v.at, first)

    def first(self):
        """Return the key of the workload that comes first, and the workload; empty without one."""
        return min(
            self._waiting.items(),
            key=lambda each: (-each[1].priority, each[1].queued, each[1].uid),
            default=("", None),
        )

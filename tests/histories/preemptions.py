"""A judge of preemptions: who is preempted, by whom, and by which right."""

from collections import defaultdict

from policyd.api.kueue.names import EVICTED, GROUP, PREEMPTED
from tests.histories.order import LATE_SECONDS, MOMENT_SECONDS, Own, queued
from tests.histories.record import (
    WORKLOADS,
    condition,
    held_gpus,
    is_true,
    preemptor_of,
    requested,
)

QUEUES = f"clusterqueues.{GROUP}"
WITHIN = "InClusterQueue"
OLDER = "LowerOrNewerEqualPriority"


def preemptions_are_just(world, log):
    """A workload is preempted by a right that its queue and that of the preemptor give.

    Where shares decide, a queue reclaims only what is its own. Elsewhere workloads of its own may
    leave as well, or its cohort has the quota.
    """
    court = Court(world)
    for v in world.record.of(WORKLOADS):
        court.count(v)
    for v in world.record.versions:
        if v.resource == QUEUES and v.new is not None:
            court.policies[v.key.lstrip("/")].append((v.at, v.new["spec"]["preemption"]))
            court.queues[v.key.lstrip("/")].change(v)
        elif v.resource == WORKLOADS:
            begins = is_true(v.new, PREEMPTED) and not is_true(v.old, PREEMPTED)
            if begins and world.record.was_calm(v.at, LATE_SECONDS):
                for text in court.objections(v):
                    yield f"{v.at:.1f} s: {v.key} is preempted {text}"
            court.note(v)


class Court:
    """What is known of queues and workloads at a moment."""

    def __init__(self, world):
        self._fair = world.plan.setting["fair"]
        self.queues = {name: Own(name, world) for name in world.plan.setting["queues"]}
        self.policies = defaultdict(list)
        self._workloads, self._priorities, self._held = {}, defaultdict(list), defaultdict(list)

    def count(self, v):
        """Take a write of a workload: what is decided in one moment is written in any order."""
        for name, queue in self.queues.items():
            if queue.note(v):
                self._held[name].append((v.at, queue.held))

    def note(self, v):
        """Take a write of a workload, once all are counted."""
        uid = v.last["metadata"]["uid"]
        self._workloads[uid] = v.last
        self._priorities[uid].append((v.at, v.last["spec"].get("priority", 0)))

    def objections(self, v):
        """Yield what is wrong with a preemption."""
        why, admission = condition(v.new, PREEMPTED), v.new["status"].get("admission") or {}
        winner = self._workloads.get(preemptor_of(v.new))
        loser = self.queues.get(admission.get("clusterQueue"))
        if winner is None or loser is None:
            yield f"for nothing that is known: {why['message'][:120]}"
            return
        queue, reason = self.queues.get(winner["spec"].get("queueName")), why["reason"]
        if queue is None or max(queue.changed_at, loser.changed_at) > v.at - LATE_SECONDS:
            return
        rights = self._rights("withinClusterQueue" if reason == WITHIN else "reclaimWithinCohort",
                              queue, v.at)  # fmt: skip
        if (queue is loser) != (reason == WITHIN):
            yield f"by {reason}, and its queue is {loser.name}, the other's {queue.name}"
        if not any(self._outranks(winner, v, right) for right in rights):
            yield f"by {winner['metadata']['name']}, by no right of {rights}"
        held = self._lately(self._held[loser.name], v.at, MOMENT_SECONDS, later=MOMENT_SECONDS)
        theirs = max(held) - loser.nominal
        if queue is not loser and theirs <= 0:
            yield f"though {loser.name} borrows nothing"
        for text in self._objections_to_shares(v, winner, queue, loser, theirs):
            yield f"by {winner['metadata']['name']}, {text}"

    def _objections_to_shares(self, v, winner, queue, loser, theirs):
        """Yield what is wrong by what both queues borrow; with partial admission it may be less."""
        if any("minCount" in each for each in winner["spec"]["podSets"]):
            return
        reason = condition(v.new, PREEMPTED)["reason"]
        ours = max(0, self._least_borrowed(winner, queue, v.at))
        lower = queue.cohort != loser.cohort or ours / queue.weight < theirs / loser.weight
        if reason == "InCohortFairSharing" and not (self._fair and lower):
            yield "whose share is not lower"
        if reason == "InCohortReclamation" and self._fair and ours:
            yield "which has to borrow itself"

    def _rights(self, kind, queue, at):
        recent = self._lately(self.policies[queue.name], at, LATE_SECONDS)
        return sorted({each.get(kind, "Never") for each in recent})

    def _lately(self, changes, at, seconds, *, later=0.0):
        """Return what something was in the last seconds before a moment, and somewhat later."""
        before = [value for when, value in changes if when < at - seconds][-1:]
        found = [value for when, value in changes if at - seconds <= when <= at + later]
        return before + found or [0]

    def _outranks(self, winner, v, right):
        """Tell whether a policy lets one workload preempt another, by any priorities of lately."""
        theirs, ours = (
            self._lately(self._priorities[each["metadata"]["uid"]], v.at, LATE_SECONDS)
            for each in (v.last, winner)
        )
        lower, equal = max(ours) > min(theirs), bool({*ours} & {*theirs})
        newer = right == OLDER and equal and queued(v.old) > queued(winner)
        return right == "Any" or (right != "Never" and (lower or newer))

    def _least_borrowed(self, winner, queue, at):
        """Return how much a queue would borrow at least with a workload, without evicted ones."""
        leaving = sum(
            held_gpus(each)[queue.name]
            for each in self._workloads.values() if is_true(each, EVICTED)
        )  # fmt: skip
        held = min(self._lately(self._held[queue.name], at, MOMENT_SECONDS))
        return held + requested(winner) - leaving - queue.nominal

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
    """A workload is preempted by a right that its queue and that of the preemptor give."""
    court = Court(world)
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
        self._workloads, self._priorities, self._used = {}, defaultdict(list), defaultdict(list)

    def note(self, v):
        """Take a write of a workload."""
        uid = v.last["metadata"]["uid"]
        self._workloads[uid] = v.last
        self._priorities[uid].append((v.at, v.last["spec"].get("priority", 0)))
        for name, queue in self.queues.items():
            if queue.note(v):
                self._used[name].append((v.at, queue.borrowed(0)))

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
        borrows = max(self._lately(self._used[loser.name], v.at, MOMENT_SECONDS))
        if queue is not loser and borrows <= 0:
            yield f"though {loser.name} borrows nothing"
        if reason == "InCohortFairSharing" and not self._has_lower_share(winner, queue, loser):
            yield f"by {winner['metadata']['name']}, whose share is not lower"

    def _rights(self, kind, queue, at):
        recent = self._lately(self.policies[queue.name], at, LATE_SECONDS)
        return sorted({each.get(kind, "Never") for each in recent})

    def _lately(self, changes, at, seconds):
        """Return what something was in the last seconds before a moment."""
        before = [value for when, value in changes if when < at - seconds][-1:]
        return before + [value for when, value in changes if when >= at - seconds] or [0]

    def _outranks(self, winner, v, right):
        """Tell whether a policy lets one workload preempt another, by any priorities of lately."""
        theirs, ours = (
            self._lately(self._priorities[each["metadata"]["uid"]], v.at, LATE_SECONDS)
            for each in (v.last, winner)
        )
        lower, equal = max(ours) > min(theirs), bool({*ours} & {*theirs})
        newer = right == OLDER and equal and queued(v.old) > queued(winner)
        return right == "Any" or (right != "Never" and (lower or newer))

    def _has_lower_share(self, winner, queue, loser):
        """Tell whether one queue would borrow less than another does, with the preemptor."""
        alike = queue.cohort == loser.cohort and self._fair
        if not alike or any("minCount" in each for each in winner["spec"]["podSets"]):
            return self._fair
        leaving = sum(
            held_gpus(each)[queue.name]
            for each in self._workloads.values() if is_true(each, EVICTED)
        )  # fmt: skip
        ours = queue.borrowed(requested(winner) - leaving)
        return max(0, ours) / queue.weight < loser.borrowed(0) / loser.weight

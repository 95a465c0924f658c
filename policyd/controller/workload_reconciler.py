"""The way of a Workload: from its watch event to the patch that admits it, in six steps.

Steps 1 and 2 are taken at each event, 3 and 4 in the scheduling loop, which decides about all
Workloads, 5 and 6 by the worker that has the Workload's key, so that no other worker writes to it
meanwhile.
"""

from collections.abc import Callable
from typing import NoReturn

from policyd.alloc.plan import Action, Admit, Evict, Preempt, Requeue
from policyd.api.kueue import Workload
from policyd.controller.cycle_loop import GATHER_SECONDS, CycleLoop
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.retention import NO_LIMITS, TimeLimits
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.workload_writes import WorkloadWrites
from policyd.controller.writes import Writes
from policyd.kube.changes import Change

AT_ONCE = 0.0


class WorkloadReconciler:
    """Takes Workloads from their watch events to the patches that admit them.

    Attributes:
        cycles: Decides about all Workloads.
        writes: Writes the decision about one of them, and other changes of its status.
    """

    def __init__(
        self,
        cache: Cache,
        writes: Writes,
        *,
        add: Callable[[ReconcileKey, float | None], None],
        metrics: ControllerMetrics,
        limits: TimeLimits = NO_LIMITS,
    ) -> None:
        self._cache = cache
        self._add = add
        self.cycles = CycleLoop(cache, metrics=metrics, pace=writes.pace)
        self.writes = WorkloadWrites(cache, writes, metrics=metrics, limits=limits)

    def changed(self, change: Change[Workload]) -> None:
        """Take in a change of a Workload, be it of a watch event or of a write of our own."""
        # 1. Keep the state that cycles decide on equal to the Workload. This wakes the loop.
        keys = self._cache.take(change)
        # 2. Queue the keys of the Workload, of its job, and of the objects that the job made.
        for key in keys:
            self._add(key, None)

    async def run(self) -> NoReturn:
        """Decide about Workloads whenever something changed, until cancelled."""
        self._cache.state.extension.gather_seconds = GATHER_SECONDS
        while True:
            # 3. Decide: run cycles, one after the other, as long as they decide something.
            more = self.cycles.burst()
            # 4. Queue the key of each Workload that was decided about, by priority.
            for key, rank in self.cycles.hand_over():
                self._add(key, rank)
            await self.cycles.rest(more=more)

    async def reconcile(self, key: ReconcileKey) -> float | None:
        """Do the next step. Returns the seconds until something else will be.

        Raises:
            ApiError: If a write did not succeed, or it is not known whether it did.
        """
        held = await self.writes.find_out(key.path)
        # 5. Take over the decision, unless the Workload requests something else by now.
        action = self.cycles.take(key.path)
        workload = self._cache.mirrors.workloads.get(key.path)
        if workload is None:
            self.writes.forget(key.path, action)
            return held
        if action is None or action.workload.uid != workload.metadata.uid:
            left = await self.writes.follow(workload)
        else:
            left = await self._carry_out(workload, action)
        return left if held is None else min(held, held if left is None else left)

    async def _carry_out(self, workload: Workload, action: Action) -> float:
        self.writes.reasons.overtaken(workload.metadata.key)
        # 6. Patch the status: an admission with flavors, quota and places is one write.
        match action:
            case Admit():
                await self.writes.admit(workload, action)
            case Preempt():
                await self.writes.preempt(workload, action)
            case Evict():
                await self.writes.evict(workload, action)
            case Requeue():
                await self.writes.requeue(workload, action)
        # Nothing is written if it was evicted meanwhile, say; other changes are due all the same,
        # such as that its job was deleted. What is written queues the key anyway.
        return AT_ONCE

    def drop(self) -> None:
        """Drop unwritten decisions: this process no longer leads."""
        self.cycles.drop()
        self.writes.drop()

"""The deletions of a pass: what policies delete when their schedules are due."""

from collections.abc import Callable
from dataclasses import dataclass, field

from policyd.api.meta import Json
from policyd.cli.background.bounds import LeftOutError, PassOptions, WriteBudget
from policyd.cli.background.policies import (
    MatchedObjects,
    ReadPolicy,
    request_of,
)
from policyd.cli.background.reads import ReadsOnDemand, created_at, moment
from policyd.cli.background.writes import LeadershipLostError, PassLine, PassWrites
from policyd.engine.background.evaluation import decide_deletion
from policyd.engine.background.record import name_of
from policyd.engine.model.background import BackgroundPolicy, Deletion
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.workloads import value_at
from policyd.kube.errors import ApiError, ConflictError, NotFoundError
from policyd.kube.resources import Resource


@dataclass(slots=True)
class ScheduledDeletions:
    """Deletes what is due, a bounded number of objects in each pass."""

    options: PassOptions
    writes: PassWrites
    matched: MatchedObjects
    context: PolicyContext
    reads: ReadsOnDemand
    note: Callable[[PassLine], None]
    terminating: frozenset[str]
    now: float
    executed: set[str] = field(default_factory=set)
    """Ids of the policies whose run is complete."""
    _budget: WriteBudget = field(init=False)

    def __post_init__(self) -> None:
        self._budget = WriteBudget(self.options.most_deletes)

    async def carry_out(self, read: ReadPolicy, policy: BackgroundPolicy, action: Deletion) -> None:
        """Delete what a policy says, if it is due; its status says when it was."""
        last = value_at(read.value, ("status", "lastExecutionTime"))
        due = action.due(moment(last) or created_at(read.value))
        if due is None or due > self.now:
            return
        finished = True
        try:
            async for resource, obj in self.matched.of(policy):
                done = await self._decide(read, policy, action, resource, obj)
                finished = finished and done
        except LeftOutError as error:
            self.note(PassLine("policy", read.id, str(error), failed=True))
            return
        if finished and read.percent:
            self.executed.add(read.id)

    async def _decide(
        self,
        read: ReadPolicy,
        policy: BackgroundPolicy,
        action: Deletion,
        resource: Resource,
        obj: Json,
    ) -> bool:
        """Delete an object if the policy says so; return whether that is done."""
        name = name_of(obj)
        if value_at(obj, ("metadata", "deletionTimestamp")) is not None:
            return True
        if name.namespace in self.terminating:
            return True
        request = request_of(obj, resource)
        result = await self.reads.settled(lambda: decide_deletion(policy, request, self.context))
        if result.outcome == "failed":
            self._report(read, obj, f"kept: {result.error}", failed=True)
        if result.outcome != "matched":
            return True
        if resource not in self.options.deletes:
            where = f"{resource.api_version}/{resource.plural}"
            raise LeftOutError(f"deletes {where}, which --deletes does not list")
        why = f"due by `{action.schedule}`"
        if not self.options.act or not read.acts_on(name):
            self._report(read, obj, f"would delete: {why}")
            return True
        return await self._delete(read, action, resource, obj, why)

    async def _delete(
        self, read: ReadPolicy, action: Deletion, resource: Resource, obj: Json, why: str
    ) -> bool:
        """Delete an object that is due; return whether that is done."""
        if not self._budget.take(name_of(obj).namespace):
            return False
        try:
            await self.writes.delete(resource, obj, read.id, why, action.propagation)
        except LeadershipLostError:
            raise
        except (ConflictError, NotFoundError):
            self._report(read, obj, "it has changed meanwhile: left to the next pass")
            return False
        except ApiError as error:
            # It is tried again when the schedule is due again.
            self._report(read, obj, f"delete failed: {error}", failed=True)
            return True
        self._report(read, obj, f"deleted: {why}", written="delete")
        return True

    def _report(
        self, read: ReadPolicy, obj: Json, done: str, *, failed: bool = False, written: str = ""
    ) -> None:
        self.note(PassLine(str(name_of(obj)), read.id, done, failed=failed, written=written))

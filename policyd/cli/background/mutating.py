"""The mutations of a pass: what policies change in objects that exist.

The triggers of all policies are found first. Then each object that may be a target is read once,
and all that mutate it are asked together.
"""

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from policyd.api.admission import AdmissionRequest
from policyd.api.meta import Json
from policyd.cli.background.bounds import (
    FEW,
    MOST_WRITES,
    LeftOutError,
    PassOptions,
    Room,
    WriteBudget,
)
from policyd.cli.background.policies import (
    MatchedObjects,
    ReadPolicy,
    one_by_one,
    request_of,
    requests_of,
)
from policyd.cli.background.reads import ReadsOnDemand
from policyd.cli.background.writes import LeadershipLostError, PassLine, PassWrites
from policyd.engine.background.existing import (
    MutatedTarget,
    Trigger,
    find_trigger,
    mutate_existing,
)
from policyd.engine.background.record import ObjectName, name_of
from policyd.engine.model.background import BackgroundPolicy, ExistingMutation
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.workloads import value_at
from policyd.kube.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from policyd.kube.resources import Resource

MOST_FOR_ALL: Final = 100
"""Triggers of a policy whose constraints name its targets: each is asked about each target."""

MOST_ASKED: Final = 50_000
"""Questions about targets in one pass: of each trigger that may concern it."""

MOST_REPEATED: Final = 10
"""Writes of one object within `REPEATED_SECONDS`."""

REPEATED_SECONDS: Final = 600.0

_SHOWN: Final = 3
"""Paths that a line names, and failures of a policy in a pass."""


class RepeatedWrites:
    """Remembers how often objects were written: what others undo each time is left alone."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}

    def fault(self, uid: str, now: float) -> str:
        """Return why an object is not to be written again; empty if it may be."""
        times = self._times.get(uid)
        while times and times[0] <= now - REPEATED_SECONDS:
            times.popleft()
        if times is not None and not times:
            del self._times[uid]
        if len(times or ()) < MOST_REPEATED:
            return ""
        minutes = REPEATED_SECONDS / 60
        return (
            f"left alone: it was mutated {MOST_REPEATED} times in {minutes:.0f} minutes,"
            " and something undoes it, or changes it in turn"
        )

    def note(self, uid: str, now: float) -> None:
        """Take a write."""
        self._times.setdefault(uid, deque()).append(now)


class _Change(NamedTuple):
    """A policy that may mutate objects, with one of its triggers."""

    read: ReadPolicy
    trigger: Trigger


@dataclass(slots=True)
class ExistingMutations:
    """Mutates what policies say, a bounded number of objects in each pass."""

    options: PassOptions
    writes: PassWrites
    matched: MatchedObjects
    context: PolicyContext
    reads: ReadsOnDemand
    note: Callable[[PassLine], None]
    terminating: frozenset[str]
    repeats: RepeatedWrites
    now: float
    _changes: dict[Resource, list[_Change]] = field(default_factory=dict)
    _named: dict[Resource, dict[ObjectName, list[_Change]]] = field(default_factory=dict)
    _failures: Counter[str] = field(default_factory=Counter)
    _asked: int = 0
    _budget: WriteBudget = field(default_factory=lambda: WriteBudget(MOST_WRITES))
    _beyond: int = 0

    async def carry_out(self, policies: Sequence[ReadPolicy]) -> None:
        """Mutate the targets of policies, all together."""
        for read in policies:
            policy = read.policy
            if policy is not None and isinstance(policy.action, ExistingMutation):
                try:
                    await self._find(read, policy, policy.action)
                except LeftOutError as error:
                    self._fail(read.id, "policy", str(error))
        for resource in dict.fromkeys([*self._changes, *self._named]):
            try:
                async for obj in self._targets(resource):
                    await self._decide(resource, obj)
            except LeftOutError as error:
                self.note(PassLine(resource.plural, "", str(error), failed=True))
        if self._beyond:
            line = f"{self._beyond:,} objects are left to the next pass"
            self.note(PassLine("mutations", "", line))

    async def _find(
        self, read: ReadPolicy, policy: BackgroundPolicy, action: ExistingMutation
    ) -> None:
        """Find the triggers of a policy, and note where its targets are."""
        targets: list[Resource] = []
        if action.named is None:
            targets = await self.matched.resources(policy, action.targets.constraints)
            self._check_listed(targets)
        triggers = [Trigger(policy)]
        if action.triggered:
            triggers = await self._triggers(read, policy)
        if action.named is None and len(triggers) > MOST_FOR_ALL:
            raise LeftOutError(
                f"left out: {len(triggers):,} triggers for the same targets; at most"
                f" {MOST_FOR_ALL} may be, or name the targets by `expression`"
            )
        for each in triggers:
            change = _Change(read, each)
            for resource in targets:
                self._changes.setdefault(resource, []).append(change)
            for name in each.targets or ():
                self._note_named(name, change)

    def _check_listed(self, targets: Sequence[Resource]) -> None:
        for each in targets:
            if each not in self.options.mutates:
                where = f"{each.api_version}/{each.plural}"
                raise LeftOutError(f"mutates {where}, which --mutates does not list")

    async def _triggers(self, read: ReadPolicy, policy: BackgroundPolicy) -> list[Trigger]:
        found: list[Trigger] = []
        room = Room("has more than", "triggers")
        async for resource, obj in self.matched.of(policy):
            if value_at(obj, ("metadata", "deletionTimestamp")) is not None:
                continue
            requests = requests_of(obj, resource, policy)
            sought = await self.reads.settled(partial(find_trigger, policy, requests, self.context))
            name = name_of(obj)
            fault = sought.error
            if sought.trigger is not None:
                fault = room.fault(name.namespace, [obj])
                found += [] if fault else [sought.trigger]
            if fault:
                self._fail(read.id, str(name), f"is no trigger: {fault}")
        return found

    def _note_named(self, name: ObjectName, change: _Change) -> None:
        """Note a target that an expression names."""
        resource = self.options.mutated(name.api_version, name.kind)
        if resource is None:
            what = f"{name.kind} of {name.api_version}"
            self._fail(change.read.id, str(name), f"{what} is not listed by --mutates")
            return
        own = change.trigger.policy.policy.namespace
        if own and name.namespace != own:
            why = f"a policy of namespace `{own}` mutates nothing elsewhere"
            self._fail(change.read.id, str(name), why)
            return
        self._named.setdefault(resource, {}).setdefault(name, []).append(change)

    def _targets(self, resource: Resource) -> AsyncIterator[Json]:
        """Return the objects that may be targets."""
        named = self._named.get(resource, {})
        if resource in self._changes or len(named) > FEW:
            return self.matched.all(resource)
        return one_by_one(self.matched.client, resource, named)

    async def _decide(self, resource: Resource, obj: Json) -> None:
        """Mutate an object if a policy says so."""
        name = name_of(obj)
        if (
            value_at(obj, ("metadata", "deletionTimestamp")) is not None
            or name.namespace in self.terminating
        ):
            return
        changes = [
            *self._changes.get(resource, ()),
            *self._named.get(resource, {}).get(name, ()),
        ]
        own = [c for c in changes if c.trigger.policy.policy.namespace in ("", name.namespace)]
        if not own:
            return
        self._asked += len(own)
        if self._asked > MOST_ASKED:
            raise LeftOutError(f"left out: more than {MOST_ASKED:,} questions about targets")
        request = request_of(obj, resource)
        if self.options.act:
            acting = [each for each in own if each.read.acts_on(name)]
            if acting and await self._mutate(resource, obj, request, acting):
                return
            own = [each for each in own if each not in acting]
        result = await self._asked_about(request, own)
        self._report_faults(name, result)
        if result.changed:
            self._report(obj, result, f"would mutate {_paths(result.changed)}")

    async def _asked_about(
        self, request: AdmissionRequest, changes: Sequence[_Change]
    ) -> MutatedTarget:
        triggers = [each.trigger for each in changes]
        return await self.reads.settled(lambda: mutate_existing(request, triggers, self.context))

    async def _mutate(
        self, resource: Resource, obj: Json, request: AdmissionRequest, changes: Sequence[_Change]
    ) -> bool:
        """Write an object as policies mutate it; return whether anything was to be written."""
        result = await self._asked_about(request, changes)
        name, uid = name_of(obj), str(value_at(obj, ("metadata", "uid")))
        self._report_faults(name, result)
        if not result.changed:
            return False
        fault = self.repeats.fault(uid, self.now)
        if fault:
            self._report(obj, result, fault, failed=True)
            return True
        if not self._budget.take(name.namespace):
            self._beyond += 1
            return True
        self.repeats.note(uid, self.now)
        what = f"mutated {_paths(result.changed)}"
        try:
            await self.writes.mutate(resource, obj, result.object, result.policies, what)
        except LeadershipLostError:
            raise
        except (ConflictError, NotFoundError, UnreachableError) as error:
            self._report(obj, result, f"left to the next pass: {error}")
        except ApiError as error:
            self._report(obj, result, f"mutation failed: {error}", failed=True)
        else:
            self._report(obj, result, what, written="mutate")
        return True

    def _report_faults(self, name: ObjectName, result: MutatedTarget) -> None:
        for policy, reason in result.faults:
            self._fail(policy, str(name), f"not mutated: {reason}")

    def _fail(self, policy: str, what: str, why: str) -> None:
        self._failures[policy] += 1
        if self._failures[policy] <= _SHOWN:  # the first ones stand for all
            self.note(PassLine(what, policy, why, failed=True))

    def _report(
        self,
        obj: Json,
        result: MutatedTarget,
        done: str,
        *,
        failed: bool = False,
        written: str = "",
    ) -> None:
        names = ", ".join(result.policies)
        self.note(PassLine(str(name_of(obj)), names, done, failed=failed, written=written))


def _paths(changed: Sequence[str]) -> str:
    """Name the first of the paths that differ."""
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return ", ".join(each[:200] for each in changed[:_SHOWN]) + more

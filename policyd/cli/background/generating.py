"""What the policies of a pass generate: for triggers that exist, and for some that are gone."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from policyd.api.admission import AdmissionRequest
from policyd.api.meta import Json
from policyd.cli.background.bounds import LeftOutError, PassOptions, Room
from policyd.cli.background.deletions import NoticedDeletion
from policyd.cli.background.policies import (
    MatchedObjects,
    ReadPolicy,
    deletion_of,
    requests_of,
    triggered_by_deletion,
)
from policyd.cli.background.reads import ReadsOnDemand, created_at
from policyd.cli.background.writes import PassLine
from policyd.engine.background.evaluation import Acted, generate
from policyd.engine.background.plan import Wanted, labelled
from policyd.engine.background.record import Record, name_of
from policyd.engine.model.background import BackgroundPolicy, Generation
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.workloads import value_at

_SHOWN = 3
"""Failures of a policy in a pass that are shown: the first ones stand for all."""


@dataclass(slots=True)
class WantedObjects:
    """Collects what policies generate.

    Attributes:
        options: What the pass may do.
        matched: Finds triggers.
        context: What expressions may read.
        reads: The objects that they read.
        deletions: Triggers that are gone, and that no pass has acted on.
        record: What was generated.
        note: Takes lines about what failed.
        wanted: What policies generate.
        undecided: Ids of policies that could not be evaluated for all triggers.
        undecided_triggers: Ids of policies, each with the uid of a trigger for which it failed.
        outlived: Of policies whose objects outlive their triggers, the uids of those that exist.
    """

    options: PassOptions
    matched: MatchedObjects
    context: PolicyContext
    reads: ReadsOnDemand
    deletions: Sequence[NoticedDeletion]
    record: Record
    note: Callable[[PassLine], None]
    wanted: list[Wanted] = field(default_factory=list)
    undecided: set[str] = field(default_factory=set)
    undecided_triggers: set[tuple[str, str]] = field(default_factory=set)
    outlived: dict[str, set[str]] = field(default_factory=dict)
    _failures: Counter[str] = field(default_factory=Counter)

    async def collect(self, policies: Iterable[ReadPolicy]) -> None:
        """Collect what policies generate."""
        for read in policies:
            policy = read.policy
            if policy is not None and isinstance(policy.action, Generation):
                before = len(self.wanted)
                try:
                    await self._collect(read, policy, policy.action)
                except LeftOutError as error:
                    del self.wanted[before:]
                    self.undecided.add(read.id)
                    self.note(PassLine("policy", read.id, str(error), failed=True))

    async def _collect(
        self, read: ReadPolicy, policy: BackgroundPolicy, action: Generation
    ) -> None:
        room = Room("generates", "objects")
        existing: set[str] = set()
        async for resource, obj in self.matched.of(policy):
            if value_at(obj, ("metadata", "deletionTimestamp")) is None:
                existing.add(_uid_of(obj))
                if action.existing or created_at(obj) >= created_at(read.value):
                    requests = requests_of(obj, resource, policy)[::-1]
                    await self._add(read, policy, obj, requests, room)
        if triggered_by_deletion(policy):
            self.outlived[read.id] = existing
            for entry in self.record.values():
                if entry.policy == read.id and entry.trigger_uid not in existing:
                    room.hold(entry.trigger_namespace)
            await self._add_for_deletions(read, policy, room)

    async def _add_for_deletions(
        self, read: ReadPolicy, policy: BackgroundPolicy, room: Room
    ) -> None:
        resources = await self.matched.resources(policy)
        for gone in self.deletions:
            place = name_of(gone.object).namespace
            if (
                gone.resource in resources
                and policy.policy.namespace in {"", place}
                and gone.at >= created_at(read.value)
            ):
                request = deletion_of(gone.object, gone.resource)
                await self._add(read, policy, gone.object, [request], room)

    async def _add(
        self,
        read: ReadPolicy,
        policy: BackgroundPolicy,
        obj: Json,
        requests: Sequence[AdmissionRequest],
        room: Room,
    ) -> None:
        """Add what a policy generates for a trigger: for the first of its requests that matches."""
        action = policy.action
        assert isinstance(action, Generation), "the caller chooses by the action"
        made = await self._generated(policy, requests)
        name = name_of(obj)
        others = made.others if action.synchronize else None
        objects = made.objects if others is None else others
        fault = self._fault(objects) or room.fault(name.namespace, objects)
        if fault or (made.outcome == "failed" and others is None):
            self.undecided_triggers.add((read.id, _uid_of(obj)))
        else:
            # If a source is gone, what was generated from others stays, and the rest ends.
            flags = {"synchronize": action.synchronize, "orphan": action.orphan}
            wanted = [labelled(each, read.id, obj, **flags) for each in objects]
            self.wanted += (replace(each, created=others is None) for each in wanted)
        fault = made.error or fault
        self._failures[read.id] += bool(fault)
        if fault and self._failures[read.id] <= _SHOWN:
            self.note(PassLine("policy", read.id, f"failed for {name}: {fault}", failed=True))

    async def _generated(
        self, policy: BackgroundPolicy, requests: Sequence[AdmissionRequest]
    ) -> Acted:
        def is_namespaced(api_version: str, kind: str) -> bool | None:
            found = self.options.generated(api_version, kind)
            return None if found is None else found.namespaced

        made = Acted("unmatched")
        for request in requests:
            if made.outcome in {"unmatched", "excluded"}:
                ask = partial(generate, policy, request, self.context, is_namespaced)
                made = await self.reads.settled(ask)
        return made

    def _fault(self, objects: Iterable[Json]) -> str:
        """Return why generated objects cannot be written; empty if they can."""
        for each in objects:
            name = name_of(each)
            resource = self.options.generated(name.api_version, name.kind)
            if resource is None:
                what = f"{name.kind} of {name.api_version}"
                return f"generates {what}, which --generates does not list"
            if resource.namespaced and not name.namespace:
                return f"generates {name} without a namespace"
            for part in ("labels", "annotations"):
                if not isinstance(each["metadata"].get(part) or {}, dict):
                    return f"generates {name} with {part} that are not a map"
            if {name.name, name.namespace} & {".", ".."}:
                return f"generates {name}, which is not a valid name"
        return ""


def _uid_of(obj: Json) -> str:
    return str(value_at(obj, ("metadata", "uid")))

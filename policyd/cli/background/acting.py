"""One pass of `policyd background`: reads policies and objects, and writes what they say.

Objects are read anew in each pass: whatever changed in the meantime is seen, and what a pass did
not finish is done by the next. Only the record of generated objects lasts. It is stored before
objects are created, with their names, and afterwards, with their uids.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from policyd.api.meta import Json
from policyd.cli.background.bounds import (
    FEW,
    MOST_WRITES,
    LeftOutError,
    PassOptions,
)
from policyd.cli.background.deleting import ScheduledDeletions
from policyd.cli.background.deletions import NoticedDeletion, NoticedDeletions
from policyd.cli.background.generating import WantedObjects
from policyd.cli.background.mutating import ExistingMutations, RepeatedWrites
from policyd.cli.background.policies import (
    MatchedObjects,
    PolicyReader,
    ReadPolicy,
    objects_of,
    one_by_one,
    triggered_by_deletion,
)
from policyd.cli.background.reads import (
    MOST_ENTRIES,
    NoCalls,
    ReadsOnDemand,
    served_kinds,
)
from policyd.cli.background.statuses import AccountRights, BackgroundStatuses
from policyd.cli.background.writes import LeadershipLostError, PassLine, PassWrites, StoredRecord
from policyd.dialects.kyverno.cluster_policies import GROUP as OLDER_GROUP
from policyd.dialects.kyverno.entries import KIND as ENTRY
from policyd.dialects.kyverno.entries import Entries
from policyd.dialects.kyverno.environments import kyverno_values
from policyd.dialects.kyverno.load import VERSIONS
from policyd.engine.background.plan import (
    GenerationStep,
    KnownPolicies,
    plan,
    state_of,
)
from policyd.engine.background.record import ObjectName, RecordFullError, name_of
from policyd.engine.model.background import BackgroundPolicy, Deletion
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.requests import namespace_lookup
from policyd.kube.client import Client
from policyd.kube.errors import (
    ApiError,
    ConflictError,
    NotFoundError,
    UnreachableError,
)
from policyd.kube.resources import NAMESPACES, Resource
from policyd.questions.queue_objects import listed

SEEN_EVERY: Final = 10.0
"""Seconds after which the record says how far deletions were seen. The API server keeps the history
of 75 seconds at least, of which another process needs some to become the leader."""


class Passed(NamedTuple):
    """What a pass leaves.

    Attributes:
        watched: The resources whose changes ask for another pass.
        noticed: Those of them whose deletions policies act on.
        recorded: Generated objects in the record.
        failed: Whether something failed.
    """

    watched: frozenset[Resource]
    noticed: frozenset[Resource]
    recorded: int
    failed: bool


@dataclass(slots=True)
class BackgroundPass:
    """Carries out one pass."""

    client: Client
    options: PassOptions
    reader: PolicyReader
    rights: AccountRights
    note: Callable[[PassLine], None]
    now: float
    repeats: RepeatedWrites
    deletions: NoticedDeletions
    _failed: bool = False
    _undecided: set[str] = field(default_factory=set)
    _late: set[str] = field(default_factory=set)
    """Uids of triggers for which something was not done."""
    _terminating: frozenset[str] = frozenset()

    async def run(self) -> Passed:
        """Generate, synchronise, mutate and delete.

        Raises:
            ApiError: If something cannot be read: nothing is written then.
            RecordDamagedError: If the record cannot be understood: likewise.
        """
        policies = await self.reader.read()
        record = StoredRecord(self.client, self.options.place)
        await record.read()
        self.deletions.resume(record.seen)
        reads = ReadsOnDemand(self.client, self.options.reads)
        gone = self._gone(policies)
        context = await self._context(reads, policies, gone)
        matched = MatchedObjects(self.client)
        usable = [each for each in policies if self._is_usable(each)]
        generating = WantedObjects(
            self.options, matched, context, reads, gone, record.entries, self._noted
        )
        await generating.collect(usable)
        wanted = generating.wanted
        self._late = {uid for _, uid in generating.undecided_triggers}
        steps = plan(
            wanted,
            await self._existing({each.name for each in wanted} | record.entries.keys()),
            record.entries,
            KnownPolicies(
                ids={each.id for each in policies},
                kinds={each.kind for each in self.reader.kinds},
                undecided=self._undecided | generating.undecided,
                triggers=generating.undecided_triggers,
                outlived=generating.outlived,
            ),
        )
        writes = PassWrites(self.client, leading=self.options.leading, now=self.now)
        await self._carry_out(list(steps), record, writes, {each.id: each for each in policies})
        self.deletions.forget(gone, self._late)
        await ExistingMutations(
            self.options,
            writes,
            matched,
            context,
            reads,
            self._noted,
            self._terminating,
            self.repeats,
            self.now,
        ).carry_out(usable)
        deletions = ScheduledDeletions(
            self.options,
            writes,
            matched,
            context,
            reads,
            self._noted,
            self._terminating,
            self.now,
        )
        for each in usable:
            if isinstance(each.policy, BackgroundPolicy) and isinstance(
                each.policy.action, Deletion
            ):
                await deletions.carry_out(each, each.policy, each.policy.action)
        watched, noticed = await self._watched(usable, matched)
        if self.options.act:
            await self._save_seen(record, noticed, acted=bool(gone))
            statuses = BackgroundStatuses(self.client, self.rights, matched, self.options)
            await statuses.write(policies, deletions.executed, now=self.now)
        return Passed(watched, noticed, len(record.entries), self._failed)

    async def _save_seen(
        self, record: StoredRecord, noticed: Iterable[Resource], *, acted: bool
    ) -> None:
        """Store how far deletions have been acted on, if any was, or now and then."""
        seen, before = self.deletions.acted_on(noticed), record.seen
        newest, stored = (
            max((at for _, at in each.values()), default=0.0) for each in (seen, before)
        )
        if acted or seen.keys() != before.keys() or newest > stored + SEEN_EVERY:
            record.seen = seen
            if self.options.leading():
                await record.save()

    def _noted(self, line: PassLine) -> None:
        self._failed = self._failed or line.failed
        self.note(line)

    def _is_usable(self, read: ReadPolicy) -> bool:
        if read.policy is None:
            self._undecided.add(read.id)
            if read.fault:
                self._noted(PassLine("policy", read.id, read.fault, failed=not read.valid))
        return read.policy is not None

    def _gone(self, policies: Iterable[ReadPolicy]) -> list[NoticedDeletion]:
        """Return the deletions that policies act on, and say which were or are not seen."""
        for each in () if self.deletions.watching else policies:
            if each.policy is not None and triggered_by_deletion(each.policy):
                self._noted(PassLine("policy", each.id, "acts on deletions with --watch only"))
        lost = [f"{self.deletions.lost:,} that were too many"] if self.deletions.lost else []
        for which in (*lost, *self.deletions.unseen):
            done = f"nothing is generated for {which}"
            self._noted(PassLine("deletions", "", done, failed=True))
        self.deletions.lost, self.deletions.unseen = 0, []
        return self.deletions.pending()

    async def _context(
        self,
        reads: ReadsOnDemand,
        policies: Iterable[ReadPolicy],
        gone: Iterable[NoticedDeletion],
    ) -> PolicyContext:
        existing = await listed(self.client, NAMESPACES)
        last = [each.object for each in gone if each.resource == NAMESPACES]
        found = {name_of(each).name: each for each in (*last, *existing)}
        self._terminating = frozenset(
            name
            for name, each in found.items()
            if value_at(each, ("metadata", "deletionTimestamp")) is not None
        )
        find = namespace_lookup(found.values(), {})
        return PolicyContext(
            namespaces=lambda name: find(name) if name in found else None,
            now=lambda: self.now,
            extra=kyverno_values(
                resources=reads, global_context=await self._entries(reads, policies)
            ),
        )

    async def _entries(
        self, reads: ReadsOnDemand, policies: Iterable[ReadPolicy]
    ) -> Entries | None:
        """Return the GlobalContextEntries of the cluster, if a policy reads any."""
        used = (each.policy.policy.uses for each in policies if each.policy is not None)
        if not any("globalContext" in names for names in used):
            return None
        kinds = await served_kinds(self.client, OLDER_GROUP, VERSIONS[OLDER_GROUP], {ENTRY})
        found: list[Json] = []
        for each in kinds:
            async for value in objects_of(self.client, each):
                found.append(value)
                if len(found) >= MOST_ENTRIES:
                    break
        return Entries(found, reads, NoCalls())

    async def _existing(self, names: Iterable[ObjectName]) -> dict[ObjectName, Json]:
        """Return the objects that exist under some names."""
        by_resource: dict[Resource, set[ObjectName]] = {}
        for each in names:
            resource = self._resource_of(each)
            if resource is not None:
                by_resource.setdefault(resource, set()).add(each)
        found: dict[ObjectName, Json] = {}
        for resource, few in by_resource.items():
            read = (
                one_by_one(self.client, resource, few)
                if len(few) <= FEW
                else objects_of(self.client, resource)
            )
            async for obj in read:
                if name_of(obj) in few:
                    found[name_of(obj)] = obj
        return found

    def _resource_of(self, name: ObjectName) -> Resource | None:
        return self.options.generated(name.api_version, name.kind)

    async def _carry_out(
        self,
        steps: Sequence[GenerationStep],
        record: StoredRecord,
        writes: PassWrites,
        policies: Mapping[str, ReadPolicy],
    ) -> None:
        chosen = [each for each in _in_turn(steps) if self._is_due(each, policies)]
        if not self.options.act:
            return
        written = [each for each in chosen if each.kind in {"create", "update", "delete"}]
        for each in written[MOST_WRITES:]:
            self._leave(each, "left to the next pass")
        written = await self._intended(chosen, written[:MOST_WRITES], record)
        try:
            for each in written:
                await self._take(each, record, writes)
        finally:
            if self.options.leading():
                await record.save()

    async def _intended(
        self,
        chosen: Sequence[GenerationStep],
        written: list[GenerationStep],
        record: StoredRecord,
    ) -> list[GenerationStep]:
        """Record the names of what is created; return what is written, as far as there is room."""
        for each in chosen:
            if each.kind == "forget":
                record.entries.pop(each.name, None)
            elif each.kind == "record" and each.entry is not None:
                record.entries[each.name] = each.entry
        created = [each for each in written if each.kind == "create" and each.entry is not None]
        record.entries.update((each.name, each.entry) for each in created if each.entry)
        try:
            await record.save()
        except RecordFullError as error:
            for each in created:
                record.entries.pop(each.name, None)
                self._leave(each, f"not generated: {error}", failed=True)
            await record.save()
            return [each for each in written if each.kind != "create"]
        return written

    def _is_due(self, step: GenerationStep, policies: Mapping[str, ReadPolicy]) -> bool:
        """Tell whether a step is taken now; if not, say why."""
        if step.kind == "conflict":
            self._note(step, f"not generated: {step.why}", failed=True)
            return False
        if step.kind in {"record", "forget"}:
            return True
        if step.name.namespace in self._terminating or self._resource_of(step.name) is None:
            return False
        policy = policies.get(step.policy)
        if not self.options.act or (policy is not None and not policy.acts_on(step.trigger)):
            self._note(step, f"would {step.kind}: {step.why}")
            return False
        return True

    async def _take(self, step: GenerationStep, record: StoredRecord, writes: PassWrites) -> None:
        try:
            await self._write(step, record, writes)
        except LeadershipLostError:
            raise
        except (ConflictError, NotFoundError, UnreachableError) as error:
            self._leave(step, f"left to the next pass: {error}")
        except ApiError as error:
            if step.kind == "create":
                record.entries.pop(step.name, None)
            self._leave(step, f"{step.kind} failed: {error}", failed=True)
        else:
            self._note(step, f"{step.kind}d: {step.why}", written=step.kind)

    async def _write(self, step: GenerationStep, record: StoredRecord, writes: PassWrites) -> None:
        resource = self._resource_of(step.name)
        assert resource is not None, "steps of other resources are left out"
        if step.kind == "delete":
            await writes.delete(resource, step.object, step.policy, step.why, "Background")
            record.entries.pop(step.name, None)
        elif step.entry is not None:
            stored = await writes.put(resource, step.object, step.existing)
            uid, state = stored["metadata"]["uid"], state_of(stored, step.object)
            record.entries[step.name] = step.entry._replace(uid=uid, state=state)

    def _leave(self, step: GenerationStep, done: str, *, failed: bool = False) -> None:
        """Note a step that another pass takes."""
        if step.entry is not None:
            self._late.add(step.entry.trigger_uid)
        self._note(step, done, failed=failed)

    def _note(
        self, step: GenerationStep, done: str, *, failed: bool = False, written: str = ""
    ) -> None:
        self._noted(PassLine(str(step.name), step.policy, done, failed=failed, written=written))

    async def _watched(
        self, policies: Iterable[ReadPolicy], matched: MatchedObjects
    ) -> tuple[frozenset[Resource], frozenset[Resource]]:
        """Return the resources that are watched, and those whose deletions are noticed."""
        options = self.options
        found = {NAMESPACES, *self.reader.kinds, *options.reads}
        found |= {*options.generates, *options.mutates}
        noticed: set[Resource] = set()
        for each in policies:
            if each.policy is not None and not isinstance(each.policy.action, Deletion):
                try:
                    triggers = await matched.resources(each.policy)
                except LeftOutError:
                    continue
                found.update(triggers)
                if triggered_by_deletion(each.policy):
                    noticed.update(triggers)
        return frozenset(found), frozenset(noticed)


def _in_turn(steps: Sequence[GenerationStep]) -> list[GenerationStep]:
    """Order steps so that namespaces take turns: none uses up the writes of a pass."""
    number: Counter[str] = Counter()
    placed: list[tuple[int, int, GenerationStep]] = []
    for index, each in enumerate(steps):
        number[each.name.namespace] += 1
        placed.append((number[each.name.namespace], index, each))
    return [each for *_, each in sorted(placed, key=lambda item: item[:2])]

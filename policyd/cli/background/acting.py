"""One pass of `policyd background`: reads policies and objects, and writes what they say.

Objects are read anew in each pass, and nothing is remembered between passes: whatever changed in
the meantime is seen, and what a pass did not finish is done by the next.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from policyd.api.admission import AdmissionRequest, Rule
from policyd.api.meta import Json, rfc3339
from policyd.cli.background.reads import DeclaredReads, created_at, moment, served_kinds
from policyd.dialects.kyverno.background import KINDS
from policyd.dialects.kyverno.environments import kyverno_values
from policyd.dialects.kyverno.load import VERSIONS
from policyd.dialects.kyverno.policies import GROUP
from policyd.dialects.registry import dialect_of
from policyd.engine.background.evaluation import Acted, decide_deletion, generate
from policyd.engine.background.plan import (
    POLICY_LABEL,
    GenerationStep,
    ObjectName,
    Wanted,
    marked,
    name_of,
    plan,
)
from policyd.engine.compile.load import load_document
from policyd.engine.documents.reading import Document
from policyd.engine.model.background import BackgroundPolicy, Deletion, Generation
from policyd.engine.model.dialects import Volatile
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.requests import (
    RequestCircumstances,
    as_it_was,
    namespace_lookup,
    request_for,
)
from policyd.kube.client import Client, PartialObject
from policyd.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import EVENTS, NAMESPACES, Resource
from policyd.questions.queue_objects import listed, whole

COMPONENT: Final = "policyd-background"
"""The field manager of generated objects, and the source of events."""

MOST_WRITES: Final = 200
"""Objects that one pass writes or deletes: the rest is left to the next."""

MOST_WANTED: Final = 10_000
"""Objects that one policy may have generated in all."""

_OF_REQUESTS: Final = frozenset({"request", "oldObject"})
"""Variables of requests: an object that exists has none."""


class PassLine(NamedTuple):
    """What was done to an object, or what is wrong with a policy."""

    what: str
    policy: str
    done: str
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOptions:
    """What a pass may do.

    Attributes:
        generates: The resources whose objects it may create, update and delete for policies.
        deletes: The resources whose objects it may delete on a schedule.
        reads: The resources that expressions may read.
        namespaced: Whether namespaced policies count, too.
        act: Whether it writes anything.
        now: Seconds since the epoch.
    """

    generates: tuple[Resource, ...] = ()
    deletes: tuple[Resource, ...] = ()
    reads: tuple[Resource, ...] = ()
    namespaced: bool = False
    act: bool = False
    now: float


class _Read(NamedTuple):
    """A policy of the cluster, with its object and where that is."""

    policy: BackgroundPolicy
    resource: Resource
    value: Json


@dataclass(slots=True)
class BackgroundPass:
    """Carries out one pass."""

    client: Client
    options: PassOptions
    lines: list[PassLine] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)
    _kinds: set[str] = field(default_factory=set)
    _undecided: set[str] = field(default_factory=set)
    _writes: int = 0

    async def run(self) -> list[PassLine]:
        """Generate, synchronise and delete, and return what was done.

        Raises:
            ApiError: If something cannot be read: nothing is written then.
        """
        policies = await self._policies()
        context = await self._context()
        wanted = await self._wanted(policies, context)
        existing = await self._existing(wanted)
        steps = plan(
            wanted,
            existing,
            undecided=self._undecided,
            known=self._known,
            kinds=self._kinds,
        )
        for step in list(steps):
            await self._take(step)
        for read in policies:
            if isinstance(read.policy.action, Deletion):
                await self._delete_due(read, read.policy.action, context)
        return self.lines

    async def _policies(self) -> list[_Read]:
        found: list[_Read] = []
        served = await served_kinds(self.client, GROUP, VERSIONS[GROUP], KINDS)
        if not served:
            raise NotFoundError(
                f"the cluster serves no {', '.join(sorted(KINDS))}",
                hint="install Kyverno's CustomResourceDefinitions",
            )
        for resource in served:
            for value in await listed(self.client, resource):
                found += self._loaded(resource, value)
            self._kinds.add(resource.kind)
        return found

    def _loaded(self, resource: Resource, value: Json) -> Iterable[_Read]:
        """Yield the policy that an object is; one that cannot be used is noted."""
        name = name_of(value)
        where = f"{name.namespace}/{name.name}" if name.namespace else name.name
        identity = f"{resource.kind}/{where}"
        self._known.add(identity)
        if resource.namespaced and not self.options.namespaced:
            self._undecided.add(identity)
            return
        now = int(self.options.now * 1e9)
        dialect = dialect_of(volatile=Volatile(now=lambda: now))
        loaded = load_document(Document(value, identity), dialect)
        for policy in loaded.background:
            action = policy.action
            if isinstance(action, Generation):
                read = sorted(policy.policy.uses & _OF_REQUESTS)
                if read or not action.synchronize:
                    why = f"it reads `{read[0]}`" if read else "it does not synchronize"
                    self._leave_out(identity, f"left out: {why}", failed=False)
                    continue
            yield _Read(policy, resource, value)
        if not loaded.background:
            why = loaded.findings[0].message if loaded.findings else "it is not used"
            self._leave_out(identity, f"cannot be used: {why}", failed=True)

    def _leave_out(self, policy: str, done: str, *, failed: bool) -> None:
        self._undecided.add(policy)
        self.lines.append(PassLine("policy", policy, done, failed))

    async def _context(self) -> PolicyContext:
        namespaces = await listed(self.client, NAMESPACES)
        known = {name_of(each).name for each in namespaces}
        find = namespace_lookup(namespaces, {})
        reads = DeclaredReads(
            {each: await listed(self.client, each) for each in self.options.reads}
        )
        return PolicyContext(
            namespaces=lambda name: find(name) if name in known else None,
            now=lambda: self.options.now,
            extra=kyverno_values(resources=reads),
        )

    async def _wanted(self, policies: Sequence[_Read], context: PolicyContext) -> list[Wanted]:
        wanted: list[Wanted] = []
        for read in policies:
            action = read.policy.action
            if isinstance(action, Generation):
                try:
                    wanted += await self._wanted_by(read, action, context)
                except _LeftOutError as error:
                    self._leave_out(read.policy.id, str(error), failed=True)
        return wanted

    async def _wanted_by(
        self, read: _Read, action: Generation, context: PolicyContext
    ) -> list[Wanted]:
        found: list[Wanted] = []
        identity, since = read.policy.id, created_at(read.value)
        async for resource, obj in self._matched(read.policy):
            if value_at(obj, ("metadata", "deletionTimestamp")) is not None:
                continue
            if not action.existing and created_at(obj) < since:
                continue
            made = self._generated(read.policy, resource, obj, context)
            if made.outcome == "failed":
                name = name_of(obj)
                if identity not in self._undecided:  # the first error stands for all
                    self._leave_out(identity, f"failed for {name}: {made.error}", failed=True)
                continue
            found += (marked(each, identity, obj, orphan=action.orphan) for each in made.objects)
            if len(found) > MOST_WANTED:
                raise _LeftOutError(f"generates more than {MOST_WANTED:,} objects in all")
        self._check_listed(found)
        return found

    def _check_listed(self, wanted: Iterable[Wanted]) -> None:
        """Check that a policy generates objects of listed resources only.

        Raises:
            _LeftOutError: If it does not.
        """
        listed_kinds = {(each.api_version, each.kind) for each in self.options.generates}
        for each in wanted:
            if (each.name.api_version, each.name.kind) not in listed_kinds:
                what = f"{each.name.kind} of {each.name.api_version}"
                raise _LeftOutError(f"generates {what}, which --generates does not list")

    def _generated(
        self, policy: BackgroundPolicy, resource: Resource, obj: Json, context: PolicyContext
    ) -> Acted:
        scopes = {(e.api_version, e.kind): e.namespaced for e in self.options.generates}
        return generate(
            policy,
            _request(obj, resource, policy),
            context,
            lambda api_version, kind: scopes.get((api_version, kind)),
        )

    async def _matched(self, policy: BackgroundPolicy) -> AsyncIterator[tuple[Resource, Json]]:
        """Yield the objects of the resources that a policy's rules name.

        Raises:
            _LeftOutError: If a rule names none.
        """
        for resource in await self._named(policy):
            async for page in pages(
                self.client, resource, into=dict, namespace=policy.policy.namespace
            ):
                for item in page.items:
                    yield resource, whole(resource, item)

    async def _named(self, policy: BackgroundPolicy) -> list[Resource]:
        found: dict[tuple[str, str], Resource] = {}
        for rule in policy.policy.constraints.resource_rules:
            for api_version, plural in _names(rule):
                for each in await self._served(api_version):
                    in_scope = each.namespaced or not policy.policy.namespace
                    if each.plural == plural and in_scope:
                        found.setdefault((each.group, each.plural), each)
        return list(found.values())

    async def _served(self, api_version: str) -> Sequence[Resource]:
        try:
            return await self.client.served(api_version)
        except NotFoundError:
            return ()

    async def _existing(self, wanted: Sequence[Wanted]) -> dict[ObjectName, Json]:
        """Return all generated objects, and those that exist under the names of wanted ones."""
        found: dict[ObjectName, Json] = {}
        for resource in self.options.generates:
            async for page in pages(self.client, resource, into=dict, label_selector=POLICY_LABEL):
                for item in page.items:
                    obj = whole(resource, item)
                    found[name_of(obj)] = obj
        for each in wanted:
            if each.name not in found:
                resource = self._resource_of(each.name)
                try:
                    read = await self.client.get(
                        resource, each.name.name, namespace=each.name.namespace, into=dict
                    )
                except NotFoundError:
                    continue
                found[each.name] = whole(resource, read)
        return found

    def _resource_of(self, name: ObjectName) -> Resource:
        return next(
            each
            for each in self.options.generates
            if (each.api_version, each.kind) == (name.api_version, name.kind)
        )

    async def _take(self, step: GenerationStep) -> None:
        if step.kind == "conflict":
            self._note(step, f"not generated: {step.why}", failed=True)
            return
        if not self._may_write():
            self._note(step, "left to the next pass")
            return
        if not self.options.act:
            self._note(step, f"would {step.kind}: {step.why}")
            return
        resource = self._resource_of(step.name)
        try:
            if step.kind == "delete":
                await self._delete(resource, step.object, step.policy, step.why)
            else:
                await self.client.patch(
                    resource,
                    step.name.name,
                    step.object,
                    namespace=step.name.namespace,
                    kind="apply",
                    force=step.kind == "update",
                    field_manager=COMPONENT,
                    into=PartialObject,
                )
        except (ConflictError, NotFoundError, AlreadyExistsError):
            self._note(step, "it has changed meanwhile: left to the next pass")
        except ApiError as error:
            self._note(step, f"{step.kind} failed: {error}", failed=True)
        else:
            self._note(step, f"{step.kind}d: {step.why}")

    def _may_write(self) -> bool:
        self._writes += 1
        return self._writes <= MOST_WRITES

    def _note(self, step: GenerationStep, done: str, *, failed: bool = False) -> None:
        self.lines.append(PassLine(str(step.name), step.policy, done, failed))

    async def _delete_due(self, read: _Read, action: Deletion, context: PolicyContext) -> None:
        """Delete what a policy says, if it is due; its status says when it was."""
        last = value_at(read.value, ("status", "lastExecutionTime"))
        due = action.due(moment(last) or created_at(read.value))
        if due is None or due > self.options.now:
            return
        finished = True
        try:
            async for resource, obj in self._matched(read.policy):
                finished = await self._decide(read, action, resource, obj, context) and finished
        except _LeftOutError as error:
            self._leave_out(read.policy.id, str(error), failed=True)
            return
        if self.options.act and finished:
            await self._executed(read)

    async def _decide(
        self, read: _Read, action: Deletion, resource: Resource, obj: Json, context: PolicyContext
    ) -> bool:
        """Delete an object if the policy says so; return whether that is done."""
        policy = read.policy
        if value_at(obj, ("metadata", "deletionTimestamp")) is not None:
            return True
        result = decide_deletion(policy, _request(obj, resource, policy), context)
        step = GenerationStep("delete", name_of(obj), policy.id, f"due by `{action.schedule}`", obj)
        if result.outcome == "failed":
            self._note(step, f"kept: {result.error}", failed=True)
        if result.outcome != "matched":
            return True
        if resource not in self.options.deletes:
            where = f"{resource.api_version}/{resource.plural}"
            raise _LeftOutError(f"deletes {where}, which --deletes does not list")
        return self._may_write() and await self._delete_one(step, resource, action)

    async def _delete_one(self, step: GenerationStep, resource: Resource, action: Deletion) -> bool:
        """Delete an object that is due; return whether that is done."""
        if not self.options.act:
            self._note(step, f"would delete: {step.why}")
            return True
        try:
            await self._delete(resource, step.object, step.policy, step.why, action)
        except (ConflictError, NotFoundError):
            self._note(step, "it has changed meanwhile: left to the next pass")
            return False
        except ApiError as error:
            self._note(step, f"delete failed: {error}", failed=True)
            return False
        self._note(step, f"deleted: {step.why}")
        return True

    async def _delete(
        self, resource: Resource, obj: Json, policy: str, why: str, action: Deletion | None = None
    ) -> None:
        """Delete an object as it was read, after an event that explains it."""
        metadata = obj["metadata"]
        namespace = metadata.get("namespace") or ""
        event = _event(obj, f"deleted by {policy}: {why}", self.options.now)
        await self.client.create(
            EVENTS, event, namespace=namespace or "default", into=PartialObject
        )
        await self.client.delete(
            resource,
            metadata["name"],
            namespace=namespace,
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
            propagation=(action and action.propagation) or "Background",
        )

    async def _executed(self, read: _Read) -> None:
        name = name_of(read.value)
        status = {"status": {"lastExecutionTime": rfc3339(self.options.now)}}
        try:
            await self.client.patch(
                read.resource,
                name.name,
                status,
                namespace=name.namespace,
                subresource="status",
                into=PartialObject,
            )
        except ApiError as error:
            self._leave_out(read.policy.id, f"its status cannot be written: {error}", failed=True)


class _LeftOutError(Exception):
    """A policy is not acted on."""


def _names(rule: Rule) -> Iterable[tuple[str, str]]:
    """Yield the apiVersions and plurals of a rule.

    Raises:
        _LeftOutError: If it names any of them by `*`, or a subresource.
    """
    for group in rule.api_groups:
        for version in rule.api_versions:
            for plural in rule.resources:
                if "*" in (group, version) or "*" in plural or "/" in plural:
                    raise _LeftOutError("left out: its rules name no resources, but `*` or a part")
                yield f"{group}/{version}" if group else version, plural


def _circumstances(resource: Resource, policy: BackgroundPolicy) -> RequestCircumstances:
    kinds: Mapping[tuple[Json, Json], tuple[str, bool]] = {
        (resource.group, resource.kind): (resource.plural, resource.namespaced)
    }
    operations = {
        name for rule in policy.policy.constraints.resource_rules for name in rule.operations
    }
    created = not operations.isdisjoint({"CREATE", "*"})
    return RequestCircumstances(operation="CREATE" if created else "UPDATE", kinds=kinds)


def _request(obj: Json, resource: Resource, policy: BackgroundPolicy) -> AdmissionRequest:
    """Return the request that would send an existing object."""
    circumstances = _circumstances(resource, policy)
    old = as_it_was(obj, circumstances.operation)
    return request_for(obj, circumstances, old_object=old)


def _event(obj: Json, message: str, now: float) -> Json:
    name, at = name_of(obj), rfc3339(now)
    uid = value_at(obj, ("metadata", "uid"))
    return {
        "metadata": {
            "name": f"{name.name[:200]}.{int(now * 1e6):x}",
            "namespace": name.namespace or "default",
        },
        "involvedObject": {
            "apiVersion": name.api_version,
            "kind": name.kind,
            "namespace": name.namespace,
            "name": name.name,
            "uid": uid,
        },
        "type": "Normal",
        "reason": "PolicyDeleted",
        "message": message[:1000],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }

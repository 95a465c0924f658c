"""The policies of a cluster that act by themselves, as a pass of `policyd background` reads them.

A policy acts on a part of its triggers and objects: the percentage in its annotation
`policyd.io/rollout`. Without the annotation it is a dry run.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from policyd.api.admission import AdmissionRequest, Operation, Rule
from policyd.api.kinds import resources
from policyd.api.meta import Json
from policyd.api.policy import MatchConstraints
from policyd.cli.background.bounds import LeftOutError
from policyd.cli.background.reads import served_kinds
from policyd.clock import cpu_limit
from policyd.dialects.kyverno.background import KINDS, MUTATING
from policyd.dialects.kyverno.exceptions import KIND as EXCEPTION
from policyd.dialects.kyverno.load import VERSIONS
from policyd.dialects.kyverno.policies import GROUP
from policyd.dialects.registry import dialect_of
from policyd.engine.background.acting import with_exceptions
from policyd.engine.background.record import ObjectName, name_of
from policyd.engine.compile.load import Loaded, load_document
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.rollout import place_of
from policyd.engine.model.background import BackgroundPolicy, Deletion, Generation
from policyd.engine.model.compiled import CompiledException
from policyd.engine.model.dialects import Volatile
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.requests import RequestCircumstances, as_it_was, request_for
from policyd.kube.client import Client
from policyd.kube.discovery import served_resources
from policyd.kube.errors import NotFoundError
from policyd.kube.pages import pages, whole
from policyd.kube.resources import Resource

ROLLOUT: Final = "policyd.io/rollout"
"""Annotation of a policy: for how many of a hundred triggers or objects it acts."""

MOST_POLICIES: Final = 1000
"""Policies that are loaded: of all, and a tenth of these of one namespace."""

PAGE: Final = 50
"""Objects that are listed at a time: each may have more than a megabyte."""

_MUTATES: Final = ("spec", "evaluation", "mutateExisting", "enabled")


class ReadPolicy(NamedTuple):
    """A policy of the cluster.

    Attributes:
        id: Its kind and names.
        resource: Where it is.
        value: The object.
        policy: The policy; None if it is not acted on.
        fault: Why it is not.
        valid: Whether it could be acted on, as far as it goes.
        percent: For how many of a hundred triggers or objects it acts.
        at_requests: Whether it decides on requests, too: its status is then the webhooks'.
    """

    id: str
    resource: Resource
    value: Json
    policy: BackgroundPolicy | None
    fault: str = ""
    valid: bool = True
    percent: int = 0
    at_requests: bool = False

    def acts_on(self, name: object) -> bool:
        """Tell whether it acts on an object, by its kind and names."""
        return place_of(self.id, str(name)) < self.percent


@dataclass(slots=True)
class PolicyReader:
    """Reads policies, and loads each version once.

    Attributes:
        client: The API server.
        executor: Loads policies, in a thread.
        now: Seconds since the epoch, as expressions see it.
        namespaced: Whether policies of namespaces count, too.
    """

    client: Client
    executor: Executor
    now: Callable[[], float]
    namespaced: bool = False
    exceptions: Sequence[str] = ()
    """The namespaces whose PolicyExceptions count."""
    kinds: Sequence[Resource] = ()
    """The kinds that the cluster serves, as of the last `read`."""
    _loaded: dict[tuple[str, str], Loaded] = field(default_factory=dict)

    async def read(self) -> list[ReadPolicy]:
        """Return all policies, those that are not acted on included.

        Those of namespaces are left out, unless they count.

        Raises:
            ApiError: If they cannot be read, or their kinds are not served.
        """
        served = await served_kinds(self.client, GROUP, VERSIONS[GROUP], KINDS | MUTATING)
        if not served:
            raise NotFoundError(
                f"the cluster serves no {', '.join(sorted(KINDS | MUTATING))}",
                hint="install Kyverno's CustomResourceDefinitions",
            )
        self.kinds = [each for each in served if self.namespaced or not each.namespaced]
        found: list[ReadPolicy] = []
        used: dict[tuple[str, str], Loaded] = {}
        number: Counter[str] = Counter()
        for resource in self.kinds:
            async for value in objects_of(self.client, resource):
                if resource.kind in MUTATING and value_at(value, _MUTATES) is not True:
                    continue
                namespace = name_of(value).namespace
                number[""] += 1
                number[namespace] += bool(namespace)
                beyond = number[""] > MOST_POLICIES or number[namespace] > (
                    MOST_POLICIES // 10 if namespace else MOST_POLICIES
                )
                found.append(await self._read(resource, value, used, beyond=beyond))
        excepted = await self._exceptions(used)
        self._loaded = used
        return [excepted.bound_to(each) for each in found]

    async def _exceptions(self, used: dict[tuple[str, str], Loaded]) -> "_ReadExceptions":
        """Return the exceptions of the namespaces that count.

        Raises:
            ApiError: If they cannot be read.
        """
        read = _ReadExceptions()
        wanted = {EXCEPTION} if self.exceptions else ()
        for kind in await served_kinds(self.client, GROUP, VERSIONS[GROUP], wanted):
            for namespace in self.exceptions:
                async for value in objects_of(self.client, kind, namespace):
                    name = f"{EXCEPTION}/{name_of(value)}"
                    read.take(value, await self._loaded_once(value, name, used))
                    if len(read.usable) > MOST_POLICIES:
                        read.beyond = True
                        return read
        return read

    async def _loaded_once(
        self, value: Json, identity: str, used: dict[tuple[str, str], Loaded]
    ) -> Loaded:
        """Load a version of an object, unless it was loaded before."""
        version = (
            str(value_at(value, ("metadata", "uid"))),
            str(value_at(value, ("metadata", "generation"))),
        )
        loaded = self._loaded.get(version)
        if loaded is None:
            loop = asyncio.get_running_loop()
            loaded = await loop.run_in_executor(self.executor, self._load, value, identity)
        used[version] = loaded
        return loaded

    async def _read(
        self,
        resource: Resource,
        value: Json,
        used: dict[tuple[str, str], Loaded],
        *,
        beyond: bool,
    ) -> ReadPolicy:
        name = name_of(value)
        where = f"{name.namespace}/{name.name}" if name.namespace else name.name
        identity = f"{resource.kind}/{where}"
        left_out = ReadPolicy(identity, resource, value, None)
        if beyond:
            named = {key: value[key] for key in ("apiVersion", "kind", "metadata")}
            left_out = left_out._replace(value=named)
            return left_out._replace(fault="left out: there are too many policies", valid=False)
        loaded = await self._loaded_once(value, identity, used)
        left_out = left_out._replace(at_requests=bool(loaded.policies or loaded.placeholders))
        if not loaded.background:
            why = loaded.findings[0].message if loaded.findings else "it is not used"
            return left_out._replace(fault=f"cannot be used: {why}", valid=False)
        policy = loaded.background[0]
        unknown = "" if isinstance(policy.action, Deletion) else policy.action.unknown
        if unknown:
            return left_out._replace(fault=f"left out: it reads `{unknown}`")
        by_requests = _operations(policy) or triggered_by_deletion(policy)
        if not (isinstance(policy.action, Deletion) or by_requests):
            why = f"left out: nothing is done for {' and '.join(sorted(_named_operations(policy)))}"
            return left_out._replace(fault=why)
        percent = _percent(value)
        if percent is None:
            why = f"left out: its annotation {ROLLOUT} is not a number from 0 to 100"
            return left_out._replace(fault=why, valid=False)
        return left_out._replace(policy=policy, percent=percent)

    def _load(self, value: Json, identity: str) -> Loaded:
        dialect = dialect_of(volatile=Volatile(now=lambda: int(self.now() * 1e9)))
        return load_document(Document(value, identity), dialect, out_of_time=cpu_limit())


@dataclass(slots=True)
class _ReadExceptions:
    """The exceptions of a cluster. A policy is not acted on if one of its own is not understood."""

    usable: list[CompiledException] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    """Exceptions that cannot be used, by the names of their policies."""
    beyond: bool = False
    """Whether there are more than are read."""

    def take(self, value: Json, loaded: Loaded) -> None:
        """Add an exception."""
        self.usable += loaded.exceptions
        if not loaded.exceptions:
            for each in value_at(value, ("spec", "policyRefs")) or ():
                self.broken[str(value_at(each, ("name",)))] = name_of(value).name

    def bound_to(self, read: ReadPolicy) -> ReadPolicy:
        """Return a policy with the exceptions that name it."""
        if read.policy is None:
            return read
        named = self.broken.get(name_of(read.value).name)
        if self.beyond or named is not None:
            why = "there are too many" if self.beyond else f"`{named}` cannot be used"
            fault = f"left out: of its exceptions, {why}"
            return read._replace(policy=None, fault=fault, valid=False)
        if not self.usable:
            return read
        (policy,) = with_exceptions([read.policy], self.usable)
        return read._replace(policy=policy)


def _percent(value: Json) -> int | None:
    """Return what the annotation of a policy says; None if that is no percentage."""
    text = value_at(value, ("metadata", "annotations", ROLLOUT))
    if text is None:
        return 0
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 3:
        percent = int(text)
        return percent if percent <= 100 else None
    return None


async def objects_of(
    client: Client, resource: Resource, namespace: str = ""
) -> AsyncIterator[Json]:
    """Yield the objects of a resource, as documents have them; few are in memory at a time.

    Raises:
        ApiError: If they cannot be listed.
    """
    async for page in pages(client, resource, into=dict, namespace=namespace, limit=PAGE):
        for item in page.items:
            yield whole(resource, item)


@dataclass(slots=True)
class MatchedObjects:
    """Finds the objects that the rules of policies name."""

    client: Client
    _served: dict[str, Sequence[Resource]] = field(default_factory=dict)

    async def of(self, policy: BackgroundPolicy) -> AsyncIterator[tuple[Resource, Json]]:
        """Yield the objects of the resources that a policy's rules name.

        Raises:
            LeftOutError: If a rule names none.
            ApiError: If they cannot be read.
        """
        for resource in await self.resources(policy):
            async for obj in self.all(resource, policy.policy.namespace):
                yield resource, obj

    async def all(self, resource: Resource, namespace: str = "") -> AsyncIterator[Json]:
        """Yield the objects of a resource."""
        async for obj in objects_of(self.client, resource, namespace):
            yield obj
            await asyncio.sleep(0)  # the evaluation of each takes its time

    async def resources(
        self, policy: BackgroundPolicy, constraints: MatchConstraints | None = None
    ) -> list[Resource]:
        """Return the resources that a policy's rules name, or others instead.

        Raises:
            LeftOutError: If a rule names none.
            ApiError: If the cluster cannot be asked.
        """
        found: dict[tuple[str, str], Resource] = {}
        for rule in (constraints or policy.policy.constraints).resource_rules:
            for api_version, plural in _names(rule):
                for each in await self.served(api_version):
                    in_scope = each.namespaced or not policy.policy.namespace
                    if each.plural == plural and in_scope:
                        found.setdefault((each.group, each.plural), each)
        return list(found.values())

    async def served(self, api_version: str) -> Sequence[Resource]:
        """Return the resources of an apiVersion; none if it is not served."""
        if api_version not in self._served:
            self._served[api_version] = await served_resources(self.client, api_version)
        return self._served[api_version]


def _names(rule: Rule) -> Iterable[tuple[str, str]]:
    """Yield the apiVersions and plurals of a rule.

    Raises:
        LeftOutError: If it names any of them by `*`, or a subresource.
    """
    for group in rule.api_groups:
        for plural in rule.resources:
            if group == "*" or "*" in plural or "/" in plural:
                raise LeftOutError("left out: its rules name `*` or subresources")
            for version in _versions(rule, group, plural):
                yield f"{group}/{version}" if group else version, plural


def _versions(rule: Rule, group: str, plural: str) -> Iterable[str]:
    """Return the versions of a rule for a resource; of any version, those of a built-in kind.

    Raises:
        LeftOutError: If any version may be meant of a resource that is not built in.
    """
    if "*" not in rule.api_versions:
        return rule.api_versions
    known = [e.version for e in resources() if (e.group, e.plural) == (group, plural)]
    if not known:
        raise LeftOutError(f"left out: its rules name any version of `{plural}`, and not which")
    return known


async def one_by_one(
    client: Client, resource: Resource, names: Iterable[ObjectName]
) -> AsyncIterator[Json]:
    """Yield those of some objects that exist.

    Raises:
        ApiError: If they cannot be read.
    """
    for name in names:
        try:
            read = await client.get(resource, name.name, namespace=name.namespace, into=dict)
        except NotFoundError:
            continue
        yield whole(resource, read)


def request_of(obj: Json, resource: Resource) -> AdmissionRequest:
    """Return the request that would send an existing object."""
    return _sent(obj, resource, "UPDATE")


def requests_of(obj: Json, resource: Resource, policy: BackgroundPolicy) -> list[AdmissionRequest]:
    """Return the requests that may have sent an object, of those that a policy concerns."""
    return [_sent(obj, resource, each) for each in _operations(policy)]


def deletion_of(obj: Json, resource: Resource) -> AdmissionRequest:
    """Return the request that has deleted an object."""
    return _sent(obj, resource, "DELETE")


def triggered_by_deletion(policy: BackgroundPolicy) -> bool:
    """Tell whether a policy generates when its trigger is deleted.

    As in Kyverno, a rule says so by name: `*` does not.
    """
    action = policy.action
    return (
        isinstance(action, Generation)
        and action.at_requests
        and "DELETE" in _named_operations(policy)
    )


def _operations(policy: BackgroundPolicy) -> list[Operation]:
    named = _named_operations(policy)
    operations: tuple[Operation, ...] = ("UPDATE", "CREATE")
    return [each for each in operations if each in named or "*" in named]


def _named_operations(policy: BackgroundPolicy) -> set[str]:
    return {name for rule in policy.policy.constraints.resource_rules for name in rule.operations}


def _sent(obj: Json, resource: Resource, operation: Operation) -> AdmissionRequest:
    kinds: Mapping[tuple[Json, Json], tuple[str, bool]] = {
        (resource.group, resource.kind): (resource.plural, resource.namespaced)
    }
    circumstances = RequestCircumstances(operation=operation, kinds=kinds)
    return request_for(obj, circumstances, old_object=as_it_was(obj, operation))

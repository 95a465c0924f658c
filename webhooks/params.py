"""Params of policies as the API server has them, watched as long as a policy is about their kind.

A kind is looked up when a policy first names it, its objects are watched from then on, and dropped
with the last policy that names it. Until all of them are known, a policy that needs one cannot be
evaluated, and its failurePolicy decides.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, NoReturn, Unpack

import msgspec
import structlog

from policyd.api.kinds import resource_for_kind
from policyd.api.meta import Json, ObjectMeta
from policyd.api.policy import ParamKind
from policyd.api.selectors import LabelSelector
from policyd.engine.compiled import CompiledPolicy
from policyd.engine.match import labels_of
from policyd.engine.params import NO_PARAMS, ParamError, ParamSource
from policyd.kube.client import Bookmark, Event, Page, Paging, Reader, Selection
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.informer import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, Informer
from policyd.kube.pace import Backoff, Pace
from policyd.kube.resources import Resource

FIRST_LIST_SECONDS = 5.0
"""How long the start waits for params: those that cannot be read must not keep the door shut."""

log = structlog.get_logger(__name__)


class Param(msgspec.Struct, frozen=True, kw_only=True):
    """One object of any kind, whole."""

    metadata: ObjectMeta
    value: Json


class WholeObjects:
    """Reads a resource's objects with every field they have, but who manages which.

    Lists name neither version nor kind of their items, so both are put there.
    """

    def __init__(self, reader: Reader, resource: Resource) -> None:
        self._reader = reader
        self._named = {"apiVersion": resource.api_version, "kind": resource.kind}

    async def page(
        self,
        resource: Resource,
        *,
        into: type[Any],  # noqa: ARG002 - always a Param
        **options: Unpack[Paging],
    ) -> Page[Any]:
        """Return a part of the objects."""
        page = await self._reader.page(resource, into=dict, **options)
        items = tuple(self._param(item) for item in page.items)
        return Page(items, page.resource_version, page.continue_)

    async def watch(
        self,
        resource: Resource,
        *,
        into: type[Any],  # noqa: ARG002 - always a Param
        resource_version: str,
        **selection: Unpack[Selection],
    ) -> AsyncGenerator[Event[Any] | Bookmark, None]:
        """Iterate over what changes."""
        events = self._reader.watch(
            resource, into=dict, resource_version=resource_version, **selection
        )
        async for event in events:
            if isinstance(event, Bookmark):
                yield event
            else:
                yield Event(event.type, self._param(event.object))

    def _param(self, obj: Json) -> Param:
        metadata = {key: given for key, given in obj["metadata"].items() if key != "managedFields"}
        value = {**self._named, **obj, "metadata": metadata}
        return Param(metadata=msgspec.convert(metadata, ObjectMeta), value=value)


class Watch:
    """The objects of one kind, by namespace and name."""

    def __init__(self, reader: Reader, kind: ParamKind, *, pace: Pace) -> None:
        self._reader = reader
        self._kind = kind
        self._pace = pace
        self._informer: Informer[Param] | None = None
        self._error: ApiError | None = None
        self._objects: dict[str, dict[str, Json]] = {}
        self.resource = _built_in(kind)
        """Where the objects are; None while that is not known."""
        self.complete = asyncio.Event()
        """Set once all objects are known, for the first time."""

    @property
    def trouble(self) -> str | None:
        """Why the objects are not known; None if they are."""
        error = self._informer.last_error if self._informer else self._error
        if self.complete.is_set() and not isinstance(error, NotFoundError):
            return None
        return "not listed yet" if error is None else str(error)

    def of(self, namespace: str) -> dict[str, Json]:
        """Return the objects of a namespace, by name."""
        return self._objects.get(namespace, {})

    async def run(self) -> None:
        """Find the kind, and watch its objects."""
        if self.resource is None:
            self.resource = await self._found()
        self._informer = informer = Informer(
            WholeObjects(self._reader, self.resource),
            self.resource,
            into=Param,
            on_change=self._take,
            pace=self._pace,
        )
        running = asyncio.ensure_future(informer.run())
        try:
            await informer.synced.wait()
            self.complete.set()
            await running
        finally:
            running.cancel()

    async def _found(self) -> Resource:
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, chance=self._pace.chance)
        while True:
            try:
                for resource in await self._reader.served(self._kind.api_version):
                    if resource.kind == self._kind.kind:
                        return resource
                self._error = NotFoundError("no such kind is served")
            except ApiError as error:
                self._error = error
            await self._pace.sleep(backoff.next())

    def _take(self, old: Param | None, new: Param | None) -> None:
        given = new or old
        assert given is not None, "a change has an object before or after it"
        within = self._objects.setdefault(given.metadata.namespace, {})
        if new is None:
            within.pop(given.metadata.name, None)
        else:
            within[given.metadata.name] = new.value


class Params:
    """Params as policies find them: in their files, and then in the API server."""

    def __init__(self, reader: Reader | None, *, pace: Pace) -> None:
        """Begin with none.

        Args:
            reader: The API server; without it, files are all there is.
            pace: Time.
        """
        self._reader = reader
        self._pace = pace
        self._watches: dict[ParamKind, tuple[Watch, asyncio.Task[None]]] = {}
        self.files: ParamSource = NO_PARAMS
        """What was read from files. It comes before what the API server has."""
        self._followed = asyncio.Event()
        self.changed = asyncio.Event()
        """To be set when other policies are in force."""

    async def run(self, policies: Callable[[], Iterable[CompiledPolicy]]) -> NoReturn:
        """Watch the kinds that policies name, whichever these are at the time."""
        async with asyncio.TaskGroup() as group:
            while True:
                self.changed.clear()
                self._follow(kinds_of(policies()), group)
                self._followed.set()
                await self.changed.wait()

    async def first_lists(self) -> None:
        """Wait until the params of the first policies are known, but not for long."""
        await self._followed.wait()
        waiting = [watch.complete.wait() for watch, _ in self._watches.values()]
        try:
            await self._pace.within(FIRST_LIST_SECONDS, asyncio.gather(*waiting))
        except TimeoutError:
            for kind, (watch, _) in self._watches.items():
                if watch.trouble:
                    log.warning("params_unknown", kind=kind.kind, reason=watch.trouble)

    def namespaced(self, kind: ParamKind) -> bool:
        """Tell whether objects of a kind live in namespaces."""
        watch = self._watch(kind)
        resource = watch.resource if watch else None
        if resource is not None:
            return resource.namespaced
        if watch is None or self.files.list(kind, "", LabelSelector()):
            return self.files.namespaced(kind)
        raise _unknown(kind, watch)

    def get(self, kind: ParamKind, namespace: str, name: str) -> Json | None:
        """Return one object; that of a file if there is one."""
        found = self.files.get(kind, namespace, name)
        return found if found is not None else self._served(kind, namespace).get(name)

    def list(self, kind: ParamKind, namespace: str, selector: LabelSelector) -> Sequence[Json]:
        """Return the objects that a selector picks, those of files in the place of others."""
        picked = {
            name: obj
            for name, obj in self._served(kind, namespace).items()
            if selector.matches(labels_of(obj))
        }
        for obj in self.files.list(kind, namespace, LabelSelector()):
            name = obj["metadata"]["name"]
            picked.pop(name, None)
            if selector.matches(labels_of(obj)):
                picked[name] = obj
        return [picked[name] for name in sorted(picked)]

    def _served(self, kind: ParamKind, namespace: str) -> dict[str, Json]:
        watch = self._watch(kind)
        if watch is None:
            return {}
        if watch.trouble is not None:
            raise _unknown(kind, watch)
        return watch.of(namespace)

    def _watch(self, kind: ParamKind) -> Watch | None:
        if self._reader is None:
            return None
        watch, _ = self._watches.get(kind, (None, None))
        return watch or Watch(self._reader, kind, pace=self._pace)

    def _follow(self, kinds: frozenset[ParamKind], group: asyncio.TaskGroup) -> None:
        for kind in self._watches.keys() - kinds:
            _, task = self._watches.pop(kind)
            task.cancel()
        if self._reader is None:
            return
        for kind in kinds - self._watches.keys():
            watch = Watch(self._reader, kind, pace=self._pace)
            self._watches[kind] = watch, group.create_task(watch.run())


def kinds_of(policies: Iterable[CompiledPolicy]) -> frozenset[ParamKind]:
    """Return the kinds of the params that policies are bound to."""
    return frozenset(
        kind
        for policy in policies
        if (kind := policy.policy.spec.param_kind) is not None
        and any(binding.param_ref is not None for binding in policy.bindings)
    )


def _built_in(kind: ParamKind) -> Resource | None:
    group, _, version = kind.api_version.rpartition("/")
    found = resource_for_kind(group, version, kind.kind)
    if found is None:
        return None
    return Resource(group, version, found.plural, kind.kind, namespaced=found.namespaced)


def _unknown(kind: ParamKind, watch: Watch) -> ParamError:
    name = f"{kind.api_version}, Kind={kind.kind}"
    return ParamError(
        f"paramKind kind `{name}` not yet synced to use for admission: {watch.trouble}",
        hint=f"tell whoever runs the cluster that policyd cannot read objects of kind {kind.kind}",
    )

"""Params of policies as the API server has them, watched as long as a policy is about their kind.

A kind is looked up when a policy first names it, its objects are watched from then on, and dropped
with the last policy that names it. Until all of them are known, a policy that needs one cannot be
evaluated, and its failurePolicy decides.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

import structlog

from policyd.api.kinds import resource_for_kind
from policyd.api.meta import Json
from policyd.api.policy import ParamKind
from policyd.api.selectors import LabelSelector
from policyd.engine.compiled import CompiledPolicy
from policyd.engine.match import labels_of
from policyd.engine.params import NO_PARAMS, ParamError, ParamSource
from policyd.kube.client import Reader
from policyd.kube.pace import Pace
from policyd.kube.resources import Resource
from webhooks.watched import Watch

FIRST_LIST_SECONDS = 5.0
"""How long the start waits for params: those that cannot be read must not keep the door shut."""

log = structlog.get_logger(__name__)


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

    def _served(self, kind: ParamKind, namespace: str) -> Mapping[str, Json]:
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
        return watch or self._made(self._reader, kind)

    def _made(self, reader: Reader, kind: ParamKind) -> Watch:
        built_in = _built_in(kind)
        return Watch(
            reader,
            kind.api_version,
            lambda resource: resource.kind == kind.kind,
            resource=built_in,
            pace=self._pace,
        )

    def _follow(self, kinds: frozenset[ParamKind], group: asyncio.TaskGroup) -> None:
        for kind in self._watches.keys() - kinds:
            _, task = self._watches.pop(kind)
            task.cancel()
        if self._reader is None:
            return
        for kind in kinds - self._watches.keys():
            watch = self._made(self._reader, kind)
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

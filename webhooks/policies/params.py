"""Params of policies as the API server has them, watched as long as a policy is about their kind.

A kind is looked up when a policy first names it. The objects that may be meant are watched from
then on, those of the namespaces that bindings name if they do, and dropped with the last policy
that names them. Until they are known, a policy that needs one cannot be evaluated, and its
failurePolicy decides.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NoReturn

import structlog

from policyd.api.kinds import resource_for_kind
from policyd.api.meta import Json
from policyd.api.policy import ParamKind
from policyd.api.selectors import LabelSelector
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.params import NO_PARAMS, ParamError, ParamSource
from policyd.engine.objects.match import labels_of
from policyd.kube.client import Reader
from policyd.kube.namespace_limits import MOST_PARAM_BYTES, MOST_PARAMS, NamespaceLimits
from policyd.kube.pace import Pace
from policyd.kube.resources import Resource
from webhooks.policies.watched import Watch

FIRST_LIST_SECONDS = 5.0
"""How long the start waits for params: those that cannot be read must not block the start."""

EVERYWHERE: Final = ""
"""Stands for all namespaces, where a binding names none."""

MOST_NAMESPACES: Final = 8
"""Namespaces of one kind that are watched apart; beyond this many, all of them are."""

_Place = tuple[ParamKind, str]
"""A kind, and the namespace that its objects are in."""

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
        self._watches: dict[_Place, tuple[Watch, asyncio.Task[None]]] = {}
        self.files: ParamSource = NO_PARAMS
        """Params from files, which come before those of the API server."""
        self._followed = asyncio.Event()
        self.changed = asyncio.Event()
        """To be set when other policies are in force."""

    async def run(self, policies: Callable[[], Iterable[CompiledPolicy]]) -> NoReturn:
        """Watch the kinds that policies name, whichever these are at the time."""
        async with asyncio.TaskGroup() as group:
            while True:
                self.changed.clear()
                self._follow(places_of(policies()), group)
                self._followed.set()
                await self.changed.wait()

    async def first_lists(self) -> None:
        """Wait until the params of the first policies are known, but not for long."""
        await self._followed.wait()
        waiting = [watch.complete.wait() for watch, _ in self._watches.values()]
        try:
            await self._pace.within(FIRST_LIST_SECONDS, asyncio.gather(*waiting))
        except TimeoutError:
            for (kind, _), (watch, _) in self._watches.items():
                if watch.trouble:
                    log.warning("params_unknown", kind=kind.kind, reason=watch.trouble)

    def namespaced(self, kind: ParamKind) -> bool | None:
        """Tell whether objects of a kind live in namespaces; None if there are none in files."""
        watches = self._watches_of(kind)
        resource = next((watch.resource for watch in watches if watch.resource), None)
        if resource is not None:
            return resource.namespaced
        watch = watches[0] if watches else None
        if watch is None or self.files.list(kind, "", LabelSelector()):
            return self.files.namespaced(kind)
        raise _unknown(kind, watch)

    def get(self, kind: ParamKind, namespace: str, name: str) -> Json | None:
        """Return one object; that of a file if there is one."""
        found = self.files.get(kind, namespace, name)
        return found if found is not None else self._served(kind, namespace, name).get(name)

    def list(self, kind: ParamKind, namespace: str, selector: LabelSelector) -> Sequence[Json]:
        """Return the objects that a selector picks, those of files in the place of others."""
        picked = {
            name: obj
            # Copied first: decisions beside the loop look while the loop changes it.
            for name, obj in list(self._served(kind, namespace).items())
            if selector.matches(labels_of(obj))
        }
        for obj in self.files.list(kind, namespace, LabelSelector()):
            name = obj["metadata"]["name"]
            picked.pop(name, None)
            if selector.matches(labels_of(obj)):
                picked[name] = obj
        return [picked[name] for name in sorted(picked)]

    def _served(
        self, kind: ParamKind, namespace: str, name: str | None = None
    ) -> Mapping[str, Json]:
        watches = self._watches_of(kind, namespace)
        if not watches:
            return {}
        watch = next((watch for watch in watches if watch.trouble is None), None)
        if watch is None:
            raise _unknown(kind, watches[0])
        reason_not_kept = watch.reason_not_kept(namespace, name)
        if reason_not_kept:
            raise ParamError(reason_not_kept)
        return watch.of(namespace)

    def _watches_of(self, kind: ParamKind, namespace: str | None = None) -> tuple[Watch, ...]:
        """Return the watches of a kind, or of a namespace; none if there is no API server."""
        if self._reader is None:
            return ()
        found = tuple(
            watch
            for (watched, within), (watch, _) in tuple(self._watches.items())
            if watched == kind and (namespace is None or within in {EVERYWHERE, namespace})
        )
        return found or (self._made(self._reader, kind, EVERYWHERE),)

    def _made(self, reader: Reader, kind: ParamKind, namespace: str) -> Watch:
        built_in = _built_in(kind)
        return Watch(
            reader,
            kind.api_version,
            lambda resource: resource.kind == kind.kind,
            resource=built_in,
            limits=NamespaceLimits(MOST_PARAMS, MOST_PARAM_BYTES),
            pace=self._pace,
            namespace=namespace,
        )

    def _follow(self, places: frozenset[_Place], group: asyncio.TaskGroup) -> None:
        if self._reader is not None:
            for kind, namespace in places - self._watches.keys():
                watch = self._made(self._reader, kind, namespace)
                self._watches[kind, namespace] = watch, group.create_task(watch.run())
        for known in self._watches.keys() - places:
            if self._are_known(known[0], places):
                _, task = self._watches.pop(known)
                task.cancel()

    def _are_known(self, kind: ParamKind, places: frozenset[_Place]) -> bool:
        """Tell whether all that is to be watched of a kind is known.

        Earlier watches are kept until then, or longer: until policies change again.
        """
        wanted = (self._watches.get(place) for place in places if place[0] == kind)
        return all(found is not None and found[0].complete.is_set() for found in wanted)


def places_of(policies: Iterable[CompiledPolicy]) -> frozenset[_Place]:
    """Return kinds and namespaces of the params that policies are bound to."""
    by_kind: dict[ParamKind, set[str]] = {}
    for policy in policies:
        kind = policy.policy.spec.param_kind
        for ref in (binding.param_ref for binding in policy.bindings):
            if kind is not None and ref is not None:
                by_kind.setdefault(kind, set()).add(ref.namespace)
    return frozenset(
        (kind, namespace)
        for kind, namespaces in by_kind.items()
        for namespace in (namespaces if len(namespaces) <= MOST_NAMESPACES else {EVERYWHERE})
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
        hint=f"ask the cluster administrator to let policyd read objects of kind {kind.kind}",
    )

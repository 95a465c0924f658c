"""Where policies come from: files, policyd's kinds and Kyverno's kinds of the API server."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, Protocol, Unpack

import structlog

from policyd.dialects.kyverno import cluster_policies, exceptions
from policyd.dialects.kyverno import policies as new_policies
from policyd.dialects.kyverno.entries import KIND as ENTRIES_KIND
from policyd.dialects.kyverno.load import VERSIONS
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.client import PartialObject, Reader, Selection
from policyd.kube.discovery import served_resources
from policyd.kube.errors import ApiError, ForbiddenError, NotFoundError
from policyd.kube.informer import Informer
from policyd.kube.namespace_limits import POLICIES_AT_A_TIME
from policyd.kube.pace import Pace
from policyd.kube.resources import POLICIES, POLICY_BINDINGS, Resource
from webhooks.certificate.files import fingerprint, follow
from webhooks.policies.in_force import FILE, PoliciesInForce
from webhooks.policies.loading import Loading
from webhooks.policies.stored import ADDITIONS, PolicyKey, StoredPolicy
from webhooks.shared import Start

KYVERNO_KINDS: Final[Mapping[str, frozenset[str]]] = {
    new_policies.GROUP: new_policies.KINDS,
    cluster_policies.GROUP: cluster_policies.KINDS,
}
"""The kinds of policies, by group."""


LOOK_SECONDS: Final = 60.0
"""How often the API server is asked whether it serves kinds that it did not serve before."""

RETRY_SECONDS: Final = 5.0
"""How soon it is asked again if it did not answer."""

Note = Callable[[PolicyKey, Callable[[], None]], None]
"""Has a policy loaded or dropped: the newest call for each key counts."""

log = structlog.get_logger(__name__)


class PolicySource(Protocol):
    """A place that policies come from."""

    async def read(self, start: Start) -> None:
        """Note all policies, and start following their changes.

        Raises:
            PolicydError: If they cannot be read, and never will be.
        """
        ...


class FilePolicies:
    """The policies in files and folders."""

    def __init__(
        self, paths: Sequence[Path], in_force: PoliciesInForce, loading: Loading, *, every: float
    ) -> None:
        """Begin with none.

        Args:
            paths: Files and folders.
            in_force: Where policies are put.
            loading: Loads them.
            every: Seconds between two looks for changes.
        """
        self._paths = tuple(paths)
        self._read = partial(in_force.read_files, self._paths)
        self._loading = loading
        self._every = every

    async def read(self, start: Start) -> None:
        """Read the files, and follow them."""
        since = fingerprint(self._paths)
        await self._loading.first(self._read)
        if self._paths:
            again = partial(self._loading.note, PolicyKey(FILE, FILE, ""), self._read)
            start(follow(self._paths, since=since, changed=again, every=self._every))


class _KindPolicies:
    """The policies or bindings of one kind of the API server."""

    def __init__(
        self,
        reader: Reader,
        resource: Resource,
        in_force: PoliciesInForce,
        note: Note,
        *,
        pace: Pace,
        **selection: Unpack[Selection],
    ) -> None:
        self._resource = resource
        self._in_force = in_force
        self._note = note
        self.informer = Informer(
            reader,
            resource,
            into=StoredPolicy,
            on_change=self._changed,
            trim=self._kept,
            page_limit=POLICIES_AT_A_TIME,
            pace=pace,
            **selection,
        )

    def _kept(self, policy: StoredPolicy) -> StoredPolicy:
        return self._in_force.limits.keep(policy, self._resource)

    def _changed(self, change: Change[StoredPolicy]) -> None:
        key = change.object.key
        match change:
            case Deleted():
                self._in_force.limits.drop(key)
                self._note(key, partial(self._in_force.drop, key))
            case Modified(old, new) if new.means_the_same(old):
                pass
            case Added(new) | Modified(object=new):
                self._note(key, partial(self._in_force.take, new))


class OwnPolicies:
    """Policy and PolicyBinding objects of the API server."""

    def __init__(
        self, reader: Reader, in_force: PoliciesInForce, note: Note, *, pace: Pace
    ) -> None:
        """Begin with none.

        Args:
            reader: The API server.
            in_force: Where policies are put.
            note: Called for each change.
            pace: Time.
        """
        self._reader = reader
        self.informers = tuple(
            _KindPolicies(reader, resource, in_force, note, pace=pace).informer
            for resource in (POLICY_BINDINGS, POLICIES)
        )
        """Of bindings and of policies."""

    async def read(self, start: Start) -> None:
        """Read bindings first, so that no policy applies where its binding does not."""
        bindings, policies = self.informers
        start(bindings.run())
        start(policies.run())
        if await self._has_bindings():
            await bindings.synced.wait()
        await policies.synced.wait()

    async def _has_bindings(self) -> bool:
        try:
            await self._reader.page(POLICY_BINDINGS, into=PartialObject, limit=1)
        except NotFoundError:
            hint = "`policyd crds | kubectl apply --server-side -f -`"
            log.warning("bindings_not_served", hint=hint)
            return False
        except ApiError:
            return True  # the informer logs the error, and tries again
        return True


class KyvernoPolicies:
    """The policies of Kyverno's kinds, in the newest versions that the API server serves.

    Exceptions count in some namespaces only: a user who may write one could lift any policy.
    """

    def __init__(
        self,
        reader: Reader,
        in_force: PoliciesInForce,
        note: Note,
        *,
        pace: Pace,
        exceptions: Sequence[str] = (),
    ) -> None:
        """Begin with none.

        Args:
            reader: The API server.
            in_force: Where policies are put.
            note: Called for each change.
            pace: Time.
            exceptions: The namespaces whose exceptions count.
        """
        self._reader = reader
        self._in_force = in_force
        self._note = note
        self._pace = pace
        self._exceptions = tuple(dict.fromkeys(exceptions))
        self.informers: dict[tuple[str, ...], Informer[StoredPolicy]] = {}
        """Of each kind that is served, by group and kind; of exceptions, by namespace, too."""

    async def read(self, start: Start) -> None:
        """Read those that are served, and look for more kinds from time to time."""
        while not await self._look(start):
            await self._pace.sleep(RETRY_SECONDS)
        await asyncio.gather(*(informer.synced.wait() for informer in self.informers.values()))
        start(self._look_again(start))

    async def _look_again(self, start: Start) -> NoReturn:
        while True:
            await self._pace.sleep(LOOK_SECONDS)
            await self._look(start)

    async def _look(self, start: Start) -> bool:
        """Watch the kinds that are served by now; tell whether the API server answered."""
        try:
            for key, resource in (await self._served()).items():
                namespaces = self._exceptions if resource.kind == exceptions.KIND else ("",)
                for namespace in namespaces:
                    of_kind = (*key, namespace) if namespace else key
                    if of_kind not in self.informers and await self._may_read(resource, namespace):
                        self._watch(of_kind, resource, namespace, start)
        except ApiError as error:
            log.warning("kyverno_unknown", reason=str(error), hint=error.hint)
            return False
        return True

    def _watch(
        self, key: tuple[str, ...], resource: Resource, namespace: str, start: Start
    ) -> None:
        given = self._reader, resource, self._in_force, self._note
        kind = _KindPolicies(*given, pace=self._pace, namespace=namespace)
        self.informers[key] = kind.informer
        start(kind.informer.run())

    async def _may_read(self, resource: Resource, namespace: str) -> bool:
        """Tell whether the account may read what policies can do without; that of policies must.

        Raises:
            ApiError: If the API server does not answer.
        """
        if resource.kind not in ADDITIONS:
            return True
        try:
            await self._reader.page(resource, into=PartialObject, limit=1, namespace=namespace)
        except ForbiddenError as error:
            log.warning("kyverno_left_out", kind=resource.kind, reason=str(error), hint=error.hint)
            return False
        return True

    async def _served(self) -> dict[tuple[str, str], Resource]:
        """Return the kinds that are served, each in the first of its versions."""
        found: dict[tuple[str, str], Resource] = {}
        for group, kinds in KYVERNO_KINDS.items():
            wanted = {*kinds, *({exceptions.KIND} if self._exceptions else ())}
            wanted |= {ENTRIES_KIND} if group == cluster_policies.GROUP else set()
            for version in VERSIONS[group]:
                for resource in await served_resources(self._reader, f"{group}/{version}"):
                    if resource.kind in wanted:
                        found.setdefault((group, resource.kind), resource)
        return found

"""Jobs that other jobs have made: they have no quota themselves, and wait for those."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from policyd.alloc.settings import Gates
from policyd.api.kueue import PodSet, Workload
from policyd.api.meta import ObjectMeta, OwnerReference
from policyd.controller.jobs.owners import SeenOwners
from policyd.controller.patches import draft_of, versioned
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.mirrors import job_resource
from policyd.controller.watch.running_pods import CLAIMS
from policyd.controller.writes import Writes
from policyd.jobs.ancestors import (
    LONGEST_CHAIN,
    AncestorError,
    NestingError,
    group_kind,
    is_known,
    managed_ancestor,
    may_queue,
)
from policyd.jobs.base import JobKind, JobObject, controller_of
from policyd.jobs.kinds.registry import kind_of_owner
from policyd.jobs.lifecycle import is_finished
from policyd.jobs.requests import RequestRules
from policyd.jobs.slices import latest_active, may_grow
from policyd.kube.client import PartialObject
from policyd.kube.errors import NotFoundError
from policyd.workload.transitions import is_admitted
from policyd.workload.usage_book import usage_of


class Children:
    """Has the jobs of one kind follow those that they belong to."""

    def __init__(self, kind: JobKind[Any], cache: Cache, writes: Writes) -> None:
        self._kind = kind
        self._cache = cache
        self._writes = writes
        self._resource = job_resource(kind)
        self._seen = SeenOwners(cache.mirrors, writes)

    async def follow(self, job: JobObject, *, gates: Gates) -> bool:
        """Suspend a job until the one that it belongs to may run, if it belongs to one.

        Returns:
            Whether it does, or that cannot be known, so that there is nothing else to do for it.

        Raises:
            ApiError: If it could not be suspended, or an owner not be looked up.
        """
        unwatched = await self._unwatched(job.metadata)
        try:
            owner = self._owner(job.metadata, unwatched)
        except NestingError as error:
            message = f"cannot tell which job this one belongs to: {error}"
            self._writes.record(
                self._resource, job.metadata, "JobNestingTooDeep", message, warning=True
            )
            return True
        if owner is not None and group_kind(owner) in self._cache.integrations.external:
            return True
        parent = None if owner is None else self._job(owner, job.metadata.namespace)
        kind = None if owner is None else kind_of_owner(owner)
        if owner is None or parent is None or kind is None:
            return False
        workloads = self._cache.workloads_of(parent.metadata.uid)
        elastic = may_grow(kind, parent.metadata, gates)
        if not (elastic or self._fits(job, workloads)):
            message = (
                f"asks for more than {owner.kind} `{owner.name}` was admitted with, so that it"
                " cannot be a part of it: it queues by itself"
            )
            self._writes.record(
                self._resource, job.metadata, "NotOfItsOwner", message, warning=True
            )
            return False
        if elastic:
            # The child may state the size of the running job.
            self._cache.hooks.reconcile(
                ReconcileKey("Job", job.metadata.namespace, owner.name, owner.kind)
            )
        if not (self._kind.suspended(job) or _may_run(workloads, elastic=elastic)):
            await self._suspend(job)
        return True

    async def look(self, path: str, *, gates: Gates) -> None:
        """Suspend a job that names no queue, until the one that it belongs to may run.

        Of such jobs only the owners are watched, so that the job itself is read now.

        Raises:
            ApiError: If it could not be read or suspended.
        """
        children = self._cache.mirrors.children.get(self._kind.kind)
        child = None if children is None else children.get(path)
        if child is None:
            return
        unwatched = await self._unwatched(child.metadata)
        if self._may_run(child.metadata, unwatched, gates=gates):
            return
        metadata, mirror = child.metadata, self._cache.mirrors.jobs[self._kind.kind]
        with suppress(NotFoundError):
            job = await self._writes.client.get(
                self._resource, metadata.name, namespace=metadata.namespace, into=self._kind.type
            )
            if self._kind.suspended(job) or self._kind.outcome(job) is not None:
                return
            try:
                await self._suspend(job)
            finally:
                mirror.forget(path)  # it is not watched there, so it would never be removed

    def _may_run(
        self, child: ObjectMeta, unwatched: Mapping[str, ObjectMeta], *, gates: Gates
    ) -> bool:
        """Tell whether nothing speaks against a job that names no queue."""
        try:
            owner = self._owner(child, unwatched)
        except NestingError:
            return True
        parent = None if owner is None else self._job(owner, child.namespace)
        kind = None if owner is None else kind_of_owner(owner)
        if parent is None or kind is None or kind.outcome(parent) is not None:
            return True
        workloads = self._cache.workloads_of(parent.metadata.uid)
        return _may_run(workloads, elastic=may_grow(kind, parent.metadata, gates))

    def _fits(self, job: JobObject, workloads: Iterable[Workload]) -> bool:
        """Tell whether a job requests no more than its owner was admitted with.

        The webhooks check which user creates a job for an owner; this is for jobs that were created
        while the webhooks did not run.
        """
        admitted = [each for each in workloads if is_admitted(each)]
        if self._cache.integrations.makers.trusted or not admitted:
            return True
        rules = self._cache.request_rules(job.metadata.namespace)
        wanted = _requested(self._kind.pod_sets(job), rules)
        given = _requested((each for one in admitted for each in one.spec.pod_sets), rules)
        return all(given[name] >= amount for name, amount in wanted.items())

    async def _unwatched(self, job: ObjectMeta) -> dict[str, ObjectMeta]:
        """Look up the owners of a job whose kinds are off, and so not watched, by uid."""
        found: dict[str, ObjectMeta] = {}
        above: ObjectMeta | None = job
        for _ in range(LONGEST_CHAIN):
            owner = None if above is None else controller_of(above)
            name = ("", "") if owner is None else group_kind(owner)
            if owner is None or not is_known(name):
                break
            if may_queue(name, self._cache.integrations):
                above = self._watched(owner, job.namespace)
                continue
            above = await self._seen.find(owner, job.namespace)
            if above is not None:
                found[owner.uid] = above
        return found

    def _watched(self, owner: OwnerReference, namespace: str) -> ObjectMeta | None:
        found = self._job(owner, namespace) or self._child(owner, namespace)
        return None if found is None else found.metadata

    def _owner(self, job: ObjectMeta, unwatched: Mapping[str, ObjectMeta]) -> OwnerReference | None:
        """Return the job in a queue that this one belongs to, if it belongs to one."""

        def lookup(owner: OwnerReference) -> ObjectMeta:
            found = unwatched.get(owner.uid) or self._watched(owner, job.namespace)
            # Jobs of other kinds without a queue are not watched, so their owners are not known.
            return ObjectMeta(uid=owner.uid) if found is None else found

        try:
            return managed_ancestor(job, lookup, integrations=self._cache.integrations)
        except NestingError:
            raise
        except AncestorError:
            return None  # an object that owns itself has no owner

    def _job(self, owner: OwnerReference, namespace: str) -> JobObject | None:
        kind = kind_of_owner(owner)
        if kind is None:
            return None
        found = self._cache.mirrors.jobs[kind.kind].get(f"{namespace}/{owner.name}")
        return found if found is not None and found.metadata.uid == owner.uid else None

    def _child(self, owner: OwnerReference, namespace: str) -> PartialObject | None:
        kind = kind_of_owner(owner)
        children = None if kind is None else self._cache.mirrors.children.get(kind.kind)
        found = None if children is None else children.get(f"{namespace}/{owner.name}")
        return found if found is not None and found.metadata.uid == owner.uid else None

    async def _suspend(self, job: JobObject) -> None:
        draft = draft_of(job)
        self._kind.suspend(draft)
        mirror = self._cache.mirrors.jobs[self._kind.kind]
        await self._writes.patch(mirror, job, versioned(draft, job.metadata), kind="json")
        message = "Kueue managed child job suspended"
        self._writes.record(self._resource, job.metadata, "Suspended", message)


def _requested(pod_sets: Iterable[PodSet], rules: RequestRules) -> Counter[str]:
    """Return what all pods take together."""
    total = Counter[str]()
    for each in pod_sets:
        amounts, claims = usage_of(each.template, rules)
        for resource, amount in ({**amounts, CLAIMS: claims}).items():
            total[resource] += amount * each.count
    return total


def _may_run(workloads: Sequence[Workload], *, elastic: bool) -> bool:
    """Tell whether a job's objects may run: those of an elastic job run on while a slice waits."""
    if not elastic:
        return any(is_admitted(each) for each in workloads)
    unfinished = [each for each in workloads if not is_finished(each)]
    return bool(workloads) if not unfinished else latest_active(unfinished) is not None

"""Writes, as all reconcilers do them: only while leading, and taken in at once.

A write that has begun is not cut off: the server may carry it out all the same, later, when another
process leads, which has decided without it.

So the next leader, which decides by its watches, must not give quota that the last one
has given already: the last writes before it stopped may not have come yet, or may even be
on its way to the server. The last leader waits for its writes, and leaves in the Lease the latest
version of a workload that it wrote; the next one waits until its watch is as far. A process that
lost the Lease, as it or the server was too slow, leaves none, and breaks its writes off before the
Lease runs out: the next one reads all workloads again. A version is not left either if the outcome
of a write is not known.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, Unpack

import structlog

from policyd.api.kueue import Workload, WorkloadStatus
from policyd.api.meta import Json, ObjectMeta
from policyd.controller.patches import status_patch
from policyd.controller.watch.mirror import Mirror
from policyd.kube.client import Client, DeleteOptions, PartialObject, PatchOptions, Reader
from policyd.kube.errors import ApiError, ConflictError, InvalidError, NotFoundError
from policyd.kube.events import EventRecorder
from policyd.kube.informer import Identified, key_of
from policyd.kube.pace import Pace
from policyd.kube.pages import pages
from policyd.kube.resources import PODS, WORKLOADS, Resource

log = structlog.get_logger()

CATCH_UP_SECONDS = 5.0
"""How long a version in the Lease is trusted: after a restore from a backup it may be wrong."""
LOOK_SECONDS = 0.02
"""Between looks at how far the watch has come."""
CARRIED_OUT_SECONDS = 60.0
"""How long the server may work on a write: its own limit."""
AGAIN_SECONDS = 0.5
"""Between tries to read an object that a slow server does not return."""

T = TypeVar("T", bound=Identified)


class NotLeadingError(Exception):
    """Another process may lead by now: nothing must be written."""


class Writes:
    """Writes to the API server and to the mirrors, and records events."""

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        *,
        leading: Callable[[], bool],
        pace: Pace,
    ) -> None:
        self.client = client
        self.recorder = recorder
        self._leading = leading
        self.pace = pace
        self._under_way: set[asyncio.Task[Any]] = set()
        self.count = 0
        """How many writes were tried."""
        self.written = 0
        """The latest version of a workload that was written here, where versions are numbers."""
        self._unclear_until = 0.0

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self.pace.clock.now()

    @property
    def jitter(self) -> float:
        """From 0 to 1, another each time."""
        return self.pace.jitter()

    @property
    def unclear(self) -> bool:
        """Whether the server may still carry out a write to a workload that it did not answer."""
        return self.pace.clock.monotonic() < self._unclear_until

    async def patch(
        self, mirror: Mirror[T], obj: T, patch: object, **options: Unpack[PatchOptions]
    ) -> T:
        """Patch an object and return it as stored.

        Raises:
            NotLeadingError: If this process does not lead.
            ConflictError: If it changed; its mirror has the new version by then.
            NotFoundError: If it was deleted; its mirror has removed it by then.
        """
        self._check()
        options["namespace"] = obj.metadata.namespace
        try:
            stored = await self._carried_out(
                mirror,
                self.client.patch(
                    mirror.resource, obj.metadata.name, patch, into=mirror.into, **options
                ),
            )
        except NotFoundError:
            mirror.lost(obj)
            raise
        except ConflictError:
            await self.look(mirror, key_of(obj))
            raise
        except InvalidError as error:
            await self._outdated(mirror, obj, error)
            raise
        mirror.wrote(stored)
        return stored

    async def _outdated(self, mirror: Mirror[T], obj: T, error: InvalidError) -> None:
        """Raise a conflict instead if the object changed: a patch of an older one may not apply.

        Its operations come before the version is compared: a removed part may already be gone.
        """
        found = await self.look(mirror, key_of(obj))
        before = obj.metadata.resource_version
        if found is not None and found.metadata.resource_version != before:
            raise ConflictError(str(error)) from error

    async def look(self, mirror: Mirror[T], key: str) -> T | None:
        """Read an object as it is now; None if it is not there."""
        namespace, _, name = key.rpartition("/")
        before = mirror.get(key)
        try:
            found = await self.client.get(
                mirror.resource, name, namespace=namespace, into=mirror.into
            )
        except NotFoundError:
            if before is not None:
                mirror.lost(before)
            return None
        mirror.wrote(found)
        return found

    async def status(
        self, mirror: Mirror[Workload], workload: Workload, status: WorkloadStatus
    ) -> Workload:
        """Write the status of a workload, unless it has it already."""
        patch = status_patch(workload, status)
        if patch is None:
            return workload
        return await self.patch(mirror, workload, patch, subresource="status")

    async def create(self, mirror: Mirror[T], body: Json, *, namespace: str) -> T:
        """Create an object and return it as stored.

        Raises:
            AlreadyExistsError: If the name is taken.
        """
        self._check()
        stored = await self._carried_out(
            mirror,
            self.client.create(mirror.resource, body, namespace=namespace, into=mirror.into),
        )
        mirror.wrote(stored)
        return stored

    async def settled(self, *, within: float | None = None) -> None:
        """Wait until no write is under way; after `within` seconds, cancel the rest.

        A cancelled write may have happened or not; but it will not happen later.
        """
        try:
            if within is not None:
                await self.pace.within(within, self.settled())
        except TimeoutError:
            for task in self._under_way:
                task.cancel()
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def delete(self, mirror: Mirror[T], obj: T, *, grace_seconds: int | None = None) -> None:
        """Delete an object, and then the objects that only it owns; a deleted one is not an error.

        Unless the request asks for that, the API server keeps the pods and the workload of a Job.
        A pod has its own grace period if none is given.
        """
        self._check()
        metadata = obj.metadata
        options = DeleteOptions(
            namespace=metadata.namespace, uid=metadata.uid, propagation="Background"
        )
        if grace_seconds is not None:
            options["grace_seconds"] = grace_seconds
        try:
            await self.client.delete(mirror.resource, metadata.name, **options)
        except NotFoundError:
            mirror.lost(obj)

    async def make(self, resource: Resource, body: Json, *, namespace: str) -> None:
        """Create an object of a kind that is not watched.

        Raises:
            AlreadyExistsError: If the name is taken.
            NotFoundError: If the kind or the namespace does not exist.
        """
        self._check()
        await self.client.create(resource, body, namespace=namespace, into=PartialObject)

    async def delete_named(self, resource: Resource, name: str, *, namespace: str) -> None:
        """Delete an object of a kind that is not watched; a deleted one is not an error."""
        self._check()
        with suppress(NotFoundError):
            await self.client.delete(resource, name, namespace=namespace)

    def record(
        self,
        resource: Resource,
        metadata: ObjectMeta,
        reason: str,
        message: str,
        *,
        warning: bool = False,
    ) -> None:
        """Record an event about an object.

        Args:
            resource: The kind of object.
            metadata: Its metadata.
            reason: A CamelCase word.
            message: A sentence.
            warning: Whether a person has to act on it.
        """
        self.recorder.record(
            resource.reference(metadata),
            kind="Warning" if warning else "Normal",
            reason=reason,
            message=message,
        )

    def record_held(self, pod: ObjectMeta, why: str) -> None:
        """Record that a pod keeps its gate, as it asks for more than was admitted."""
        if why:
            self.record(PODS, pod, "MoreThanAdmitted", f"{why}; it stays held", warning=True)

    async def _carried_out(self, mirror: Mirror[T], write: Coroutine[Any, Any, T]) -> T:
        """Wait for a write, which goes on if the waiting task is cancelled."""
        task = asyncio.ensure_future(write)
        self._under_way.add(task)
        task.add_done_callback(partial(self._ended, mirror.resource))
        return await asyncio.shield(task)

    def _ended(self, resource: Resource, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if resource != WORKLOADS:
            return
        if error is not None:
            if not (isinstance(error, ApiError) and error.refused):
                self._unclear_until = self.pace.clock.monotonic() + CARRIED_OUT_SECONDS
            return
        version = task.result().metadata.resource_version
        if version.isdecimal():
            self.written = max(self.written, int(version))

    def must_lead(self) -> None:
        """Make sure that this process leads, before a write to another cluster.

        Raises:
            NotLeadingError: If it does not.
        """
        self._check()

    def _check(self) -> None:
        if not self._leading():
            raise NotLeadingError
        self.count += 1


class Handover:
    """Passes the latest written version from one leader to the next."""

    def __init__(
        self, reader: Reader, writes: Writes, workloads: Mirror[Workload], *, pace: Pace
    ) -> None:
        self._reader = reader
        self._writes = writes
        self._workloads = workloads
        self._pace = pace
        self._caught_up = 0

    async def latest_version(self) -> str:
        """Return, once nothing is under way, which version of workloads is the latest known here.

        A leader that wrote nothing passes on the version of the one before; one that does not know
        what became of a write passes on none.
        """
        await self._writes.settled()
        if self._writes.unclear:
            return ""
        known = self._workloads.informer.version
        return str(max(self._writes.written, self._caught_up, known))

    async def catch_up(self, left: str) -> None:
        """Wait until the writes of the last leader, and earlier ones of this process, are known.

        A process that leads again after it lost the Lease may have writes under way whose decisions
        it has dropped.

        Args:
            left: The version it left; empty if it left none, and was away for a whole term.
        """
        await self._writes.settled()
        if left.isdecimal() and await self._reaches(max(int(left), self._writes.written)):
            return
        while not await self._read_again():
            await self._pace.sleep(AGAIN_SECONDS)

    async def _reaches(self, version: int) -> bool:
        """Wait until the watch of workloads is as far as a version; tell whether it is."""
        until = self._pace.clock.monotonic() + CATCH_UP_SECONDS
        while not self._workloads.informer.has_reached(version):
            if self._pace.clock.monotonic() >= until:
                log.warning("workloads_behind", version=version)
                return False
            await self._pace.sleep(LOOK_SECONDS)
        self._caught_up = version
        return True

    async def _read_again(self) -> bool:
        """Take in all workloads as the server has them: on a slow one watches are far behind."""
        mirror = self._workloads
        try:
            async for page in pages(self._reader, mirror.resource, into=mirror.into):
                for workload in page.items:
                    mirror.wrote(workload)
                if page.resource_version.isdecimal():
                    self._caught_up = max(self._caught_up, int(page.resource_version))
        except ApiError as error:
            log.warning("workloads_not_read", error=str(error))
            return False
        return True

"""Writes, as all reconcilers do them: only while leading, and taken in at once.

A write that has begun is not cut off: the server may carry it out all the same, later, when
somebody else leads, who has decided without it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, Unpack

from policyd.api.kueue import Workload, WorkloadStatus
from policyd.api.meta import Json, ObjectMeta
from policyd.controller.patches import status_patch
from policyd.controller.watch.mirror import Mirror
from policyd.kube.client import Client, DeleteOptions, PartialObject, PatchOptions
from policyd.kube.errors import ConflictError, InvalidError, NotFoundError
from policyd.kube.events import EventRecorder
from policyd.kube.informer import Identified, key_of
from policyd.kube.pace import Pace
from policyd.kube.resources import WORKLOADS, Resource

T = TypeVar("T", bound=Identified)


class NotLeadingError(Exception):
    """Somebody else may be leading by now: nothing must be written."""


class Writes:
    """Writes to the API server and to the mirrors, and tells what happened in events."""

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

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self.pace.clock.now()

    @property
    def chance(self) -> float:
        """From 0 to 1, another each time."""
        return self.pace.chance()

    async def patch(
        self, mirror: Mirror[T], obj: T, patch: object, **options: Unpack[PatchOptions]
    ) -> T:
        """Patch an object and return it as stored.

        Raises:
            NotLeadingError: If this process does not lead.
            ConflictError: If it changed; its mirror has the new version by then.
            NotFoundError: If it is gone; its mirror has forgotten it by then.
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
            mirror.forget(key_of(obj))
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

        Its operations come before the version is compared: what one of them removes may be gone.
        """
        found = await self.look(mirror, key_of(obj))
        before = obj.metadata.resource_version
        if found is not None and found.metadata.resource_version != before:
            raise ConflictError(str(error)) from error

    async def look(self, mirror: Mirror[T], key: str) -> T | None:
        """Read an object as it is now; None if it is not there."""
        namespace, _, name = key.rpartition("/")
        try:
            found = await self.client.get(
                mirror.resource, name, namespace=namespace, into=mirror.into
            )
        except NotFoundError:
            mirror.forget(key)
            return None
        mirror.wrote(found)
        return found

    async def status(
        self, mirror: Mirror[Workload], workload: Workload, status: WorkloadStatus
    ) -> Workload:
        """Give a workload a status; nothing is written if it has it."""
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
        """Wait until no write is under way; what takes longer than `within` seconds is broken off.

        Nobody knows whether a write happened that was broken off; but it will not happen later.
        """
        try:
            if within is not None:
                await self.pace.within(within, self.settled())
        except TimeoutError:
            for task in self._under_way:
                task.cancel()
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def delete(self, mirror: Mirror[T], obj: T) -> None:
        """Delete an object, and then what only it owns; it is no error if it is gone.

        Unless that is said, the API server keeps the pods and the workload of a Job.
        """
        self._check()
        metadata = obj.metadata
        options = DeleteOptions(
            namespace=metadata.namespace, uid=metadata.uid, propagation="Background"
        )
        try:
            await self.client.delete(mirror.resource, metadata.name, **options)
        except NotFoundError:
            mirror.forget(key_of(obj))

    async def make(self, resource: Resource, body: Json, *, namespace: str) -> None:
        """Create an object of a kind that is not watched.

        Raises:
            AlreadyExistsError: If the name is taken.
            NotFoundError: If there is no such kind, or no such namespace.
        """
        self._check()
        await self.client.create(resource, body, namespace=namespace, into=PartialObject)

    async def unmake(self, resource: Resource, name: str, *, namespace: str) -> None:
        """Delete an object of a kind that is not watched; it is no error if it is gone."""
        self._check()
        with suppress(NotFoundError):
            await self.client.delete(resource, name, namespace=namespace)

    def tell(
        self,
        resource: Resource,
        metadata: ObjectMeta,
        reason: str,
        message: str,
        *,
        bad: bool = False,
    ) -> None:
        """Record an event about an object.

        Args:
            resource: What kind of object it is.
            metadata: Which one.
            reason: A CamelCase word.
            message: A sentence.
            bad: Whether somebody should look.
        """
        self.recorder.record(
            resource.reference(metadata),
            kind="Warning" if bad else "Normal",
            reason=reason,
            message=message,
        )

    async def _carried_out(self, mirror: Mirror[T], write: Coroutine[Any, Any, T]) -> T:
        """Wait for a write, which goes on if whoever waits is cancelled."""
        task = asyncio.ensure_future(write)
        self._under_way.add(task)
        task.add_done_callback(partial(self._ended, mirror.resource))
        return await asyncio.shield(task)

    def _ended(self, resource: Resource, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if task.cancelled() or task.exception() is not None or resource != WORKLOADS:
            return
        version = task.result().metadata.resource_version
        if version.isdecimal():
            self.written = max(self.written, int(version))

    def _check(self) -> None:
        if not self._leading():
            raise NotLeadingError
        self.count += 1

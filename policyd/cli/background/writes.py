"""The writes of `policyd background`, each only while this process leads, and their record."""

import asyncio
import base64
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import structlog

from policyd.api.meta import Json, ObjectMeta, rfc3339
from policyd.cli.background.deletions import SeenUpTo
from policyd.engine.background.plan import replacement
from policyd.engine.background.record import (
    ObjectName,
    RecordDamagedError,
    RecordedObject,
    name_of,
    packed,
    unpacked,
)
from policyd.engine.objects.workloads import value_at
from policyd.kube.client import Client, PartialObject, Propagation
from policyd.kube.errors import ApiError, NotFoundError, UnreachableError
from policyd.kube.pages import whole
from policyd.kube.resources import CONFIG_MAPS, EVENTS, Resource

COMPONENT: Final = "policyd-background"
"""The field manager of generated objects, and the source of events."""

WRITE_SECONDS: Final = 4.0
"""For one write: it ends before another process may lead."""

T = TypeVar("T")

log = structlog.get_logger()


class LeadershipLostError(ApiError):
    """Another process may write by now."""


class PassLine(NamedTuple):
    """What was done to an object, or what is wrong with a policy.

    Attributes:
        what: The kind and names of the object.
        policy: The policy it was done for.
        done: What was done.
        failed: Whether it failed.
        written: `create`, `update`, `mutate` or `delete` if the object was written.
    """

    what: str
    policy: str
    done: str
    failed: bool = False
    written: str = ""


class PassWrites:
    """Writes objects, and counts them."""

    def __init__(self, client: Client, *, leading: Callable[[], bool], now: float) -> None:
        """Write as of a time, in seconds since the epoch."""
        self._client = client
        self._leading = leading
        self._now = now
        self.number = 0
        """How many writes there were."""

    async def put(self, resource: Resource, obj: Json, existing: Json) -> Json:
        """Create a generated object, or replace the one that exists; return it as stored.

        Args:
            resource: Where it is.
            obj: The object as it is wanted.
            existing: The object as it was read; None to create one.

        Raises:
            ApiError: If it cannot be written: an AlreadyExistsError or a ConflictError if it is not
                as it was read.
        """
        self._begin()
        namespace = name_of(obj).namespace
        if existing is None:
            write = self._client.create(
                resource, obj, into=dict, field_manager=COMPONENT, namespace=namespace
            )
        else:
            write = self._client.replace(
                resource,
                replacement(obj, existing),
                into=dict,
                field_manager=COMPONENT,
                namespace=namespace,
            )
        return whole(resource, await _in_time(write))

    async def mutate(
        self, resource: Resource, before: Json, obj: Json, policies: Sequence[str], what: str
    ) -> None:
        """Replace an object by its mutated form, and say so in an Event.

        Args:
            resource: Where it is.
            before: The object as it was read.
            obj: The mutated object, with the version that was read.
            policies: The ids of the policies that mutate it.
            what: What was done, in a few words.

        Raises:
            ApiError: If it cannot be written: a ConflictError if it is not as it was read.
        """
        self._begin()
        name = name_of(obj)
        write = self._client.replace(
            resource, obj, into=dict, field_manager=COMPONENT, namespace=name.namespace
        )
        await _in_time(write)
        message = f"{what} for {', '.join(policies)}"
        await self._report(name, _event(before, "PolicyApplied", message, self._now))

    async def delete(
        self,
        resource: Resource,
        obj: Json,
        policy: str,
        why: str,
        propagation: Propagation | None,
    ) -> None:
        """Delete an object as it was read, and say so in an Event and in the log.

        Raises:
            ApiError: If it cannot be deleted, such as a ConflictError if it has changed.
        """
        self._begin()
        name, metadata = name_of(obj), obj["metadata"]
        await _in_time(
            self._client.delete(
                resource,
                name.name,
                namespace=name.namespace,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                propagation=propagation or "Background",
            )
        )
        event = _event(obj, "PolicyDeleted", f"deleted by {policy}: {why}", self._now)
        await self._report(name, event)

    async def _report(self, name: ObjectName, event: Json) -> None:
        try:
            await self._client.create(
                EVENTS, event, namespace=name.namespace or "default", into=PartialObject
            )
        except ApiError as error:  # such as in a namespace that is being deleted
            log.info("event_left_out", object=str(name), reason=str(error))

    def _begin(self) -> None:
        if not self._leading():
            raise LeadershipLostError("another process leads by now")
        self.number += 1


async def _in_time(write: Coroutine[Any, Any, T]) -> T:
    """Await a write, while no other process can lead.

    Raises:
        ApiError: If it does not succeed; an UnreachableError if it takes too long.
    """
    try:
        return await asyncio.wait_for(write, WRITE_SECONDS)
    except TimeoutError:
        raise UnreachableError(f"no answer in {WRITE_SECONDS:.0f} seconds") from None


def _event(obj: Json, reason: str, message: str, now: float) -> Json:
    name, at = name_of(obj), rfc3339(now)
    uid = str(value_at(obj, ("metadata", "uid")))
    return {
        "metadata": {
            "name": f"{name.name[:200]}.{uid[:8]}.{int(now * 1e6):x}",
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
        "reason": reason,
        "message": message[:1000],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


KEY: Final = "generated"
DELETIONS: Final = "deletions"
"""In the ConfigMap."""


class _Stored(msgspec.Struct, frozen=True, rename="camel"):
    """The ConfigMap, as far as it is read."""

    metadata: ObjectMeta = ObjectMeta()
    binary_data: dict[str, str] = {}
    data: dict[str, str] = {}


class StoredRecord:
    """The record, as it was read and as it is to be.

    Each write is bound to the version that was read: of two processes, one fails.
    """

    def __init__(self, client: Client, place: str) -> None:
        """Prepare.

        Args:
            client: The API server.
            place: The ConfigMap, as `namespace/name`.
        """
        self._client = client
        self._namespace, _, self._name = place.partition("/")
        self._version = ""
        self._body = b""
        self._seen: dict[str, SeenUpTo] = {}
        self.entries: dict[ObjectName, RecordedObject] = {}
        """What is recorded; to be changed, and then saved."""
        self.seen: dict[str, SeenUpTo] = {}
        """How far the deletions of resources have been acted on; likewise."""

    async def read(self) -> None:
        """Read the record; it is empty if there is none.

        Raises:
            ApiError: If it cannot be read.
            RecordDamagedError: If it cannot be understood.
        """
        try:
            stored = await self._client.get(
                CONFIG_MAPS, self._name, namespace=self._namespace, into=_Stored
            )
        except NotFoundError:
            self._version, self._body, self.entries = "", b"", {}
            self._seen, self.seen = {}, {}
            return
        self._version = stored.metadata.resource_version
        text = stored.binary_data.get(KEY, "")
        try:
            self._body = base64.b64decode(text, validate=True)
            seen = stored.data.get(DELETIONS, "{}")
            self._seen = msgspec.json.decode(seen, type=dict[str, SeenUpTo])
        except ValueError as error:
            raise RecordDamagedError(f"the record is neither base64 nor JSON: {error}") from error
        self.entries, self.seen = unpacked(self._body) if self._body else {}, self._seen

    async def save(self) -> None:
        """Store the record if it has changed.

        Raises:
            ApiError: If it cannot be stored, such as a ConflictError if another process did.
            RecordFullError: If it has too many objects.
        """
        body = packed(self.entries) if self.entries or self._body else b""
        if body == self._body and self.seen == self._seen:
            return
        data = {
            "binaryData": {KEY: base64.b64encode(body).decode()},
            "data": {DELETIONS: msgspec.json.encode(self.seen).decode()},
        }
        place = {"namespace": self._namespace}
        if self._version:
            patch = {"metadata": {"resourceVersion": self._version}, **data}
            stored = await self._client.patch(
                CONFIG_MAPS, self._name, patch, into=_Stored, namespace=self._namespace
            )
        else:
            made = {"metadata": {"name": self._name, **place}, **data}
            stored = await self._client.create(
                CONFIG_MAPS, made, into=_Stored, namespace=self._namespace
            )
        self._version, self._body = stored.metadata.resource_version, body
        self._seen = self.seen

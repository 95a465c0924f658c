"""The record of generated objects, in a ConfigMap that only the account of the command writes."""

import base64
from typing import Final

import msgspec

from policyd.api.meta import ObjectMeta
from policyd.engine.background.record import (
    ObjectName,
    RecordDamagedError,
    RecordedObject,
    packed,
    unpacked,
)
from policyd.kube.client import Client
from policyd.kube.errors import NotFoundError
from policyd.kube.resources import CONFIG_MAPS

KEY: Final = "generated"
"""In the ConfigMap."""


class _Stored(msgspec.Struct, frozen=True, rename="camel"):
    """The ConfigMap, as far as it is read."""

    metadata: ObjectMeta = ObjectMeta()
    binary_data: dict[str, str] = {}


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
        self.entries: dict[ObjectName, RecordedObject] = {}
        """What is recorded; to be changed, and then saved."""

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
            return
        self._version = stored.metadata.resource_version
        text = stored.binary_data.get(KEY, "")
        try:
            self._body = base64.b64decode(text, validate=True)
        except ValueError as error:
            raise RecordDamagedError(f"the record is not base64: {error}") from error
        self.entries = unpacked(self._body) if self._body else {}

    async def save(self) -> None:
        """Store the record if it has changed.

        Raises:
            ApiError: If it cannot be stored, such as a ConflictError if another process did.
            RecordFullError: If it has too many objects.
        """
        body = packed(self.entries) if self.entries or self._body else b""
        if body == self._body:
            return
        data = {"binaryData": {KEY: base64.b64encode(body).decode()}}
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

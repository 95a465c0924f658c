"""Bytes that a process stores in a ConfigMap, to have them after a restart."""

import base64

import msgspec

from policyd.kube.client import Client, Reader
from policyd.kube.errors import NotFoundError
from policyd.kube.resources import CONFIG_MAPS


class _Stored(msgspec.Struct, frozen=True, rename="camel"):
    """The ConfigMap, as far as it is read."""

    binary_data: dict[str, str] = {}


async def read_bytes(reader: Reader, place: str, key: str) -> bytes | None:
    """Return what is stored; None if the ConfigMap or the key does not exist.

    Args:
        reader: The API server.
        place: The ConfigMap, as `namespace/name`.
        key: The key in its `binaryData`.

    Raises:
        ApiError: If the ConfigMap cannot be read.
        ValueError: If the value is not base64.
    """
    namespace, _, name = place.partition("/")
    try:
        stored = await reader.get(CONFIG_MAPS, name, namespace=namespace, into=_Stored)
    except NotFoundError:
        return None
    text = stored.binary_data.get(key)
    return None if text is None else base64.b64decode(text, validate=True)


async def write_bytes(client: Client, place: str, key: str, body: bytes) -> None:
    """Store bytes, and create the ConfigMap if it does not exist.

    Args:
        client: The API server.
        place: The ConfigMap, as `namespace/name`.
        key: The key in its `binaryData`; the other keys stay.
        body: The bytes.

    Raises:
        ApiError: If the ConfigMap cannot be written.
    """
    namespace, _, name = place.partition("/")
    data = {"binaryData": {key: base64.b64encode(body).decode()}}
    try:
        await client.patch(CONFIG_MAPS, name, data, namespace=namespace, into=_Stored)
    except NotFoundError:
        made = {"metadata": {"name": name, "namespace": namespace}, **data}
        await client.create(CONFIG_MAPS, made, namespace=namespace, into=_Stored)

"""Reading Kubernetes' protobuf bodies, which kubectl's `create` commands send.

Nothing is ever written in protobuf: every client that sends it reads JSON as well.
"""

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Final

import msgspec

from policyd.api import kinds
from policyd.api.data import tables
from policyd.api.kinds import FieldType
from policyd.api.meta import Json
from policyd.local.apiserver.status import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"

OPTIONS = {"DeleteOptions": "meta/v1.DeleteOptions"}
"""Kinds that belong to every group."""

EXTRA_KINDS = {
    "Binding": "core/v1.Binding",
    "Eviction": "policy/v1.Eviction",
    "Scale": "autoscaling/v1.Scale",
}
"""Kinds that are sent to subresources."""

Wire = int | bytes


class ProtobufError(Exception):
    """A body is not protobuf of a kind that can be read."""


def decode_protobuf(body: bytes) -> Object:
    """Read an object in Kubernetes' envelope.

    Raises:
        ProtobufError: If it is broken, or of a kind whose numbers are not known.
    """
    if not body.startswith(MAGIC):
        raise ProtobufError("the body is not in Kubernetes' protobuf envelope")
    try:
        envelope = dict(_fields(body[len(MAGIC) :]))
        about = {number: _text(value) for number, value in _fields(_bytes(envelope.get(1, b"")))}
        api_version, kind = about.get(1, ""), about.get(2, "")
        decoded = _struct(_bytes(envelope.get(2, b"")), _type_name(api_version, kind))
    except (IndexError, UnicodeDecodeError, struct.error) as error:
        raise ProtobufError(f"the body is broken protobuf: {error}") from error
    return {"apiVersion": api_version, "kind": kind, **decoded}


def _type_name(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    found = kinds.resource_for_kind(group, version, kind)
    name = OPTIONS.get(kind) or (found.type_name if found else EXTRA_KINDS.get(kind, ""))
    if not (name and _names(name)):
        raise ProtobufError(f"{api_version} {kind} cannot be read from protobuf")
    return name


def _fields(data: bytes) -> Iterator[tuple[int, Wire]]:
    """Yield a message's field numbers and values, as they come."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                value, position = _varint(data, position)
                yield tag >> 3, value
            case 1:
                yield tag >> 3, data[position : position + 8]
                position += 8
            case 2:
                length, position = _varint(data, position)
                if position + length > len(data):
                    raise IndexError("it ends too early")
                yield tag >> 3, data[position : position + length]
                position += length
            case _:
                raise IndexError(f"wire type {tag & 7} is not used")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _bytes(value: Wire) -> bytes:
    if isinstance(value, int):
        raise IndexError("a number stands where a message should")
    return value


def _text(value: Wire) -> str:
    return _bytes(value).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbered:
    """A field in protobuf, from the table of kinds."""

    number: tuple[int, ...] = ()
    """Its number; two for a field one level higher in JSON, none if no client sends its type."""
    pointer: bool = False
    """Whether its zero value says something."""


_FIELDS: Final = msgspec.json.Decoder(dict[str, _Numbered])


@cache
def _names(type_name: str) -> Mapping[tuple[int, ...], str]:
    """Return the fields of a type by their numbers."""
    numbered = _FIELDS.decode(tables().types[type_name])
    return {field.number: name for name, field in numbered.items() if field.number}


@cache
def _pointers(type_name: str) -> frozenset[str]:
    numbered = _FIELDS.decode(tables().types[type_name])
    return frozenset(name for name, field in numbered.items() if field.pointer)


def _struct(data: bytes, type_name: str) -> Object:
    names, known = _names(type_name), kinds.fields(type_name)
    inlined = {path[0] for path in names if len(path) > 1}
    decoded: Object = {}
    for number, value in _fields(data):
        parts: list[tuple[tuple[int, ...], Wire]] = [((number,), value)]
        if number in inlined:
            parts = [((number, inner), part) for inner, part in _fields(_bytes(value))]
        for path, part in parts:
            name = names.get(path)
            if name is not None:
                _add(decoded, name, part, known[name])
    # Go writes the zero values of fields that are not pointers: they are unset.
    kept = _pointers(type_name)
    return {k: v for k, v in decoded.items() if k in kept or v not in ("", 0, None)}


def _add(decoded: Object, name: str, value: Wire, field: FieldType) -> None:
    if field.shape == "list":
        assert field.element is not None
        decoded.setdefault(name, []).append(_value(value, field.element))
    elif field.shape == "map":
        assert field.element is not None
        entry = dict(_fields(_bytes(value)))
        key = _text(entry.get(1, b""))
        decoded.setdefault(name, {})[key] = _map_value(entry.get(2, b""), field.element)
    else:
        decoded[name] = _value(value, field)


def _map_value(value: Wire, field: FieldType) -> Json:
    if field.shape == "list":  # a message of its own, as maps hold no repeated fields
        assert field.element is not None
        return [_value(item, field.element) for _, item in _fields(_bytes(value))]
    return _value(value, field)


def _value(value: Wire, field: FieldType) -> Json:
    if field.struct is not None:
        return _struct(_bytes(value), field.struct)
    read = SCALARS.get(field.scalar or "any", _raw)
    return read(value)


def _signed(value: Wire) -> int:
    if not isinstance(value, int):
        raise IndexError("a message stands where a number should")
    return value - (1 << 64) if value >= 1 << 63 else value


def _int_or_string(parts: Mapping[int, Wire]) -> int | str:
    return _text(parts.get(3, b"")) if parts.get(1) else _signed(parts.get(2, 0))


def _time(parts: Mapping[int, Wire], *, micro: bool) -> str | None:
    if not parts:
        return None
    at = datetime.fromtimestamp(_signed(parts.get(1, 0)), tz=UTC)
    text = at.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{_signed(parts.get(2, 0)) // 1000:06}Z" if micro else f"{text}Z"


def _raw(value: Wire) -> Json:
    found = dict(_fields(_bytes(value))).get(1, b"")
    return msgspec.json.decode(_bytes(found)) if found else None


SCALARS: Mapping[str, Callable[[Wire], Json]] = {
    "string": _text,
    "bool": bool,
    "int32": _signed,
    "int64": _signed,
    "double": lambda value: struct.unpack("<d", _bytes(value))[0],
    "bytes": lambda value: base64.b64encode(_bytes(value)).decode(),
    "quantity": lambda value: _text(dict(_fields(_bytes(value))).get(1, b"0")),
    "intstr": lambda value: _int_or_string(dict(_fields(_bytes(value)))),
    "time": lambda value: _time(dict(_fields(_bytes(value))), micro=False),
    "microtime": lambda value: _time(dict(_fields(_bytes(value))), micro=True),
}
"""How each scalar is read; any other is JSON in a message."""

"""Predict which fields Go's types always write, and which they omit when empty.

OpenAPI documents say neither: this comes from the tags of the types. What these do not mark is
left out if it is unset and written as it was given, as a pointer, unless it is required, or a
struct that is always there. What is always present is what users and controllers meet in statuses,
events and pods.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Final, Literal

import msgspec

from policyd.api.data import tables
from policyd.api.meta import Json

Object = dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class _GoField:
    """The rules of a Go type for one field; none for a field that is omitted only if unset."""

    unset: Literal["", "omitted", "null", "zero"] = ""
    written: Json | msgspec.UnsetType = msgspec.UNSET


_FIELDS: Final = msgspec.json.Decoder(dict[str, _GoField])


@cache
def _fields(type_name: str) -> Mapping[str, _GoField]:
    return _FIELDS.decode(tables().types[type_name])


@cache
def unset(type_name: str, what: Literal["omitted", "null", "zero"]) -> frozenset[str]:
    """Return which fields of a struct are `what` if they have no value.

    Args:
        type_name: The struct.
        what: `omitted` for those whose zero value is as good as none, `null` and `zero` for those
            that are written so if they are unset.

    Raises:
        KeyError: If the table of kinds has no such struct.
    """
    return frozenset(name for name, field in _fields(type_name).items() if field.unset == what)


@cache
def present(type_name: str) -> Mapping[str, Json]:
    """Return the fields that a struct is never written without, and their zero values.

    Raises:
        KeyError: If the table of kinds has no such struct.
    """
    found = _fields(type_name).items()
    return {n: field.written for n, field in found if field.written is not msgspec.UNSET}


LAYOUTS = {"time": "2006-01-02T15:04:05Z07:00", "microtime": "2006-01-02T15:04:05.000000Z07:00"}
_DATE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
_ZONE = r"(Z|[+-]\d\d:\d\d)"
_TIMES = {
    "time": re.compile(rf"{_DATE}(\.\d+)?{_ZONE}"),
    "microtime": re.compile(rf"{_DATE}\.\d{{6}}\d*{_ZONE}"),
}
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=\r\n]")


def completed(decoded: Object, type_name: str) -> None:
    """Add the fields that a struct's type always writes, in place; remove those it omits."""
    for name in unset(type_name, "omitted"):
        if decoded.get(name) in ("", 0):
            del decoded[name]
    for name, empty in present(type_name).items():
        if name not in decoded:
            decoded[name] = _copied(empty)


def _copied(value: Json) -> Json:
    return {name: _copied(part) for name, part in value.items()} if type(value) is dict else value


def canonical_time(text: str, scalar: str) -> str:
    """Write a time as the API does: in UTC, with no fraction, or with microseconds.

    Raises:
        ValueError: If it is none; the text is Go's.
    """
    moment = _moment(text) if _TIMES[scalar].fullmatch(text) else None
    if moment is None:
        layout = LAYOUTS[scalar]
        raise ValueError(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"')
    form = "%Y-%m-%dT%H:%M:%SZ" if scalar == "time" else "%Y-%m-%dT%H:%M:%S.%fZ"
    return moment.strftime(form)


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (OverflowError, ValueError):
        return None


def check_base64(text: str) -> None:
    """Check that a value is valid base64.

    Raises:
        ValueError: If it is not base64; the text is Go's.
    """
    found = _NOT_BASE64.search(text)
    if found:
        raise ValueError(f"illegal base64 data at input byte {found.start()}")
    try:
        base64.b64decode(text, validate=False)
    except binascii.Error:
        raise ValueError(f"illegal base64 data at input byte {len(text)}") from None

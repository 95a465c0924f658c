"""Decode an object of a built-in kind as the API server's types do.

A field that no type knows is left out and named; null is as good as absent; an empty list or map is
none; quantities are written in their one canonical form.

OpenAPI documents do not tell which fields Go's types always write, and which they omit when empty:
that comes from the tags of the types. A field without a mark is left out if it is unset and written
as it was given, as a pointer, unless it is required, or a struct that is always there.
"""

import base64
import binascii
import re
from collections.abc import (
    Mapping,
)
from dataclasses import (
    dataclass,
)
from datetime import (
    UTC,
    datetime,
)
from functools import (
    cache,
)
from typing import (
    Any,
    Final,
    Literal,
)

import msgspec

from policyd.api import (
    kinds,
)
from policyd.api.data import (
    tables,
)
from policyd.api.kinds import (
    FieldType,
)
from policyd.api.meta import (
    Json,
)
from policyd.api.quantity import (
    QuantityError,
    parse_quantity,
)

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
        what: `omitted` for those whose zero value counts as unset, `null` and `zero` for those
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
_LENGTH = len("2006-01-02T15:04:05Z")
"""Of a time that is written as the API does: in UTC, with no fraction."""
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
            decoded[name] = copied(empty)


def copied(value: Json) -> Json:
    """Return a copy of a JSON value."""
    if type(value) is dict:
        return {name: copied(part) for name, part in value.items()}
    return [copied(part) for part in value] if type(value) is list else value


def canonical_time(text: str, scalar: str) -> str:
    """Write a time as the API does: in UTC, with no fraction, or with microseconds.

    Raises:
        ValueError: If it is none; the text is Go's.
    """
    moment = _moment(text) if _TIMES[scalar].fullmatch(text) else None
    if moment is None:
        layout = LAYOUTS[scalar]
        raise ValueError(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"')
    if scalar == "time" and len(text) == _LENGTH:
        return text
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


QUANTITY_RULE = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)

PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "int32": int,
    "int64": int,
    "bool": bool,
    "double": (int, float),
    "bytes": str,
    "time": str,
    "microtime": str,
    "intstr": (int, str),
}
"""The JSON types of each scalar; scalars that are missing here have readers of their own."""

_BITS = {"int32": 32, "int64": 64, "intstr": 32}

GO_TYPES = {
    "double": "float64",
    "bytes": "[]uint8",
    "time": "string",
    "microtime": "string",
    "intstr": "int32",
}

ZEROS: Mapping[str, Json] = {
    "string": "",
    "int32": 0,
    "int64": 0,
    "bool": False,
    "double": 0,
    "quantity": "0",
    "intstr": 0,
}
"""The value that Go writes for an unset scalar; null for others."""

DROPPED: Any = object()
"""Stands for a value that the type has no place for."""


class MistypedError(Exception):
    """A value is of a type that its field cannot have; the text is the API server's.

    Where several are, the first one is named, as by the API server. But types that read themselves
    (quantities, times, and numbers that may be texts) end the reading: an error in one of them is
    named rather than those before it.
    """


def decode_typed(given: Object, type_name: str) -> tuple[Object, list[str]]:
    """Read an object as a type of the table of kinds.

    Returns:
        The object, and the paths of the fields that the type does not have.

    Raises:
        MistypedError: If a value is of another type.
    """
    decoder = Decoder()
    decoded = decoder.struct(given, type_name, TypePlace(type_name, "", ""))
    if decoder.mistyped is not None:
        raise decoder.mistyped
    return decoded, decoder.unknown


@cache
def always_written(type_name: str) -> frozenset[str]:
    """Return the fields of a struct that are written even if they are unset."""
    required = {
        name
        for name, field in kinds.fields(type_name).items()
        if field.required or (field.struct is not None and field.default == {})
    }
    more = unset(type_name, "null") | unset(type_name, "zero") | present(type_name).keys()
    return frozenset(required | more) - unset(type_name, "omitted")


class TypePlace:
    """The position of a value: the struct, the path as Go writes it, and with indices."""

    __slots__ = ("indexed", "plain", "struct")

    def __init__(self, struct: str, plain: str, indexed: str) -> None:
        self.struct = struct
        self.plain = plain
        self.indexed = indexed

    def field(self, struct: str, name: str, embedded: str = "") -> "TypePlace":
        """Return the place of a field of `struct`, or of the one that this embeds."""
        within = f"{embedded}.{name}" if embedded else name
        plain = f"{self.plain}.{within}" if self.plain else within
        indexed = f"{self.indexed}.{name}" if self.indexed else name
        return TypePlace(struct, plain, indexed)

    def item(self, index: int) -> "TypePlace":
        """Return the place of an item of the list here."""
        return TypePlace(self.struct, self.plain, f"{self.indexed}[{index}]")


class Decoder:
    """Reads values by the table of kinds, and gathers the paths of fields it does not have."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.mistyped: MistypedError | None = None
        """The first value of another type; to be raised at the end."""

    def _note(self, error: MistypedError) -> Json:
        self.mistyped = self.mistyped or error
        return DROPPED

    def struct(self, given: Json, type_name: str, place: TypePlace) -> Object:
        """Read a struct; a value of another type is noted for the end.

        Raises:
            MistypedError: If a value of a type that reads itself is of another one.
        """
        if not isinstance(given, dict):
            noted: Object = self._note(_mistyped(given, _struct_name(type_name), place))
            return noted
        known = kinds.fields(type_name)
        decoded: Object = {}
        for name, value in given.items():
            field = known.get(name)
            inner = place.field(type_name, name, field.embedded if field else "")
            if field is None:
                self.unknown.append(inner.indexed)
            elif value is not None:
                read = self.value(value, field, inner)
                if read is not DROPPED:
                    decoded[name] = read
                elif field.shape in {"list", "map"} and name in always_written(type_name):
                    decoded[name] = value
        completed(decoded, type_name)
        return decoded

    def value(self, given: Json, field: FieldType, place: TypePlace) -> Json:
        """Read the value of a field, DROPPED if it is as good as none, or noted as mistyped.

        Raises:
            MistypedError: If a value of a type that reads itself is of another one.
        """
        match field.shape:
            case "scalar":
                return self._scalar(given, field, place)
            case "struct":
                assert field.struct is not None
                return self.struct(given, field.struct, place)
            case "list":
                return self._list(given, field, place)
            case "map":
                return self._map(given, field, place)

    def _list(self, given: Json, field: FieldType, place: TypePlace) -> Json:
        if not isinstance(given, list):
            return self._note(_mistyped(given, go_type(field), place))
        assert field.element is not None
        element = field.element
        read = [self.item(item, element, place.item(index)) for index, item in enumerate(given)]
        return read or DROPPED

    def item(self, given: Json, field: FieldType, place: TypePlace) -> Json:
        """Read an item of a list, in which null is the unset value.

        Raises:
            MistypedError: If it is of another type.
        """
        if given is None and field.shape == "scalar":
            return ZEROS.get(str(field.scalar))
        if given is None and field.struct is None:
            return None
        return self.value({} if given is None else given, field, place)

    def _map(self, given: Json, field: FieldType, place: TypePlace) -> Json:
        if not isinstance(given, dict):
            return self._note(_mistyped(given, go_type(field), place))
        element = field.element
        assert element is not None
        if element.scalar == "string" and _STRINGS.issuperset(map(type, given.values())):
            return given.copy() or DROPPED
        read = {}
        for key, item in given.items():
            inner = place if element.shape == "scalar" else place.field(place.struct, key)
            value = self.value(item, element, inner)
            if value is not DROPPED or element.shape != "scalar":
                read[key] = [] if value is DROPPED else value
        return read or DROPPED

    def _scalar(self, given: Json, field: FieldType, place: TypePlace) -> Json:
        if field.scalar == "any":
            return given
        if field.scalar == "quantity":
            return "0" if given is None else _quantity(given)
        assert field.scalar is not None
        if given is None:
            return "" if field.scalar == "string" else DROPPED
        fits = isinstance(given, PYTHON_TYPES[field.scalar])
        if isinstance(given, bool) and field.scalar != "bool":
            fits = False
        bits = _BITS.get(field.scalar)
        if fits and bits is not None and not isinstance(given, str):
            fits = -(2 ** (bits - 1)) <= given < 2 ** (bits - 1)
        if fits:
            return self._canonical(given, field.scalar)
        error = _mistyped(given, go_type(field), place)
        if field.scalar in _READ_THEMSELVES:
            raise error
        return self._note(error)

    def _canonical(self, given: Json, scalar: str) -> Json:
        try:
            if scalar in LAYOUTS:
                return canonical_time(given, scalar)
            if scalar == "bytes":
                check_base64(given)
        except ValueError as error:
            mistyped = MistypedError(str(error))
            if scalar in _READ_THEMSELVES:
                raise mistyped from error
            return self._note(mistyped)
        return given


_STRINGS: Final = frozenset((str,))
_READ_THEMSELVES: Final = frozenset(("intstr", "time", "microtime"))
"""Scalars whose Go types read themselves, beside quantities."""


def _quantity(given: Json) -> str:
    try:
        return str(parse_quantity(given))
    except QuantityError as error:
        raise MistypedError(QUANTITY_RULE) from error


def go_type(field: FieldType) -> str:
    """Return the name of a type in the API server's messages."""
    if field.go_type:
        return field.go_type
    if field.scalar is not None:
        return GO_TYPES.get(field.scalar, field.scalar)
    if field.struct is not None:
        return _struct_name(field.struct)
    assert field.element is not None
    element = go_type(field.element)
    return f"[]{element}" if field.shape == "list" else f"map[string]{element}"


def _struct_name(type_name: str) -> str:
    """Return the name of a struct in messages, such as `v1.PodSpec`."""
    return type_name.rpartition("/")[2]


def _mistyped(given: Json, wanted: str, place: TypePlace) -> MistypedError:
    names = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}
    found = names.get(type(given), "object")
    if found == "number" and wanted in _BITS:
        found = f"number {given}"  # not a whole one, or too large
    struct = place.struct.rpartition(".")[2]
    return MistypedError(
        f"json: cannot unmarshal {found} into Go struct field {struct}.{place.plain}"
        f" of type {wanted}"
    )

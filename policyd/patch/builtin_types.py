"""Decode an object of a built-in kind as the API server's types do.

What no type knows is left out and named; null is as good as absent; an empty list or map is none;
quantities are written in their one canonical form.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from policyd.api import kinds
from policyd.api.kinds import FieldType
from policyd.api.meta import Json
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.patch.gotypes import LAYOUTS, canonical_time, check_base64, completed, present, unset

Object = dict[str, Json]

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

_BITS = {"int32": 32, "int64": 64}

GO_TYPES = {
    "double": "float64",
    "bytes": "[]byte",
    "time": "time.Time",
    "intstr": "intstr.IntOrString",
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
    """A value is of a type that its field cannot have; the text is the API server's."""


def decode_typed(given: Object, type_name: str) -> tuple[Object, list[str]]:
    """Read an object as a type of the table of kinds.

    Returns:
        The object, and the paths of the fields that the type does not have.

    Raises:
        MistypedError: If a value is of another type.
    """
    decoder = Decoder()
    decoded = decoder.struct(given, type_name, TypePlace(type_name, "", ""))
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

    def field(self, struct: str, name: str) -> "TypePlace":
        """Return the place of a field; `struct` is the one that has it."""
        plain = f"{self.plain}.{name}" if self.plain else name
        indexed = f"{self.indexed}.{name}" if self.indexed else name
        return TypePlace(struct, plain, indexed)

    def item(self, index: int) -> "TypePlace":
        """Return the place of an item of the list here."""
        return TypePlace(self.struct, self.plain, f"{self.indexed}[{index}]")


class Decoder:
    """Reads values by the table of kinds, and gathers the paths of fields it does not have."""

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def struct(self, given: Json, type_name: str, place: TypePlace) -> Object:
        """Read a struct.

        Raises:
            MistypedError: If a value is of another type.
        """
        if not isinstance(given, dict):
            raise _mistyped(given, f"v1.{type_name.rpartition('.')[2]}", place)
        known = kinds.fields(type_name)
        decoded: Object = {}
        for name, value in given.items():
            inner = place.field(type_name, name)
            field = known.get(name)
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
        """Read the value of a field, DROPPED if it is as good as none.

        Raises:
            MistypedError: If it is of another type.
        """
        match field.shape:
            case "scalar":
                return _scalar(given, field, place)
            case "struct":
                assert field.struct is not None
                return self.struct(given, field.struct, place)
            case "list":
                return self._list(given, field, place)
            case "map":
                return self._map(given, field, place)

    def _list(self, given: Json, field: FieldType, place: TypePlace) -> Json:
        if not isinstance(given, list):
            raise _mistyped(given, go_type(field), place)
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
            raise _mistyped(given, go_type(field), place)
        element = field.element
        assert element is not None
        read = {}
        for key, item in given.items():
            inner = place if element.shape == "scalar" else place.field(place.struct, key)
            value = self.value(item, element, inner)
            if value is not DROPPED or element.shape != "scalar":
                read[key] = [] if value is DROPPED else value
        return read or DROPPED


def _scalar(given: Json, field: FieldType, place: TypePlace) -> Json:
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
    if fits and bits is not None:
        fits = -(2 ** (bits - 1)) <= given < 2 ** (bits - 1)
    if not fits:
        raise _mistyped(given, go_type(field), place)
    return _canonical(given, field.scalar)


def _canonical(given: Json, scalar: str) -> Json:
    try:
        if scalar in LAYOUTS:
            return canonical_time(given, scalar) if given else DROPPED
        if scalar == "bytes":
            check_base64(given)
    except ValueError as error:
        raise MistypedError(str(error)) from error
    return given


def _quantity(given: Json) -> str:
    try:
        return str(parse_quantity(given))
    except QuantityError as error:
        raise MistypedError(QUANTITY_RULE) from error


def go_type(field: FieldType) -> str:
    """Return the name of a type in the API server's messages."""
    if field.scalar is not None:
        return GO_TYPES.get(field.scalar, field.scalar)
    if field.struct is not None:
        return f"v1.{field.struct.rpartition('.')[2]}"
    assert field.element is not None
    element = go_type(field.element)
    return f"[]{element}" if field.shape == "list" else f"map[string]{element}"


def _mistyped(given: Json, wanted: str, place: TypePlace) -> MistypedError:
    names = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}
    found = names.get(type(given), "object")
    if found == "number" and (wanted in _BITS or wanted == GO_TYPES["intstr"]):
        found = f"number {given}"  # not a whole one, or too large
    if wanted == GO_TYPES["intstr"]:
        return MistypedError(f"json: cannot unmarshal {found} into Go value of type int32")
    struct = place.struct.rpartition(".")[2]
    return MistypedError(
        f"json: cannot unmarshal {found} into Go struct field {struct}.{place.plain}"
        f" of type {wanted}"
    )

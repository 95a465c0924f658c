"""Validate values against their schema, and list the fields that they have."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from policyd.api.meta import Json
from policyd.patch.fields_v1 import (
    Element,
    FieldPath,
    FieldSet,
    field_element,
    field_set,
    key_element,
    path_text,
    value_element,
)
from policyd.patch.operations import PatchError
from policyd.patch.schema import ListSchema, MapSchema, Scalar, Schema

Part = MapSchema | ListSchema | Scalar
"""The part of a schema that fits a value."""

ABSENT: Any = object()
"""Stands for a value that is not there, which null is not."""


class SchemaError(PatchError):
    """A value does not fit its schema. Each error is a path and a message."""

    def __init__(self, what: str, faults: list[tuple[FieldPath, str]]) -> None:
        lines = [f"{path_text(path)}: {fault}" if path else fault for path, fault in faults]
        text = lines[0] if len(lines) == 1 else "\n  ".join(["errors:", *lines])
        super().__init__(f"{what}: {text}" if what else text, path=path_text(faults[0][0]))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that no JSON has, in the ways that Go writes it: it is nothing a schema wants."""

    shown: str
    syntax: str
    kind: str


class ItemError(ValueError):
    """An item of a list cannot be identified."""


def part_for(schema: Schema, value: Json) -> Part | None:
    """Return the part of `schema` for the shape of `value`; the first it has if none fits."""
    fitting: Part | None
    if isinstance(value, dict):
        fitting = schema.map
    elif isinstance(value, list):
        fitting = schema.list
    else:
        none = value is None or value is ABSENT or isinstance(value, Opaque)
        fitting = None if none else schema.scalar
    return fitting or schema.map or schema.scalar or schema.list


def is_leaf(part: Part | None, *values: Json) -> bool:
    """Tell whether values are merged and owned as a whole.

    So are those that are empty on all sides: this keeps empty and null apart.
    """
    if isinstance(part, MapSchema):
        if part.atomic:
            return True
        shape: type = dict
    elif isinstance(part, ListSchema) and part.associative:
        shape = list
    else:
        return True
    for value in values:  # noqa: SIM110 - half the time of a generator
        if value and isinstance(value, shape):
            return False
    return True


def item_element(part: ListSchema, item: Json) -> Element:
    """Return the identity of an item in an associative list.

    Raises:
        ItemError: If it has nothing to tell it by.
    """
    if not part.keys:
        return value_element(_set_item(item))
    if not isinstance(item, dict):
        shape = "null" if item is None else "non-map"
        article = "a null element" if item is None else f"{shape} elements"
        raise ItemError(f"associative list with keys may not have {article}")
    key = {}
    for name in part.keys:
        value = item.get(name, part.defaults.get(name, ABSENT))
        if value is not ABSENT:
            key[name] = value
    if not key:
        names = " ".join(f'"{name}"' for name in part.keys)
        raise ItemError(
            f"associative list with keys has an element that omits all key fields [{names}] "
            "(and doesn't have default values for any key fields)"
        )
    return key_element(key)


def _set_item(item: Json) -> Json:
    if isinstance(item, dict):
        raise ItemError("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise ItemError("not supported: associative list with lists as elements")
    if item is None:
        raise ItemError("associative list without keys has an element that's an explicit null")
    return item


def elements_of(part: ListSchema, items: list[Json]) -> list[Element]:
    """Return the elements of a list that was checked; items without one are numbered."""
    found = []
    for index, item in enumerate(items):
        try:
            found.append(item_element(part, item))
        except ItemError:
            found.append(f"i:{index}")
    return found


def fields_of(value: Json, schema: Schema) -> FieldSet:
    """Return the fields that a value sets: every leaf, list item, and unnamed field."""
    return field_set(_held(value, schema, ()))


def _held(value: Json, schema: Schema, path: FieldPath) -> Iterator[FieldPath]:
    part = part_for(schema, value)
    if isinstance(part, MapSchema) and not part.atomic:
        if isinstance(value, dict):
            yield from _held_in_fields(value, part, path)
    elif isinstance(part, ListSchema) and part.associative:
        if isinstance(value, list):
            yield from _held_in_items(value, part, path)
    else:
        yield path


def _held_in_fields(
    value: dict[str, Json], part: MapSchema, path: FieldPath
) -> Iterator[FieldPath]:
    for name, child in value.items():
        below = (*path, field_element(name))
        schema = part.field(name)
        if schema is not None:
            yield from _held(child, schema, below)
        if child is None or child == {} or name not in part.fields:
            yield below


def _held_in_items(value: list[Json], part: ListSchema, path: FieldPath) -> Iterator[FieldPath]:
    elements = elements_of(part, value)
    times = Counter(elements)
    for element, child in zip(elements, value, strict=True):
        below = (*path, element)
        if times[element] == 1:
            yield from _held(child, part.element, below)
        yield below


def with_parents(fields: FieldSet, schema: Schema | None) -> FieldSet:
    """Add every named field that something is held of."""
    part = schema.map if schema else None
    named = (
        element
        for element in fields.children
        if part and element[:2] == "f:" and element[2:] in part.fields
    )
    return FieldSet(
        fields.members.union(named),
        {
            element: with_parents(child, _below(schema, element))
            for element, child in fields.children.items()
        },
    )


def _below(schema: Schema | None, element: Element) -> Schema | None:
    if schema is None:
        return None
    if element[:2] == "f:":
        return schema.map.field(element[2:]) if schema.map else None
    return schema.list.element if schema.list and element[:2] == "k:" else None


def check(value: Json, schema: Schema, *, what: str, duplicates: bool = False) -> None:
    """Check that a value fits its schema.

    Args:
        value: Decoded JSON.
        schema: The schema that it must conform to.
        what: The beginning of an error's message.
        duplicates: Whether lists may have several items with one key, as in objects that were
            sent, unlike in what is applied to them.

    Raises:
        SchemaError: If it is not, with all that is wrong.
    """
    faults = list(_faults(value, schema, (), duplicates=duplicates))
    if faults:
        raise SchemaError(what, faults)


def _faults(
    value: Json, schema: Schema, path: FieldPath, *, duplicates: bool
) -> Iterator[tuple[FieldPath, str]]:
    part = part_for(schema, value)
    if value is None:
        return
    if isinstance(part, MapSchema):
        if isinstance(value, dict):
            yield from _field_faults(value, part, path, duplicates=duplicates)
        else:
            shown = _raw(value) if part.raw and duplicates else _go(value)
            yield path, f"expected map, got &{{{shown}}}"
    elif isinstance(part, ListSchema):
        if isinstance(value, list):
            yield from _item_faults(value, part, path, duplicates=duplicates)
        else:
            yield path, f"expected list, got &{{{_go(value)}}}"
    elif fault := _scalar_fault(value, part):
        yield path, fault


def _field_faults(
    value: dict[str, Json], part: MapSchema, path: FieldPath, *, duplicates: bool
) -> Iterator[tuple[FieldPath, str]]:
    if len(value) > _FEW and _is_plain(value, part):
        return
    for name, child in value.items():
        below = (*path, f"f:{name}")
        field = part.fields.get(name, part.element)
        if field is None:
            yield below, "field not declared in schema"
            return  # the API server leaves it at that
        yield from _faults(child, field, below, duplicates=duplicates)


def _is_plain(value: dict[str, Json], part: MapSchema) -> bool:
    """Tell whether a map without named fields has strings alone, and is to have them.

    Labels and annotations are such: they are not looked at one by one, as they may be many.
    """
    element = None if part.fields else part.element
    return (
        element is not None
        and element.scalar == "string"
        and _STRINGS.issuperset(map(type, value.values()))
    )


_STRINGS = frozenset((str,))
_FEW = 32
"""Fields that are looked at one by one anyhow."""


def _item_faults(
    value: list[Json], part: ListSchema, path: FieldPath, *, duplicates: bool
) -> Iterator[tuple[FieldPath, str]]:
    seen: set[Element] = set()
    for index, child in enumerate(value):
        element = f"i:{index}"
        if part.associative:
            try:
                element = item_element(part, child)
            except ItemError as error:
                yield path, f"element {index}: {error}"
                return
            if element in seen and not duplicates:
                yield path, f"duplicate entries for key {path_text((element,))}"
            seen.add(element)
        yield from _faults(child, part.element, (*path, element), duplicates=duplicates)


def _scalar_fault(value: Json, scalar: Scalar | None) -> str:
    """Return the errors of a value that must be a scalar."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if scalar == "numeric" and not number:
        kind = value.kind if isinstance(value, Opaque) else _KINDS.get(type(value), _MAP)
        return f"expected numeric (int or float), got {kind}"
    if scalar == "string" and not isinstance(value, str):
        return f"expected string, got &value.valueUnstructured{{Value:{_syntax(value)}}}"
    if scalar == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got &{{{_go(value)}}}"
    if isinstance(value, dict | list | Opaque):
        return f"expected any scalar, got &{{{_go(value)}}}"
    return ""


_MAP = "map[string]interface {}"
_LIST = "[]interface {}"
_KINDS = {str: "string", bool: "bool", list: _LIST}


def _syntax(value: Json) -> str:
    """Write a value as Go's own syntax has it."""
    if isinstance(value, Opaque):
        return value.syntax
    if isinstance(value, dict):
        pairs = ", ".join(f"{json.dumps(n)}:{_syntax(value[n])}" for n in sorted(value))
        return f"{_MAP}{{{pairs}}}"
    if isinstance(value, list):
        return f"{_LIST}{{{', '.join(map(_syntax, value))}}}"
    return "interface {}(nil)" if value is None else json.dumps(value)


_REFLECTED = {bool: ("bool", 8), int: ("int64", 3), float: ("float64", 5), list: (_LIST, 2)}
"""The Go types of values, and the numbers that the API server has for their kinds."""


def _raw(value: Json) -> str:
    """Write a value that is JSON in a Go type as the API server does in its errors."""
    if isinstance(value, str):
        return f"<nil> <nil> {value} 6"
    name, number = _REFLECTED[type(value)]
    return f"<nil> <nil> <{name} Value> {number}"


def _go(value: Json) -> str:
    """Write a value about as the API server does in its errors."""
    if isinstance(value, Opaque):
        return value.shown
    if isinstance(value, dict):
        pairs = " ".join(f"{name}:{_go(value[name])}" for name in sorted(value))
        return f"map[{pairs}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_go, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)

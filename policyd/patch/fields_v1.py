"""Represent sets of fields, and read and write them as FieldsV1.

An element says how one step leads from a container to something in it, and is written as the API
server writes it: `f:name` is a field, `k:{"name":"main"}` the item of a list with that key,
`v:"x"` the item of a set with that value, `i:0` an item by its index. A set is a tree of elements.
Holding a child does not mean holding its parent: a member stands for itself alone.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from policyd.api.meta import Json
from policyd.errors import PolicydError

Element = str
FieldPath = tuple[Element, ...]

_KINDS = "fkvi"
_SELF = "."
_HTML = frozenset("&<>")
_PLAIN = frozenset((str, int, bool))
"""Types of values that are written as they are."""


class FieldsError(PolicydError):
    """A `fieldsV1` is not a valid set of fields."""


class FieldSet:
    """An immutable set of field paths."""

    __slots__ = ("children", "members")

    def __init__(
        self,
        members: Iterable[Element] = (),
        children: Mapping[Element, "FieldSet"] = MappingProxyType({}),
    ) -> None:
        self.members = frozenset(members)
        # INVARIANT: no child is empty, so that equal sets have equal trees.
        self.children = {element: child for element, child in children.items() if child}

    def __bool__(self) -> bool:
        return bool(self.members or self.children)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FieldSet):
            return NotImplemented
        return self.members == other.members and self.children == other.children

    def __hash__(self) -> int:
        return hash((self.members, frozenset(self.children)))

    def __repr__(self) -> str:
        return f"FieldSet({', '.join(path_text(path) for path in self)})"

    def __contains__(self, path: FieldPath) -> bool:
        *parents, last = path
        found = self
        for element in parents:
            found = found.below(element)
        return last in found.members

    def __iter__(self) -> Iterator[FieldPath]:
        """Yield the paths in the API server's order: a container before its parts."""
        for element in sorted(self.members, key=_order):
            yield (element,)
        for element in sorted(self.children, key=_order):
            for path in self.children[element]:
                yield (element, *path)

    def __or__(self, other: "FieldSet") -> "FieldSet":
        if not self or not other:
            return self or other
        children = {**self.children, **other.children}
        for element in self.children.keys() & other.children.keys():
            children[element] = self.children[element] | other.children[element]
        return FieldSet(self.members | other.members, children)

    def __and__(self, other: "FieldSet") -> "FieldSet":
        shared = self.children.keys() & other.children.keys()
        return FieldSet(
            self.members & other.members,
            {element: self.children[element] & other.children[element] for element in shared},
        )

    def __sub__(self, other: "FieldSet") -> "FieldSet":
        """Remove the members of `other`, but not those below them."""
        return FieldSet(
            self.members - other.members,
            {element: child - other.below(element) for element, child in self.children.items()},
        )

    def without(self, other: "FieldSet") -> "FieldSet":
        """Take away the members of `other`, and all that is below them."""
        return FieldSet(
            self.members - other.members,
            {
                element: child.without(other.below(element))
                for element, child in self.children.items()
                if element not in other.members
            },
        )

    def below(self, element: Element) -> "FieldSet":
        """Return the part below `element`; empty if nothing is."""
        return self.children.get(element, EMPTY)


EMPTY = FieldSet()


def field_set(paths: Iterable[FieldPath]) -> FieldSet:
    """Return the set of these paths. The empty path, the whole object, has no owner."""
    members: set[Element] = set()
    below: dict[Element, list[FieldPath]] = {}
    for path in paths:
        if len(path) == 1:
            members.add(path[0])
        elif path:
            below.setdefault(path[0], []).append(path[1:])
    return FieldSet(members, {element: field_set(rest) for element, rest in below.items()})


def encode_fields(fields: FieldSet) -> dict[str, Json]:
    """Write a set as `fieldsV1`, sorted as the API server sorts it."""
    written: dict[str, Json] = {}
    for element in sorted(fields.members | fields.children.keys(), key=_order):
        below = encode_fields(fields.below(element))
        alone = element in fields.members and below
        written[element] = {_SELF: {}, **below} if alone else below
    return written


def decode_fields(written: Json) -> FieldSet:
    """Read `fieldsV1`.

    Raises:
        FieldsError: If an element is none, or something else than an object is below it.
    """
    if not isinstance(written, dict):
        raise FieldsError("fields of a manager are written as an object")
    members: set[Element] = set()
    children: dict[Element, FieldSet] = {}
    for key, below in written.items():
        if key == _SELF:
            continue
        element = _canonical(key)
        children[element] = decode_fields(below)
        if not below or _SELF in below:
            members.add(element)
    return FieldSet(members, children)


def field_element(name: str) -> Element:
    """Return the element of a field."""
    return f"f:{name}"


def key_element(key: Mapping[str, Json]) -> Element:
    """Return the element of a list's item with these key fields."""
    return f"k:{_json(dict(sorted(key.items())))}"


def value_element(value: Json) -> Element:
    """Return the element of a set's item."""
    return f"v:{_json(value)}"


def path_text(path: FieldPath) -> str:
    """Write a path as conflicts name it: `.spec.containers[name="main"].image`."""
    return "".join(_element_text(element) for element in path)


def _element_text(element: Element) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        pairs = json.loads(rest).items()
        return "[" + ",".join(f"{name}={_value_text(value)}" for name, value in pairs) + "]"
    return f"[={_value_text(json.loads(rest))}]" if kind == "v" else f"[{rest}]"


def _value_text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


@lru_cache(4096)
def _canonical(element: Element) -> Element:
    """Return the one spelling of an element, so that equal elements are equal text."""
    kind, colon, rest = element.partition(":")
    if not colon or kind not in _KINDS or len(kind) != 1:
        raise FieldsError(f"`{element}` is not an element of a field set")
    if kind in "fi":
        return element
    try:
        value = json.loads(rest)
    except ValueError as error:
        raise FieldsError(f"`{element}` is not an element of a field set") from error
    if kind == "v":
        return value_element(value)
    if not isinstance(value, dict):
        raise FieldsError(f"`{element}` is not an element of a field set")
    return key_element(value)


def _json(value: Json) -> str:
    """Encode as Go does: without spaces, and with characters escaped that HTML would misread."""
    plain = type(value) is dict and _PLAIN.issuperset(map(type, value.values()))
    written = msgspec.json.encode(value if plain else _whole(value)).decode()
    if _HTML.isdisjoint(written):
        return written
    return written.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _whole(value: Json) -> Json:
    """Write 80.0 as 80: to the API server they are the same key."""
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


@lru_cache(4096)
def _order(element: Element) -> tuple[int, Any]:
    """Sort fields before keys before values before indices, each as the API server does."""
    kind, _, rest = element.partition(":")
    if kind == "f":
        return 0, rest
    value = json.loads(rest)
    if kind == "k":
        return 1, [(name, _rank(item)) for name, item in value.items()]
    return _KINDS.index(kind), _rank(value)


def _rank(value: Json) -> tuple[int, Any]:
    """Sort numbers before strings before booleans before everything else."""
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, int | float):
        return 0, value
    return (1, value) if isinstance(value, str) else (3, _json(value))

"""Find which part of an object its writers sent, by its managedFields.

The API server records the fields of a write before it calls the webhooks. So a field that no
writer owns was set on the way in: by a webhook, or by the API server itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from policyd.api.meta import Json
from policyd.patch.fields_v1 import (
    EMPTY,
    FieldsError,
    FieldSet,
    field_element,
    key_element,
    value_element,
)
from policyd.patch.managed_fields import decode_managers, managed_fields
from policyd.patch.operations import Operation, difference

_IDENTITY: Final = ("name", "generateName", "namespace")
"""Fields of the metadata that say which object it is; they have no owners."""
_OF_SERVER: Final = frozenset(
    {"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}
)
MOST_KEYS: Final = 8
"""Combinations of key fields in one list; a schema has one or two."""


class FieldOrigin(NamedTuple):
    """A field that was set on the way in, or by a controller.

    Attributes:
        path: Its JSON pointer.
        value: Its value, as JSON; cut if it is long.
        policies: Names of the policies that set it; empty if it was none that is known.
        manager: The controller that set it; "" if it was set on the way in.
    """

    path: str
    value: str
    policies: tuple[str, ...] = ()
    manager: str = ""


class ObjectOrigins(NamedTuple):
    """Fields that the writer of an object did not send.

    Attributes:
        fields: The first of them.
        more: How many others there are.
        not_there: For each policy, paths that it sets today to another value than is stored.
    """

    fields: tuple[FieldOrigin, ...]
    more: int = 0
    not_there: Mapping[str, tuple[str, ...]] = {}


def submitted(obj: Mapping[str, Json], *, without: Iterable[str] = ()) -> dict[str, Json] | None:
    """Return an object with the fields that its writers sent, and no others.

    A value that was replaced on the way in is the new one, as the sent one is not recorded. Of a
    list or map that was sent empty, all that is in there now counts as sent.

    Args:
        obj: The object, as it is stored.
        without: Managers whose fields are left out.

    Returns:
        The part; None if the object does not say who wrote it.
    """
    try:
        managers = decode_managers(managed_fields(obj))
    except (FieldsError, RecursionError):
        return None
    left_out, fields = frozenset(without), EMPTY
    for manager, owned in managers.items():
        if not manager.subresource and manager.name not in left_out:
            fields = fields | owned.fields
    if not fields:
        return None
    part = _part(dict(obj), fields)
    given: Any = obj.get("metadata")
    metadata = given if isinstance(given, dict) else {}
    identity = {name: metadata[name] for name in _IDENTITY if name in metadata}
    kinds = {name: obj[name] for name in ("apiVersion", "kind") if name in obj}
    return {**kinds, **part, "metadata": {**identity, **(part.get("metadata") or {})}}


def set_on_the_way(obj: Mapping[str, Json], sent: Mapping[str, Json]) -> list[Operation]:
    """Return the operations that turn the part that was sent into the object, without its status.

    Args:
        obj: The object, as it is stored.
        sent: What `submitted` returns for it, of all managers.
    """
    given: Any = obj.get("metadata")
    metadata = {
        name: value
        for name, value in (given if isinstance(given, dict) else {}).items()
        if name not in _OF_SERVER
    }
    stored = {name: value for name, value in obj.items() if name != "status"}
    return difference(dict(sent), {**stored, "metadata": metadata})


def _part(value: Json, fields: FieldSet) -> Any:  # noqa: ANN401 - a part of an object
    """Return the part of a value that a set of fields names."""
    if isinstance(value, dict):
        return dict(_fields(value, fields))
    if isinstance(value, list):
        return list(_items(value, fields))
    return value


def _fields(value: Mapping[str, Json], fields: FieldSet) -> Iterator[tuple[str, Json]]:
    for name, item in value.items():
        element = field_element(name)
        below = fields.below(element)
        if below:
            yield name, _part(item, below)
        elif element in fields.members:
            yield name, item


def _items(value: Iterable[Json], fields: FieldSet) -> Iterator[Json]:
    keys = _keys(fields)
    known = fields.members | fields.children.keys()
    for number, item in enumerate(value):
        elements = [f"i:{number}", *_spellings(item, keys)]
        element = next((each for each in elements if each in known), None)
        if element is None:
            continue
        below = fields.below(element)
        yield _part(item, below) if below else item


def _keys(fields: FieldSet) -> set[tuple[str, ...]]:
    """Return the names of the key fields that distinguish a list's items."""
    found: set[tuple[str, ...]] = set()
    for element in fields.members | fields.children.keys():
        if element.startswith("k:") and len(found) < MOST_KEYS:
            found.add(tuple(msgspec.json.decode(element[2:], type=dict[str, Any])))
    return found


def _spellings(item: Json, keys: Iterable[tuple[str, ...]]) -> Iterator[str]:
    if not isinstance(item, dict):
        yield value_element(item)
        return
    for names in keys:
        if all(name in item for name in names):
            yield key_element({name: item[name] for name in names})

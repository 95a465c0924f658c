"""Random edits of objects: of each kind that people make by hand, most of them small."""

import copy
import random
from collections.abc import Iterator
from typing import Any

from policyd.api import kinds
from policyd.api.kinds import FieldType
from policyd.patch.builtin_views import type_of

ODD: tuple[Any, ...] = (
    "",
    "3",
    "x",
    0,
    3,
    -1,
    1.5,
    2**40,
    True,
    False,
    None,
    [],
    {},
    ["a"],
    {"a": "b"},
)
"""Values that replace others, most of which do not fit."""

SAMPLES: dict[str, tuple[Any, ...]] = {
    "string": ("", "x", "a-b", "default", "*", "Always"),
    "int32": (0, 1, 7, 100),
    "int64": (0, 1, 1000),
    "bool": (True, False),
    "double": (0, 1.5),
    "bytes": ("YQ==",),
    "time": ("2020-01-01T00:00:00Z",),
    "microtime": ("2020-01-01T00:00:00.000000Z",),
    "quantity": ("1", "500m", "1Gi", 2, "1000m", "0.5"),
    "intstr": (1, "50%", 80),
    "any": ({}, {"a": 1}),
}

DEPTH = 4

ODD_FIELDS = 0.03
"""The share of the added fields that the type does not have."""


def edited(obj: Any, choice: random.Random) -> Any:
    """Return a copy of an object with one to three edits.

    Args:
        obj: The object, which keeps its apiVersion, kind and name.
        choice: Chooses the edits.
    """
    made = copy.deepcopy(obj)
    for _ in range(choice.randint(1, 3)):
        _edit(made, choice)
    return made


def _edit(obj: Any, choice: random.Random) -> None:
    places = [
        (holder, key)
        for holder, key in _places(obj)
        if not (holder is obj and key in {"apiVersion", "kind", "metadata"})
        and not (holder is obj["metadata"] and key in {"name", "namespace", "generateName"})
    ]
    edit = choice.choices(("replace", "remove", "repeat", "add"), (2, 3, 1, 4))[0]
    if edit == "add":
        _add(obj, choice)
    elif edit == "repeat":
        lists = [h[k] for h, k in places if isinstance(h[k], list) and h[k]]
        for items in [choice.choice(lists)] if lists else ():
            items.insert(choice.randrange(len(items) + 1), copy.deepcopy(choice.choice(items)))
    elif places:
        holder, key = choice.choice(places)
        if edit == "replace":
            holder[key] = copy.deepcopy(choice.choice(ODD))
        else:
            del holder[key]


def _add(obj: Any, choice: random.Random) -> None:
    """Add a field that its type has, or rarely one that it lacks."""
    structs = [(h, name) for h, name in _structs(obj, type_of(obj)) if h is not obj]
    if not structs:
        return
    holder, struct = choice.choice(structs)
    fields = kinds.fields(struct)
    given = {"labels", "annotations"} if holder is obj.get("metadata") else fields.keys()
    absent = [name for name in fields if name in given and name not in holder]
    if choice.random() < ODD_FIELDS:
        holder["noSuchField"] = copy.deepcopy(choice.choice(ODD))
    elif absent:
        field = choice.choice(absent)
        holder[field] = _made(fields[field], choice, DEPTH)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place in an object: what has it, and its key there."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def _structs(value: Any, struct: str | None) -> Iterator[tuple[Any, str]]:
    """Yield the structs of an object of a built-in kind, with their types."""
    if struct is None or not isinstance(value, dict):
        return
    yield value, struct
    for name, field in kinds.fields(struct).items():
        part = value.get(name)
        inner = field.element if field.element is not None else field
        parts = part if isinstance(part, list) else [part]
        for each in parts:
            yield from _structs(each, inner.struct)


def _made(field: FieldType, choice: random.Random, depth: int) -> Any:
    """Make a value of a field's type."""
    if field.enum:
        return choice.choice(field.enum)
    if field.scalar is not None:
        return copy.deepcopy(choice.choice(SAMPLES[field.scalar]))
    if field.element is not None:
        inner = _made(field.element, choice, depth - 1)
        return [inner] if field.shape == "list" else {choice.choice(("a", "app", "cpu")): inner}
    known = kinds.fields(str(field.struct))
    names = choice.sample(list(known), min(len(known), 3)) if depth > 0 else ()
    return {name: _made(known[name], choice, depth - 1) for name in names}

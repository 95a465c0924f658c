"""Represent RFC 6902 operations and JSON pointers, and compute the patch between two objects."""

from collections.abc import (
    Iterable,
    Iterator,
)
from itertools import (
    islice,
    takewhile,
)
from operator import (
    is_,
    ne,
)
from typing import (
    Literal,
)

import msgspec

from policyd.api.meta import (
    Json,
)
from policyd.errors import (
    PolicydError,
)

Path = tuple[str | int, ...]
"""The position of a value in an object: field names, and indices of lists."""

Verb = Literal["add", "remove", "replace", "move", "copy", "test"]

MOST_BY_FIELD = 1000
"""Operations by which the fields of an object are changed: instead of more it is replaced."""

APPEND = "-"
"""The last step of a pointer that stands for the end of a list."""


class PatchError(PolicydError):
    """A patch cannot be applied to this object.

    `path` is the JSON pointer of the place at fault, as the patch wrote it; empty if the patch as
    a whole is.
    """

    def __init__(self, message: str, *, path: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path


class PatchTestError(PatchError):
    """A `test` operation found another value than it expected: the patch must not be applied."""


class Operation(
    msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename={"from_": "from"}
):
    """One step of a JSON patch. `value` left out is not the same as null."""

    op: Verb
    path: str
    from_: str | msgspec.UnsetType = msgspec.UNSET
    value: Json | msgspec.UnsetType = msgspec.UNSET


def pointer(path: Path) -> str:
    """Write `path` as a JSON pointer."""
    written = "/".join(("", *map(str, path)))
    if "~" not in written and written.count("/") == len(path):
        return written
    names = [str(step).replace("~", "~0").replace("/", "~1") for step in path]
    return "/".join(("", *names))


def steps(written: str) -> list[str]:
    """Read a JSON pointer as field names and written indices.

    Text before the first slash is skipped, as the API server does.
    """
    names = written.split("/")[1:]
    if "~" not in written:
        return names
    return [name.replace("~1", "/").replace("~0", "~") for name in names]


def parse_operations(patch: Json) -> tuple[Operation, ...]:
    """Read a decoded JSON patch.

    Raises:
        PatchError: If it is not a list of operations, each with a known `op` and a `path`.
    """
    try:
        return msgspec.convert(patch, tuple[Operation, ...])
    except msgspec.ValidationError as error:
        raise PatchError(
            f"not a JSON patch: {error}",
            hint='a JSON patch is a list such as [{"op": "add", "path": "/a", "value": 1}]',
        ) from error


_STRINGS = frozenset((str,))


def same_json(one: Json, other: Json) -> bool:
    """Tell whether two values are the same JSON: 1, 1.0 and true all differ."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        if _STRINGS.issuperset(map(type, one.values())):
            return bool(one == other)
        return len(one) == len(other) and all(
            key in other and same_json(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def difference(old: Json, new: Json) -> list[Operation]:
    """Return the operations that turn `old` into `new`; none if they are the same JSON.

    Parts that both share (`is`) are not looked at, which makes the difference of an object and its
    changed copy as cheap as the change. Fields are visited in the order of `old`, then of `new`;
    of lists, the common start and end are kept, and shared items between these.
    """
    whole = [Operation("replace", "", value=new)]
    if type(old) is not type(new) or not isinstance(old, dict | list):
        return [] if same_json(old, new) else whole
    found: list[Operation] = []
    try:
        _differ(old, new, (), found)
    except RecursionError:  # nested as no real object is
        return whole
    return found


def _differ(old: Json, new: Json, path: Path, found: list[Operation]) -> None:
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        _differ_in_fields(old, new, path, found)
    elif isinstance(old, list) and isinstance(new, list):
        _differ_in_items(old, new, path, found)
    elif not same_json(old, new):
        found.append(Operation("replace", pointer(path), value=new))


def _differ_in_fields(
    old: dict[str, Json], new: dict[str, Json], path: Path, found: list[Operation]
) -> None:
    if path and max(len(old), len(new)) > MOST_BY_FIELD and _many_differ(old, new):
        found.append(Operation("replace", pointer(path), value=new))
        return
    for name, value in old.items():
        if name not in new:
            found.append(Operation("remove", pointer((*path, name))))
        elif value is not new[name]:
            _differ(value, new[name], (*path, name), found)
    for name, value in new.items():
        if name not in old:
            found.append(Operation("add", pointer((*path, name)), value=value))


def _many_differ(old: dict[str, Json], new: dict[str, Json]) -> bool:
    """Tell whether more fields differ than are changed one by one; none is looked at in Python."""
    both = old.keys() & new.keys()
    changed = sum(map(ne, map(old.__getitem__, both), map(new.__getitem__, both)))
    return bool(len(old) + len(new) - 2 * len(both) + changed > MOST_BY_FIELD)


def _shared(one: Iterable[Json], other: Iterable[Json]) -> int:
    """Count the pairs until the first that is not one value (`is`)."""
    return sum(takewhile(bool, map(is_, one, other)))


def _alike(one: list[Json], other: list[Json]) -> int:
    """Count the pairs of the same JSON until the first that is not."""
    number, both = _shared(one, other), min(len(one), len(other))
    while number < both and same_json(one[number], other[number]):
        number += 1
    return number


def _differ_in_items(old: list[Json], new: list[Json], path: Path, found: list[Operation]) -> None:
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    before, after = old[start : len(old) - end], new[start : len(new) - end]
    was = at = 0
    for kept, place, length in _kept(before, after):
        if was < kept or at < place:
            _differ_between(before[was:kept], after[at:place], path, start + at, found)
        was, at = kept + length, place + length


def _kept(old: list[Json], new: list[Json]) -> Iterator[tuple[int, int, int]]:
    """Yield the runs of items that both share (`is`), in one order, by their beginnings and length.

    The ends come last.
    """
    places = {id(item): place for place, item in enumerate(old)}
    least = at = 0
    while at < len(new):
        place = places.get(id(new[at]), -1)
        if place < least:
            at += 1
            continue
        length = _shared(islice(old, place, None), islice(new, at, None))
        yield place, at, length
        least, at = place + length, at + length
    yield len(old), len(new), 0


def _differ_between(
    old: list[Json], new: list[Json], path: Path, at: int, found: list[Operation]
) -> None:
    """Turn items that begin at an index into others, those before it being done."""
    both = min(len(old), len(new))
    for index in range(both):
        _differ(old[index], new[index], (*path, at + index), found)
    found.extend(
        Operation("remove", pointer((*path, at + index)))
        for index in range(len(old) - 1, both - 1, -1)
    )
    found.extend(
        Operation("add", pointer((*path, at + index)), value=new[index])
        for index in range(both, len(new))
    )

"""The patch between two objects, as small as the change."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from policyd.api.meta import Json
from policyd.patch.copying import same_json
from policyd.patch.operations import Operation, Path, pointer, steps

_SETTING: Final = frozenset({"add", "remove", "replace"})


def difference(old: Json, new: Json) -> list[Operation]:
    """Return the operations that turn `old` into `new`; none if they are the same JSON.

    Parts that both share (`is`) are not looked at, which makes the difference of an object and its
    changed copy as cheap as the change. Fields are visited in the order of `old`, then of `new`;
    of lists, the common start and end are kept, and what both share between these.
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


def by_whole_fields(operations: Sequence[Operation], result: Json) -> Sequence[Operation]:
    """Return what sets whole fields of an object in the place of operations within these.

    Args:
        operations: What turns an object into `result`.
        result: What they made of it.
    """
    paths = [steps(operation.path) for operation in operations]
    known = isinstance(result, dict) and all(paths)
    if not known or not _SETTING.issuperset(operation.op for operation in operations):
        return operations
    return [
        Operation("add", pointer((name,)), value=result[name])
        if name in result
        else Operation("remove", pointer((name,)))
        for name in dict.fromkeys(path[0] for path in paths)
    ]


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
    for name, value in old.items():
        if name not in new:
            found.append(Operation("remove", pointer((*path, name))))
        elif value is not new[name]:
            _differ(value, new[name], (*path, name), found)
    gained = [name for name in new if name not in old]
    found.extend(Operation("add", pointer((*path, name)), value=new[name]) for name in gained)


def _alike(pairs: Iterable[tuple[Json, Json]]) -> int:
    """Count the pairs of one value until the first that is not."""
    number = 0
    for one, other in pairs:
        if one is not other and not same_json(one, other):
            break
        number += 1
    return number


def _differ_in_items(old: list[Json], new: list[Json], path: Path, found: list[Operation]) -> None:
    start = _alike(zip(old, new, strict=False))
    end = _alike(zip(reversed(old[start:]), reversed(new[start:]), strict=False))
    before, after = old[start : len(old) - end], new[start : len(new) - end]
    at = was = 0
    for kept, place in _kept(before, after):
        if was < kept or at < place:
            _differ_between(before[was:kept], after[at:place], path, start + at, found)
        was, at = kept + 1, place + 1


def _kept(old: list[Json], new: list[Json]) -> Iterator[tuple[int, int]]:
    """Yield where the items are that both share (`is`), in one order; the ends come last."""
    places = {id(item): place for place, item in enumerate(old)}
    least = 0
    for place, item in enumerate(new):
        before = places.get(id(item), -1)
        if before >= least:
            yield before, place
            least = before + 1
    yield len(old), len(new)


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

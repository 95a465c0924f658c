"""Find the writer of each field of a stored object that its client did not send.

The API server does not record which webhook set a field. So the policies are asked again, about
the part of the object that was sent: a field that they set to the value that is stored is theirs.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from policyd.api.meta import Json, cut
from policyd.engine.offline.shares import SharedDecision
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import Operation, PatchError, difference, steps
from policyd.patch.recorded import FieldOrigin, ObjectOrigins, set_on_the_way, submitted

MOST_FIELDS: Final = 200
LONGEST_VALUE: Final = 300
"""Bytes of a value that is shown."""


def origins(
    obj: Mapping[str, Json], sent: Mapping[str, Json], decided: SharedDecision | None, *, own: str
) -> ObjectOrigins:
    """Find the writers of the fields of an object that were not sent.

    Args:
        obj: The object, as it is stored.
        sent: The part that was sent, without the fields of `own`.
        decided: What policies make of that part; None if they are not known.
        own: The manager whose fields a controller set: policyd's own.
    """
    written = submitted(obj) or {}
    on_the_way = _leaves_of(set_on_the_way(obj, written))
    by_policy, not_there = _by_policy(sent, obj, decided)
    found = [
        FieldOrigin(path, _text(value), tuple(sorted(by_policy.get(path, ()))))
        for path, value in on_the_way.items()
    ]
    found += (
        FieldOrigin(path, _text(value), manager=own)
        for path, value in _leaves_of(difference(dict(sent), written)).items()
    )
    found.sort(key=lambda each: (bool(each.manager), not each.policies, each.path))
    return ObjectOrigins(tuple(found[:MOST_FIELDS]), max(0, len(found) - MOST_FIELDS), not_there)


def _by_policy(
    sent: Mapping[str, Json], obj: Mapping[str, Json], decided: SharedDecision | None
) -> tuple[dict[str, set[str]], dict[str, tuple[str, ...]]]:
    """Return the policies that set a path, and for each policy the paths that are not so."""
    setters: dict[str, set[str]] = {}
    others: dict[str, tuple[str, ...]] = {}
    current: Any = dict(sent)
    for share in () if decided is None else decided.shares:
        try:
            after = apply_json_patch(current, list(share.operations))
        except PatchError:  # it ran twice, with others in between
            continue
        wrong = []
        for path, value in _leaves_of(difference(current, after)).items():
            if _at(obj, path) == value:
                setters.setdefault(path, set()).add(share.policy)
            else:
                wrong.append(path)
        if wrong:
            others[share.policy] = tuple(wrong[:MOST_FIELDS])
        current = after
    return setters, others


def _at(obj: Json, path: str) -> Any:  # noqa: ANN401 - a part of an object
    """Return what is at a JSON pointer; UNSET if nothing is."""
    for step in steps(path):
        if isinstance(obj, dict) and step in obj:
            obj = obj[step]
        elif isinstance(obj, list) and step.isdecimal() and int(step) < len(obj):
            obj = obj[int(step)]
        else:
            return msgspec.UNSET
    return obj


def _leaves_of(operations: Iterable[Operation]) -> dict[str, Json]:
    """Return values by their JSON pointers: of maps each field, of lists each item."""
    found: dict[str, Json] = {}
    for each in operations:
        if each.op != "remove" and each.value is not msgspec.UNSET:
            found |= _leaves(each.path, each.value)
    return found


def _leaves(path: str, value: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(f"{path}/{_escaped(name)}", item)
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield f"{path}/{number}", item
    else:
        yield path, value


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _text(value: Json) -> str:
    return cut(msgspec.json.encode(value).decode(), LONGEST_VALUE, end="...")

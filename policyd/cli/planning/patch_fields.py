"""Fields of a merge patch that the patched kind does not have.

The API server's objects grow with every version, so fields that are not known are skipped where
objects are read. In a patch that a person wrote, such a field is a mistake.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import inspect

from policyd.errors import did_you_mean


class UnknownField(NamedTuple):
    """A field that a kind does not have.

    Attributes:
        path: Where it is in the patch.
        hint: The name that was probably meant; None if none is near.
    """

    path: tuple[str | int, ...]
    hint: str | None


def unknown_fields(patch: object, kind: type[Any]) -> Iterator[UnknownField]:
    """Yield the fields of a merge patch that a kind does not have."""
    return _unknown(patch, inspect.type_info(kind), ())


def _unknown(
    patch: object, known: inspect.Type, path: tuple[str | int, ...]
) -> Iterator[UnknownField]:
    known = _plain(known)
    if isinstance(known, inspect.StructType) and isinstance(patch, dict):
        types = {each.encode_name: each.type for each in known.fields}
        for name, value in patch.items():
            if name in types:
                yield from _unknown(value, types[name], (*path, name))
            else:
                yield UnknownField((*path, name), did_you_mean(str(name), types))
    elif isinstance(known, inspect.VarTupleType) and isinstance(patch, list):
        for number, value in enumerate(patch):
            yield from _unknown(value, known.item_type, (*path, number))


def _plain(known: inspect.Type) -> inspect.Type:
    """Return a type without its limits, and without null."""
    match known:
        case inspect.Metadata(type=inner):
            return _plain(inner)
        case inspect.UnionType(types=types):
            return _plain(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case _:
            return known

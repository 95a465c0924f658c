"""Fields that a kind does not have: skipped in what a cluster has, an error in what is written."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import inspect

from policyd.api import kueue
from policyd.api.kueue.names import GROUP
from policyd.api.meta import Json
from policyd.errors import did_you_mean

_CHECKED: Final[Mapping[str, type[Any]]] = {
    each.__name__: each
    for each in (
        kueue.AdmissionCheck,
        kueue.ClusterQueue,
        kueue.Cohort,
        kueue.LocalQueue,
        kueue.ResourceFlavor,
        kueue.Topology,
        kueue.WorkloadPriorityClass,
    )
}
"""The kinds of which all fields are known, apart from metadata and status."""
_UNREAD: Final = frozenset({"timeAdded"})
"""Fields of taints that are not read."""
_OF_ALL: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


class UnknownField(NamedTuple):
    """A field that a kind does not have.

    Attributes:
        path: Where it is in the patch.
        hint: The name that was probably meant; None if none is near.
    """

    path: tuple[str | int, ...]
    hint: str | None

    def sentence(self, kind: str) -> str:
        """Say that a kind does not have it."""
        return f"a {kind} has no field `{self.path[-1]}`"


def unknown_fields(patch: object, kind: type[Any]) -> Iterator[UnknownField]:
    """Yield the fields of a merge patch that a kind does not have.

    Where objects are read, these are skipped: the API server's objects grow with every version.
    """
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


def mistyped_fields(given: Mapping[str, Json]) -> Iterator[UnknownField]:
    """Yield the fields that a kind of queue does not have, of an object that a person wrote."""
    kind = _CHECKED.get(str(given.get("kind")))
    if kind is not None and str(given.get("apiVersion", "")).startswith(f"{GROUP}/"):
        own = {name: value for name, value in given.items() if name not in _OF_ALL}
        yield from (each for each in unknown_fields(own, kind) if each.path[-1] not in _UNREAD)

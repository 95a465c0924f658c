"""The order of a list after a strategic merge: the patch's, and around it the object's own."""

from collections.abc import Sequence

from policyd.api.meta import Json
from policyd.patch.operations import PatchError

Identity = tuple[type, object]
"""What tells an item of a list from the others. 1 and true differ."""


def identity(item: Json, key: str | None) -> Identity:
    """Return what tells an item of a list from the others: its merge key, or a scalar itself.

    Raises:
        PatchError: If it has no such key, or the key is no scalar.
    """
    value = item
    if key is not None:
        if not isinstance(item, dict) or key not in item:
            raise PatchError(
                f"map: {item} does not contain declared merge key: {key}",
                hint=f"each item of this list says its `{key}`",
            )
        value = item[key]
    if isinstance(value, dict | list):
        raise PatchError(f"`{value}` cannot tell an item of a list from the others")
    return type(value), value


def arranged(
    items: Sequence[Json], wanted: Sequence[Json], live: Sequence[Json], *, key: str | None
) -> list[Json]:
    """Bring a merged list into order.

    Args:
        items: The merged list.
        wanted: Items in the order that the patch gives them.
        live: The list as it was.
        key: The merge key; None for scalars.

    Returns:
        The items: those of `wanted` in its order, the others in the live order, and one of the
        others before one of `wanted` if it was before it.
    """
    first, was = _places(wanted, key), _places(live, key)
    patched = [item for item in items if identity(item, key) in first]
    others = [item for item in items if identity(item, key) not in first]
    patched.sort(key=lambda item: first[identity(item, key)])
    others.sort(key=lambda item: was.get(identity(item, key), len(live)))
    result = []
    while patched and others:
        one, other = was.get(identity(others[0], key)), was.get(identity(patched[0], key))
        other_first = one is not None and other is not None and one < other
        result.append(others.pop(0) if other_first else patched.pop(0))
    return [*result, *patched, *others]


def check_order(items: Sequence[Json], order: Sequence[Json], *, key: str | None) -> None:
    """Check that the items of a patch stand in the order that the same patch demands.

    Raises:
        PatchError: If they do not, or one of them is not in the order.
    """
    if not items or not order:
        return
    places = iter([identity(item, key) for item in order])
    if not all(identity(item, key) in places for item in items):
        raise PatchError(
            "The order in patch list doesn't match $setElementOrder list",
            hint="list the items in the order of `$setElementOrder`, each of them named there",
        )


def _places(items: Sequence[Json], key: str | None) -> dict[Identity, int]:
    """Return the first place of each item."""
    places: dict[Identity, int] = {}
    for index, item in enumerate(items):
        places.setdefault(identity(item, key), index)
    return places

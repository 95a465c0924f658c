"""Apply a strategic merge patch, by the merge keys of the built-in kinds.

Objects merge field by field and null removes, as in a merge patch. Lists are replaced, but those
whose type says `merge` are merged: items that are objects by their merge key, scalars as a set.
Directives in the patch express other changes:

    $patch: replace | delete              on an object, or on an item of a list that merges
    $retainKeys: [...]                    drops all other fields of the object
    $deleteFromPrimitiveList/FIELD: [...] takes scalars out of a list
    $setElementOrder/FIELD: [...]         orders a list
"""

from collections.abc import Iterable, Mapping, Sequence

from policyd.api import kinds
from policyd.api.kinds import FieldType
from policyd.api.meta import Json
from policyd.patch.operations import PatchError

Identity = tuple[type, object]
"""The identity of an item of a list. 1 and true differ."""


def _identity(item: Json, key: str | None) -> Identity:
    """Return the identity of an item of a list: its merge key, or a scalar itself.

    Raises:
        PatchError: If it has no such key, or the key is not a scalar.
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


def _arranged(
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
    patched = [item for item in items if _identity(item, key) in first]
    others = [item for item in items if _identity(item, key) not in first]
    patched.sort(key=lambda item: first[_identity(item, key)])
    others.sort(key=lambda item: was.get(_identity(item, key), len(live)))
    result = []
    while patched and others:
        one, other = was.get(_identity(others[0], key)), was.get(_identity(patched[0], key))
        other_first = one is not None and other is not None and one < other
        result.append(others.pop(0) if other_first else patched.pop(0))
    return [*result, *patched, *others]


def _check_order(items: Sequence[Json], order: Sequence[Json], *, key: str | None) -> None:
    """Check that the items of a patch are in the order that the same patch demands.

    Raises:
        PatchError: If they do not, or one of them is not in the order.
    """
    if not items or not order:
        return
    places = iter([_identity(item, key) for item in order])
    if not all(_identity(item, key) in places for item in items):
        raise PatchError(
            "The order in patch list doesn't match $setElementOrder list",
            hint="list the items in the order of `$setElementOrder`, each of them named there",
        )


def _places(items: Sequence[Json], key: str | None) -> dict[Identity, int]:
    """Return the first place of each item."""
    places: dict[Identity, int] = {}
    for index, item in enumerate(items):
        places.setdefault(_identity(item, key), index)
    return places


DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_PREFIX = "$deleteFromPrimitiveList/"
ORDER_PREFIX = "$setElementOrder/"

Object = Mapping[str, Json]


def apply_strategic_merge(obj: dict[str, Json], patch: Json, type_name: str) -> dict[str, Json]:
    """Apply a strategic merge patch to an object of a built-in kind. `obj` stays as it is.

    Args:
        obj: The object.
        patch: The decoded patch, an object.
        type_name: The struct of the object in the table of kinds, such as `core/v1.Pod`.

    Raises:
        PatchError: If the patch is not a strategic merge patch, or does not fit the object.
        KeyError: If the table has no such struct: custom kinds have no strategic merge.
    """
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch is an object")
    kinds.fields(type_name)
    return _merge_objects(obj, patch, FieldType(shape="struct", struct=type_name))


def _merge_objects(original: Object, patch: Object, of: FieldType | None) -> dict[str, Json]:
    if DIRECTIVE in patch:
        return _whole_object(patch)
    merged = _retained(original, patch)
    done = {RETAIN_KEYS}
    for name, value in patch.items():
        if name.startswith(ORDER_PREFIX):
            field = name.removeprefix(ORDER_PREFIX)
            _merge_in_order(merged, patch, field, value, _field(of, field))
            done |= {name, field}
    for name, value in patch.items():
        if name.startswith(DELETE_PREFIX):
            _take_scalars(merged, name.removeprefix(DELETE_PREFIX), value)
            done.add(name)
    for name, value in patch.items():
        if name not in done:
            _merge_field(merged, name, value, _field(of, name))
    return merged


def _whole_object(patch: Object) -> dict[str, Json]:
    directive = patch[DIRECTIVE]
    if directive == "delete":
        return {}
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != DIRECTIVE}
    raise _unknown_directive(directive)


def _retained(original: Object, patch: Object) -> dict[str, Json]:
    """Return a copy of the original with only those fields that the patch retains."""
    retained = patch.get(RETAIN_KEYS)
    if RETAIN_KEYS not in patch:
        return dict(original)
    set_fields = (
        name
        for name, value in patch.items()
        if value is not None and name != RETAIN_KEYS and not name.startswith("$")
    )
    if not isinstance(retained, list) or any(name not in retained for name in set_fields):
        raise PatchError(
            "invalid patch format of retainKeys",
            hint="`$retainKeys` is a list that names every field which the patch sets",
        )
    return {name: value for name, value in original.items() if name in retained}


def _merge_field(merged: dict[str, Json], name: str, value: Json, of: FieldType | None) -> None:
    """Merge one field of a patch into `merged`, which is a copy."""
    before = merged.get(name)
    strategies = of.patch_strategies if of else ()
    if value is None:
        merged.pop(name, None)
    elif isinstance(value, dict) and isinstance(before, dict):
        merged[name] = value if "replace" in strategies else _merge_objects(before, value, of)
    elif isinstance(value, list) and isinstance(before, list):
        merged[name] = _merge_lists(before, value, of)
    elif _is_directive(value):
        merged.pop(name, None)
    else:
        merged[name] = _plain(value)


def _merge_lists(original: list[Json], patch: list[Json], of: FieldType | None) -> list[Json]:
    if of is None or "merge" not in of.patch_strategies:
        return patch
    if not original and not patch:
        return original
    key = of.patch_merge_key
    if not _all_alike([*original, *patch], dict if key else object):
        raise PatchError("the items of a list that merges are all objects or all scalars")
    if key is None:
        known = {_identity(item, None) for item in original}
        added = [item for item in _distinct(patch) if _identity(item, None) not in known]
        return _arranged([*_distinct(original), *added], patch, original, key=None)
    original, patch = _with_directives(original, patch, key)
    return _arranged(_merge_items(original, patch, of, key), patch, original, key=key)


def _merge_items(original: list[Json], patch: list[Json], of: FieldType, key: str) -> list[Json]:
    merged = list(original)
    for item in patch:
        wanted = _identity(item, key)
        index = _find(merged, key, wanted)
        if index is None:
            merged.append(_plain(item))
        else:
            merged[index] = _merge_objects(merged[index], item, of.element)
    return merged


def _with_directives(
    original: list[Json], patch: list[Json], key: str
) -> tuple[list[Json], list[Json]]:
    """Carry out the directives among the items of a patch, and return both lists without them."""
    plain: list[Json] = []
    replaces = False
    for item in patch:
        directive = item.get(DIRECTIVE)
        if DIRECTIVE not in item:
            plain.append(item)
        elif directive == "delete":
            gone = _identity(item, key)
            original = [old for old in original if _identity(old, key) != gone]
        elif directive == "replace":
            replaces = True
        else:
            raise _unknown_directive(directive)
    return (plain, []) if replaces else (original, plain)


def _merge_in_order(
    merged: dict[str, Json], patch: Object, field: str, order: Json, of: FieldType | None
) -> None:
    """Merge a list and bring it into the order that the patch demands."""
    original, changes = merged.get(field), patch.get(field)
    key = of.patch_merge_key if of else None
    for value in (order, original, changes):
        if not isinstance(value, list | None):
            raise PatchError("invalid patch format of setElementOrder list")
    _check_order([item for item in changes or [] if not _is_directive(item)], order or [], key=key)
    if original is None and changes is None:
        return
    if original is None:
        items = _plain(changes)
    else:
        items = original if changes is None else _merge_lists(original, changes, of)
    merged[field] = _arranged(items, order or [], original or [], key=key)


def _take_scalars(merged: dict[str, Json], field: str, gone: Json) -> None:
    before = merged.get(field)
    if not isinstance(gone, list):
        raise PatchError("invalid patch format of primitive list")
    if isinstance(before, list):
        unwanted = {_identity(item, None) for item in gone}
        merged[field] = [item for item in before if _identity(item, None) not in unwanted]


def _plain(value: Json) -> Json:
    """Return a patch's value without directives and nulls, as a new value is stored."""
    if isinstance(value, dict):
        return {
            name: _plain(child)
            for name, child in value.items()
            if child is not None and not _is_directive(child)
        }
    if isinstance(value, list):
        return [_plain(item) for item in value if not _is_directive(item)]
    return value


def _is_directive(value: Json) -> bool:
    return isinstance(value, dict) and DIRECTIVE in value


def _field(of: FieldType | None, name: str) -> FieldType | None:
    """Return the type of a field; None if nothing is known of it."""
    if of is None:
        return None
    return kinds.fields(of.struct).get(name) if of.struct else of.element


def _find(items: list[Json], key: str, wanted: Identity) -> int | None:
    found = (i for i, item in enumerate(items) if item.get(key) is not None)
    return next((i for i in found if _identity(items[i], key) == wanted), None)


def _distinct(items: Iterable[Json]) -> list[Json]:
    return list({_identity(item, None): item for item in items}.values())


def _all_alike(items: list[Json], kind: type) -> bool:
    return all(isinstance(item, kind) and not isinstance(item, list) for item in items)


def _unknown_directive(directive: Json) -> PatchError:
    return PatchError(f"unknown patch type: {directive}", hint="`$patch` is `replace` or `delete`")

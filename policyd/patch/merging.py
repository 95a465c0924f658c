"""Merging an applied object into another by schema, and taking fields out of one."""

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import is_

from policyd.api.meta import Json
from policyd.patch.fields_v1 import Element, FieldSet, field_element
from policyd.patch.schema import ListSchema, MapSchema, Schema
from policyd.patch.typed import ABSENT, elements_of, is_leaf, part_for


def merge(live: Json, applied: Json, schema: Schema) -> Json:
    """Put what `applied` sets into `live`. Nothing is removed; what does not change is shared.

    Lists that merge keep the order of `live` where `applied` says nothing of it. Both are taken to
    be what the schema says, and `applied` to have no duplicates.
    """
    if applied is ABSENT:
        return live
    part = part_for(schema, applied)
    if is_leaf(part, live, applied):
        return applied
    if isinstance(part, MapSchema):
        return _merge_fields(live, applied, part)
    assert isinstance(part, ListSchema), "scalars are leaves"
    return _merge_items(live, applied, part)


def _merge_fields(live: Json, applied: Json, part: MapSchema) -> Json:
    fields = live if isinstance(live, dict) else {}
    merged = fields
    for name, value in (applied or {}).items():
        schema = part.field(name)
        before = fields.get(name, ABSENT)
        after = merge(before, value, schema) if schema is not None else value
        if after is before:
            continue
        if merged is fields:
            merged = dict(fields)
        merged[name] = after
    return merged


def _merge_items(live: Json, applied: Json, part: ListSchema) -> Json:
    items = live if isinstance(live, list) else []
    added = applied if isinstance(applied, list) else []
    names, added_names = elements_of(part, items), elements_of(part, added)
    # Of items that share a key none is merged with: they are replaced by the one applied.
    times = Counter(names)
    known = {name: item for name, item in zip(names, items, strict=True) if times[name] == 1}
    news = dict(zip(added_names, added, strict=True))
    merged = []
    for index, name in _merged_order(names, added_names):
        if name is None:
            merged.append(items[index])
        else:
            merged.append(merge(known.get(name, ABSENT), news[name], part.element))
    same = len(merged) == len(items) and all(map(is_, merged, items))
    return live if same and isinstance(live, list) else merged


def _merged_order(
    live: Sequence[Element], applied: Sequence[Element]
) -> Iterator[tuple[int, Element | None]]:
    """Yield the items of a merged list in order.

    An item of the live list alone comes as its index and None, one of the applied list as its
    name. Shared items come in the applied order; what stands between two of them in either list
    stays between them, the live list's first.
    """
    known, wanted = set(live), set(applied)
    shared = iter([name for name in applied if name in known])
    next_shared = next(shared, None)
    done: set[Element] = set()
    left = right = 0
    while left < len(live) or right < len(applied):
        before = live[left] if left < len(live) else None
        if before is not None and before not in wanted:
            yield left, None
            left += 1
            continue
        if before and right < len(applied) and next_shared not in {None, before}:
            left += 1
            continue
        if before in done:
            left += 1
        if right < len(applied):
            name = applied[right]
            left += before == name
            yield right, name
            done.add(name)
            right += 1
            if name == next_shared:
                next_shared = next(shared, None)


def remove(value: Json, fields: FieldSet, schema: Schema) -> Json:
    """Take `fields` out of a value. Of what is emptied null is left, so that its owners stay."""
    if not fields or not isinstance(value, dict | list) or not value:
        return value
    part = part_for(schema, value)
    if isinstance(part, MapSchema) and isinstance(value, dict):
        return None if part.atomic else _remove_fields(value, fields, part)
    if isinstance(part, ListSchema) and isinstance(value, list):
        return None if not part.associative else _remove_items(value, fields, part)
    return value


def _remove_fields(value: dict[str, Json], fields: FieldSet, part: MapSchema) -> Json:
    kept: dict[str, Json] = {}
    for name, child in value.items():
        element, schema = field_element(name), part.field(name)
        if element not in fields.members:
            below = fields.below(element)
            kept[name] = remove(child, below, schema) if schema is not None else child
    same = len(kept) == len(value) and all(child is value[name] for name, child in kept.items())
    return value if same else kept or None


def _remove_items(value: list[Json], fields: FieldSet, part: ListSchema) -> Json:
    kept = [
        remove(child, fields.below(element), part.element)
        for element, child in zip(elements_of(part, value), value, strict=True)
        if element not in fields.members
    ]
    same = len(kept) == len(value) and all(map(is_, kept, value))
    return value if same else kept or None


def without_nulls(value: Json, before: Json) -> Json:
    """Drop the null fields that `before` did not have, as the API server does when it stores."""
    if value is before:
        return value
    if isinstance(value, dict):
        old = before if isinstance(before, dict) else {}
        return {
            name: without_nulls(child, old.get(name))
            for name, child in value.items()
            if child is not None or (name in old and old[name] is None)
        }
    if isinstance(value, list):
        known = {id(item) for item in before} if isinstance(before, list) else set()
        return [item if id(item) in known else without_nulls(item, None) for item in value]
    return value


def trimmed(value: Json, schema: Schema) -> Json:
    """Drop what the API server's own type leaves out: empty lists and maps that are optional.

    Of a built-in kind nulls go too. A custom kind is stored as it is. What does not change is
    shared.
    """
    if isinstance(value, dict) and schema.map is not None:
        return _trimmed_fields(value, schema.map)
    if isinstance(value, list) and schema.list is not None:
        items = [trimmed(item, schema.list.element) for item in value]
        return value if all(map(is_, items, value)) else items
    return value


def _trimmed_fields(value: dict[str, Json], part: MapSchema) -> dict[str, Json]:
    kept: dict[str, Json] = {}
    for name, child in value.items():
        schema = part.field(name)
        after = trimmed(child, schema) if schema is not None else child
        if not part.leaves_out(name, after):
            kept[name] = after
    same = len(kept) == len(value) and all(child is value[name] for name, child in kept.items())
    return value if same else kept

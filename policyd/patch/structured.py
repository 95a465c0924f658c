"""Apply on the server side: merge by schema, and record which manager owns which field.

An applier states the fields that it wants, and nothing else. A field that it applied once and omits
now is removed, unless another manager owns it too; a field that another manager owns and that would
change is a conflict, unless forced. Other writes are recorded as well: they own what they change.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import is_

from policyd.api.meta import Json, rfc3339
from policyd.patch.comparison import ObjectComparison, compare
from policyd.patch.conflicts import ApplyConflictError, Conflict
from policyd.patch.fields_v1 import EMPTY, Element, FieldsError, FieldSet, field_element
from policyd.patch.managed_fields import (
    UNOWNED,
    Manager,
    Managers,
    Owned,
    WriteKind,
    capped,
    decode_managers,
    encode_managers,
    managed_fields,
    with_managed_fields,
)
from policyd.patch.operations import PatchError, same_json
from policyd.patch.schema import ListSchema, MapSchema, Schema
from policyd.patch.typed import (
    ABSENT,
    SchemaError,
    check,
    elements_of,
    fields_of,
    is_leaf,
    part_for,
    with_parents,
)


class AtomicError(PatchError):
    """Something is applied that can only be replaced as a whole."""


BEFORE_FIRST_APPLY = "before-first-apply"
"""The manager of the fields of an object that had no managers before the first apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldWriter:
    """The writer: a manager, its API version, the time, and the subresource."""

    manager: str
    api_version: str
    now: float
    subresource: str = ""
    ignored: FieldSet = EMPTY
    """The fields that this path ignores, such as the status, with all below them."""

    def identity(self, kind: WriteKind) -> Manager:
        """Return the writer as managedFields know it."""
        version = "" if kind == "Apply" else self.api_version
        return Manager(self.manager or "unknown", kind, version, self.subresource)


def apply(
    live: dict[str, Json] | None,
    applied: dict[str, Json],
    *,
    schema: Schema,
    writer: FieldWriter,
    force: bool = False,
) -> dict[str, Json]:
    """Apply an object server-side.

    Args:
        live: The object as it is stored; None if there is none yet.
        applied: The fields that the applier wants, without managedFields.
        schema: The schema of the object's kind.
        writer: The manager that applies.
        force: Whether to take over fields of others.

    Returns:
        The new object with its new managedFields. `live` itself is shared where nothing changed.

    Raises:
        ApplyConflictError: If others own what would change, and `force` is not set.
        SchemaError: If the applied object does not conform to its schema.
        FieldsError: If the managedFields of `live` cannot be read.
        PatchError: If the applied object has managedFields.
    """
    if managed_fields(applied) is not None:
        raise PatchError("metadata.managedFields must be nil", path="/metadata/managedFields")
    check(applied, schema, what=f"failed to create typed patch object ({_title(applied)})")
    managers = decode_managers(managed_fields(live))
    if live and not managers:
        managers = _updated({}, {}, live, schema, replace(writer, manager=BEFORE_FIRST_APPLY))

    me, last = writer.identity("Apply"), managers.get(writer.identity("Apply"))
    fields = fields_of(applied, schema).without(writer.ignored)
    managers[me] = Owned(fields, writer.api_version, last.time if last else None)
    before = live or {}
    merged = merge(before, applied, schema)
    if last is not None:
        merged = _prune(merged, last.fields, managers, schema)
    changes = compare(before, merged, schema).without(writer.ignored)
    merged = trimmed(without_nulls(merged, before), schema)

    if not force:
        _refuse_conflicts(_conflicts(managers, changes, me), before, schema, writer)
    managers = _others_lose(managers, changes, me)
    managers = _without_unowned(managers, me)
    if me in managers and not same_json(before, merged):
        managers[me] = replace(managers[me], time=rfc3339(writer.now))
    if writer.manager == KUBECTL:
        merged = _with_last_applied(merged, applied)
    return with_managed_fields(merged, encode_managers(managers))


def track_update(
    old: dict[str, Json] | None, new: dict[str, Json], *, schema: Schema, writer: FieldWriter
) -> list[Json]:
    """Record a create, an update or a patch other than apply.

    Args:
        old: The object as it is stored; None if it is created.
        new: The object as it is to be stored, with the managedFields of the request.
        schema: The schema of the object's kind.
        writer: The manager that writes.

    Returns:
        The managedFields of the new object; none if the old object had no owners.
    """
    managers = _known_managers(old, new, by_subresource=bool(writer.subresource))
    if old is not None and not managers:
        return []
    return encode_managers(capped(_updated(managers, old or {}, new, schema, writer)))


def merge_applied(
    obj: dict[str, Json],
    applied: dict[str, Json],
    schema: Schema,
    *,
    forbid_atomic: bool = False,
    what: str | None = None,
) -> dict[str, Json]:
    """Merge an apply configuration into an object, without managed fields.

    With `forbid_atomic`, a value that can only be replaced is refused, as the API server does
    for the ApplyConfiguration of a policy. `what` leads the message of an error of its own.

    Raises:
        SchemaError: If the applied object does not conform to its schema.
        AtomicError: If something atomic is applied although that is forbidden.
    """
    if what is None:
        what = f"failed to create typed patch object ({_title(applied)})"
    check(applied, schema, what=what)
    if forbid_atomic:
        atomic = list(_atomic_paths(applied, schema, ""))
        if atomic:
            raise AtomicError(
                f"may not mutate atomic arrays, maps or structs: {', '.join(atomic)}",
                path=atomic[0],
                hint="use a JSONPatch for what is replaced as a whole",
            )
        applied = _without_empty_lists(applied)
    merged: dict[str, Json] = merge(obj, applied, schema)
    return merged


def _without_empty_lists(value: Json) -> Json:
    """Replace empty lists by null, as Go's conversion does."""
    if isinstance(value, dict):
        return {
            key: _without_empty_lists(part) if isinstance(part, dict | list) else part
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [_without_empty_lists(item) for item in value] or None
    return value


def _title(obj: dict[str, Json]) -> str:
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
    place = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    return f"{place}; {group}/{version}, Kind={obj.get('kind', '')}"


def _prune(merged: Json, last: FieldSet, managers: Managers, schema: Schema) -> Json:
    """Remove fields that the applier applied last and that have no owner any more."""
    wanted = EMPTY
    for owned in managers.values():
        wanted = wanted | owned.fields
    held = with_parents(fields_of(merged, schema), schema)
    mine, kept = with_parents(last, schema), with_parents(wanted, schema)

    pruned = remove(merged, mine, schema)
    left = with_parents(fields_of(pruned, schema), schema)
    pruned = remove(merged, held - (left | kept), schema)
    # Fields below a removed item that are not this applier's must be kept.
    left = with_parents(fields_of(pruned, schema), schema)
    return remove(merged, (held - left) & mine, schema) or {}


def _conflicts(managers: Managers, changes: ObjectComparison, me: Manager) -> list[Conflict]:
    return [
        Conflict(manager, path)
        for manager in sorted(managers)
        if manager != me
        for path in managers[manager].fields & changes.written
    ]


def _refuse_conflicts(
    conflicts: list[Conflict], live: Json, schema: Schema, writer: FieldWriter
) -> None:
    if conflicts and writer.manager == KUBECTL:
        own = _fields_of_last_applied(live, schema, api_version=writer.api_version)
        conflicts = [conflict for conflict in conflicts if conflict.path not in own]
    if conflicts:
        raise ApplyConflictError(conflicts)


def _others_lose(
    managers: Managers, changes: ObjectComparison, me: Manager | None
) -> dict[Manager, Owned]:
    """Remove changed fields from all managers but `me`, and managers without fields."""
    changed = changes.written | changes.removed
    left = {
        manager: owned if manager == me else owned.without(changed)
        for manager, owned in managers.items()
    }
    return {manager: owned for manager, owned in left.items() if owned.fields}


def _without_unowned(managers: Managers, me: Manager) -> dict[Manager, Owned]:
    left = dict(managers)
    if me in left:
        left[me] = left[me].without(UNOWNED)
        if not left[me].fields:
            del left[me]
    return left


def _known_managers(old: Json, new: Json, *, by_subresource: bool) -> dict[Manager, Owned]:
    """Return the managers that a write starts from: the request's, if it may and does say any."""
    entries = managed_fields(new)
    if not by_subresource:
        if entries in ([], [{}]):
            return {}
        managers = _readable(entries)
        if managers:
            return managers
    return _readable(managed_fields(old))


def _readable(entries: Json) -> dict[Manager, Owned]:
    try:
        return decode_managers(entries)
    except FieldsError:
        return {}


def _updated(
    managers: Managers, old: Json, new: Json, schema: Schema, writer: FieldWriter
) -> dict[Manager, Owned]:
    """Give the writer the changed fields, and remove them from all managers."""
    changes = compare(old, new, schema, stored=True).without(writer.ignored)
    left = _others_lose(managers, changes, None)
    fields = changes.written - UNOWNED
    if fields:
        me = writer.identity("Update")
        before = left[me].fields if me in left else EMPTY
        left[me] = Owned(fields | before, writer.api_version, rfc3339(writer.now))
    return left


def _atomic_paths(value: Json, schema: Schema, path: str) -> Iterator[str]:
    """Yield the atomic lists and objects of an apply configuration."""
    if isinstance(value, dict) and schema.map is not None:
        if schema.map.atomic:
            yield path
        for name, child in value.items():
            field = schema.map.fields.get(name)
            if field is not None and isinstance(child, dict | list):
                yield from _atomic_paths(child, field, f"{path}.{name}")
    elif isinstance(value, list) and schema.list is not None:
        if not schema.list.associative:
            yield path
        for index, child in enumerate(value):
            yield from _atomic_paths(child, schema.list.element, f"{path}[{index}]")


_SCALARS = frozenset((str, int, float, bool))


def merge(live: Json, applied: Json, schema: Schema) -> Json:
    """Set the fields of `applied` in `live`. Nothing is removed; unchanged parts are shared.

    Lists that merge keep the order of `live` where `applied` does not define it. Both must
    conform to the schema, and `applied` must have no duplicates.
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
    if applied and not part.fields and _SCALARS.issuperset(map(type, applied.values())):
        merged = {**fields, **applied}
        same = len(merged) == len(fields) and all(map(is_, merged.values(), fields.values()))
        return fields if same else merged
    merged = fields
    for name, value in (applied or {}).items():
        schema = part.fields.get(name, part.element)
        before = fields.get(name, ABSENT)
        scalar = type(value) in _SCALARS  # which a schema that it fits has as a whole
        after = value if scalar or schema is None else merge(before, value, schema)
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
    added_by_name = dict(zip(added_names, added, strict=True))
    merged = []
    for index, name in _merged_order(names, added_names):
        if name is None:
            merged.append(items[index])
        else:
            merged.append(merge(known.get(name, ABSENT), added_by_name[name], part.element))
    same = len(merged) == len(items) and all(map(is_, merged, items))
    return live if same and isinstance(live, list) else merged


def _merged_order(
    live: Sequence[Element], applied: Sequence[Element]
) -> Iterator[tuple[int, Element | None]]:
    """Yield the items of a merged list in order.

    An item of the live list alone comes as its index and None, one of the applied list as its
    name. Shared items come in the applied order; items between two of them in either list
    stay between them, the live list's first.
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
    """Remove `fields` from a value. Emptied values become null, so that their owners stay."""
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
    """Drop empty lists and maps that the API server's own type omits.

    Of a built-in kind nulls go too. A custom kind is stored as it is. Unchanged parts are
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


ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"

KUBECTL = "kubectl"
"""The manager that may turn from client-side to server-side apply."""


def _fields_of_last_applied(live: Json, schema: Schema, *, api_version: str) -> FieldSet:
    """Return the fields that client-side apply set and that did not change since."""
    text = _annotations(live).get(ANNOTATION)
    try:
        last_applied = json.loads(text) if text else None
    except ValueError:
        return EMPTY
    if not isinstance(last_applied, dict) or last_applied.get("apiVersion") != api_version:
        return EMPTY
    try:
        check(last_applied, schema, what="")
    except SchemaError:
        return EMPTY
    changes = compare(last_applied, live, schema)
    return fields_of(last_applied, schema) - changes.written - changes.removed


def _with_last_applied(obj: dict[str, Json], applied: dict[str, Json]) -> dict[str, Json]:
    """Keep the annotation true, if there is one, when kubectl applies on the server."""
    annotations = _annotations(obj)
    if not annotations.get(ANNOTATION):
        return obj
    own = {**_annotations(applied)}
    own.pop(ANNOTATION, None)
    metadata = {**applied.get("metadata", {})}
    metadata.pop("annotations", None)
    if own:
        metadata["annotations"] = own
    text = json.dumps({**applied, "metadata": metadata}, separators=(",", ":"), sort_keys=True)
    updated = {**annotations, ANNOTATION: f"{text}\n"}
    return {**obj, "metadata": {**obj["metadata"], "annotations": updated}}


def _annotations(obj: Json) -> dict[str, Json]:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    return (metadata.get("annotations") if isinstance(metadata, dict) else None) or {}

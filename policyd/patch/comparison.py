"""Compare two objects by their schema: the sets of fields added, modified and removed."""

from collections import defaultdict
from dataclasses import dataclass

from policyd.api.meta import Json
from policyd.patch.fields_v1 import Element, FieldPath, FieldSet, field_element, field_set
from policyd.patch.operations import same_json
from policyd.patch.schema import ListSchema, MapSchema, Schema
from policyd.patch.typed import ABSENT, Part, elements_of, is_leaf, part_for


@dataclass(frozen=True, slots=True)
class ObjectComparison:
    """The fields that an object lost, that differ, and that it gained. No field is in two."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet

    @property
    def written(self) -> FieldSet:
        """The fields that have a value they did not have before."""
        return self.modified | self.added

    def without(self, fields: FieldSet) -> "ObjectComparison":
        """Leave `fields`, and all that is below them, out of the comparison."""
        if not fields:
            return self
        return ObjectComparison(
            self.removed.without(fields), self.modified.without(fields), self.added.without(fields)
        )


def compare(old: Json, new: Json, schema: Schema, *, stored: bool = False) -> ObjectComparison:
    """Compare two objects field by field, as deep as their schema lets them merge.

    With `stored`, both are taken as the API server would store them: fields that its own type
    leaves out when empty are absent.
    """
    changes = _Changes(stored=stored)
    changes.visit((), old, new, schema)
    return ObjectComparison(
        field_set(changes.removed), field_set(changes.modified), field_set(changes.added)
    )


class _Changes:
    """The changes found so far."""

    __slots__ = ("_stored", "added", "modified", "removed")

    def __init__(self, *, stored: bool) -> None:
        self._stored = stored
        self.removed: list[FieldPath] = []
        self.modified: list[FieldPath] = []
        self.added: list[FieldPath] = []

    def visit(self, path: FieldPath, old: Json, new: Json, schema: Schema) -> None:
        if old is new:
            return
        before, after = part_for(schema, old), part_for(schema, new)
        if new is ABSENT:
            leaf = self._visit_as(before, path, old, new)
        else:
            if old is not ABSENT and before is not after:
                self._visit_as(before, path, old, new)
            leaf = self._visit_as(after, path, old, new)
        if not leaf:
            self._note_container(path, old, new)

    def _note_container(self, path: FieldPath, old: Json, new: Json) -> None:
        if old is ABSENT:
            self.added.append(path)
        elif new is ABSENT:
            self.removed.append(path)

    def _visit_as(self, part: Part | None, path: FieldPath, old: Json, new: Json) -> bool:
        """Compare as one shape; say whether that was as a whole."""
        if is_leaf(part, old, new):
            if old is not ABSENT and new is not ABSENT and not same_json(old, new):
                self.modified.append(path)
            self._note_container(path, old, new)
            return True
        if isinstance(part, MapSchema):
            self._visit_fields(part, path, old, new)
        elif isinstance(part, ListSchema):
            self._visit_items(part, path, old, new)
        return False

    def _visit_fields(self, part: MapSchema, path: FieldPath, old: Json, new: Json) -> None:
        before, after = _fields(old), _fields(new)
        for name in before.keys() | after.keys():
            schema = part.field(name)
            if schema is not None:
                was = self._field(before, name, part, has=isinstance(old, dict))
                now = self._field(after, name, part, has=isinstance(new, dict))
                self.visit((*path, field_element(name)), was, now, schema)

    def _field(self, fields: dict[str, Json], name: str, part: MapSchema, *, has: bool) -> Json:
        """Return a field's value. One that the API server's type always has is never absent."""
        value = fields.get(name, ABSENT)
        if name in part.present:
            missing = has and value is ABSENT
            return ({} if part.fields[name].map else None) if missing else value
        return ABSENT if self._stored and part.leaves_out(name, value) else value

    def _visit_items(self, part: ListSchema, path: FieldPath, old: Json, new: Json) -> None:
        before, after = _items(part, old), _items(part, new)
        for element in {**before, **after}:
            below = (*path, element)
            old_items, new_items = before.get(element, []), after.get(element, [])
            if len(old_items) < 2 and len(new_items) < 2:
                self.visit(below, _only(old_items), _only(new_items), part.element)
            else:
                self._visit_duplicates(part, below, old_items, new_items)

    def _visit_duplicates(
        self, part: ListSchema, path: FieldPath, old_items: list[Json], new_items: list[Json]
    ) -> None:
        """Treat items that share a key as one, which is replaced as a whole."""
        if len(old_items) > 1 and len(new_items) > 1:
            if not same_json(old_items, new_items):
                self.modified.append(path)
        elif len(old_items) > 1:
            if new_items:
                self.visit(path, ABSENT, new_items[0], part.element)
            self.removed.append(path)
        else:
            if old_items:
                self.visit(path, old_items[0], ABSENT, part.element)
            self.added.append(path)


def _fields(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _items(part: ListSchema, value: Json) -> dict[Element, list[Json]]:
    items = value if isinstance(value, list) else []
    found: dict[Element, list[Json]] = defaultdict(list)
    for element, item in zip(elements_of(part, items), items, strict=True):
        found[element].append(item)
    return found


def _only(items: list[Json]) -> Json:
    return items[0] if items else ABSENT

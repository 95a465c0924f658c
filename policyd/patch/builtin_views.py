"""Encode an object of a built-in kind as the API server's types do.

Policies and webhooks see them like this: fields that a type lacks are removed, and
fields that it always writes are set.
"""

from functools import lru_cache

from policyd.api import kinds
from policyd.api.kinds import FieldType
from policyd.api.meta import Json
from policyd.patch.builtin_types import (
    DROPPED,
    ZEROS,
    Decoder,
    Object,
    TypePlace,
    always_written,
    completed,
    decode_typed,
    unset,
)

LONGEST_NAMES = 512
"""Characters of a version and a kind: longer ones name nothing, and are not to be remembered."""


def type_of(obj: Json) -> str | None:
    """Return the built-in type of an object; None for a custom kind."""
    if not isinstance(obj, dict):
        return None
    api_version, kind = str(obj.get("apiVersion", "")), str(obj.get("kind", ""))
    if len(api_version) + len(kind) > LONGEST_NAMES:
        return None
    return _type_named(api_version, kind)


@lru_cache(maxsize=256)
def _type_named(api_version: str, kind: str) -> str | None:
    group, _, version = api_version.rpartition("/")
    found = kinds.resource_for_kind(group, version, kind)
    if found is not None:
        return found.type_name
    parts = (part for found in kinds.resources() for part in found.subresources.values())
    named = (group, version, kind)
    return next((p.type_name for p in parts if (p.group, p.version, p.kind) == named), None)


def typed_view(given: Object, type_name: str) -> tuple[Object, list[str]]:
    """Read an object as a type, and write it with all fields that the type always writes.

    Policies and webhooks see an object of a built-in kind like this.

    Returns:
        The object, and the paths of the fields that the type does not have.

    Raises:
        MistypedError: If a value is of another type.
    """
    decoded, unknown = decode_typed(given, type_name)
    _add_zeros(decoded, type_name)
    return decoded, unknown


def changed_view(given: Object, before: Object, type_name: str) -> tuple[Object, list[str]]:
    """Read the changed version of an object that was read as a type; see `typed_view`.

    The shared parts count as read already, so that this is as cheap as the change.

    Returns:
        The object, and the paths of the fields that the type does not have.

    Raises:
        MistypedError: If a value is of another type.
    """
    decoder = _Changes()
    read = decoder.again(given, before, type_name, TypePlace(type_name, "", ""))
    if decoder.mistyped is not None:
        raise decoder.mistyped
    return read, decoder.unknown


def _add_zeros(decoded: Object, type_name: str) -> None:
    written = always_written(type_name)
    for name, field in kinds.fields(type_name).items():
        if name not in decoded:
            if name in written:
                decoded[name] = _zero(name, field, type_name)
        elif field.shape != "scalar":
            _add_zeros_within(decoded[name], field)


def _add_zeros_within(value: Json, field: FieldType) -> None:
    if field.struct is not None:
        if isinstance(value, dict):
            _add_zeros(value, field.struct)
    elif field.element is not None and field.element.shape != "scalar":
        for item in value.values() if isinstance(value, dict) else value or ():
            _add_zeros_within(item, field.element)


def _is_none(value: Json, name: str, type_name: str) -> bool:
    """Tell whether a value of a field is as good as none."""
    return value is None or (value in ("", 0) and name in unset(type_name, "omitted"))


def _zero(name: str, field: FieldType, type_name: str) -> Json:
    """Return the value that Go writes for an unset value."""
    if field.struct is not None and field.default == {}:
        zero: Object = {}
        completed(zero, field.struct)
        _add_zeros(zero, field.struct)
        return zero
    null = field.scalar is None or name in unset(type_name, "null")
    return None if null else ZEROS.get(str(field.scalar))


class _Changes(Decoder):
    """Reads the changed version of an object that was read before."""

    def again(self, given: Json, before: Object, type_name: str, place: TypePlace) -> Object:
        """Read the changed parts of a struct."""
        if not isinstance(given, dict):
            return self.struct(given, type_name, place)
        known = kinds.fields(type_name)
        read = {
            name: anew
            for name, value in given.items()
            if (anew := self._field_again(name, value, before, type_name, place)) is not DROPPED
        }
        for name in always_written(type_name).intersection(before).difference(read):
            read[name] = _zero(name, known[name], type_name)
        return read

    def _field_again(
        self, name: str, value: Json, before: Object, type_name: str, place: TypePlace
    ) -> Json:
        if name in before and before[name] is value:
            return value
        field = kinds.fields(type_name).get(name)
        inner = place.field(type_name, name, field.embedded if field else "")
        if field is None:
            self.unknown.append(inner.indexed)
            return DROPPED
        if _is_none(value, name, type_name):
            return DROPPED
        anew = self._value_again(value, before.get(name), field, inner)
        empty = anew is DROPPED and field.shape in {"list", "map"}
        return value if empty and name in always_written(type_name) else anew

    def _value_again(self, given: Json, before: Json, field: FieldType, place: TypePlace) -> Json:
        if field.struct is not None and isinstance(before, dict):
            return self.again(given, before, field.struct, place)
        if field.shape == "list" and isinstance(given, list) and isinstance(before, list):
            return self._items_again(given, before, field, place) or DROPPED
        anew = self.value(given, field, place)
        if anew is not DROPPED and field.shape != "scalar":
            _add_zeros_within(anew, field)
        return anew

    def _items_again(
        self, given: list[Json], before: list[Json], field: FieldType, place: TypePlace
    ) -> list[Json]:
        assert field.element is not None, "a list has elements"
        shared = set(map(id, before))
        read = []
        for index, item in enumerate(given):
            old = before[index] if index < len(before) else None
            at = place.item(index)
            if id(item) in shared:
                read.append(item)
            elif item is None:
                read.append(self.item(None, field.element, at))
                _add_zeros_within(read[-1], field.element)
            else:
                read.append(self._value_again(item, old, field.element, at))
        return read

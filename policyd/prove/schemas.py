"""What the values of an unknown object may be: schemas of Kubernetes' types, and of JSON."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from policyd.api.kinds import FieldType, fields
from policyd.engine.objects.workloads import EACH
from policyd.patch.builtin_types import always_written, unset

Kind = Literal["absent", "null", "bool", "int", "double", "string", "list", "map"]
KINDS: Final[tuple[Kind, ...]] = (
    "absent",
    "null",
    "bool",
    "int",
    "double",
    "string",
    "list",
    "map",
)
PRESENT: Final = KINDS[1:]
LEAST: Final = -(2**63)
GREATEST: Final = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class ValueSchema:
    """What a value may be.

    Attributes:
        kinds: The kinds of JSON; "absent" if it may be missing.
        fields: The fields of a struct by name; None for a map with any keys.
        element: What elements of a list, or values of a map, may be; beside fields, what others
            may be.
        values: The texts that a string may be; empty for any.
        bounds: The least and greatest int.
        empty: Whether it may be zero, false or empty, which the API server omits of most fields.
        always: Whether the API server writes it even if it is not set.
        quantity: Whether it is a quantity, which the API server writes as a string.
    """

    kinds: frozenset[Kind]
    fields: "Mapping[str, ValueSchema] | None" = None
    element: "ValueSchema | None" = None
    values: tuple[str, ...] = ()
    bounds: tuple[int, int] = (LEAST, GREATEST)
    empty: bool = True
    always: bool = False
    quantity: bool = False

    def same_apart_from_parts(self, other: "ValueSchema") -> bool:
        """Whether another is the same but for what fields and elements may be."""
        return (
            replace(
                other,
                fields=other.fields and self.fields,
                element=other.element and self.element,
            )
            == self
        )


ANY: Final = ValueSchema(kinds=frozenset(PRESENT))
_SCALARS: Final[dict[str, frozenset[Kind]]] = {
    "bool": frozenset({"bool"}),
    "int32": frozenset({"int"}),
    "int64": frozenset({"int"}),
    "double": frozenset({"int", "double"}),
    "intstr": frozenset({"int", "string"}),
    "quantity": frozenset({"int", "string"}),
    "any": frozenset(PRESENT),
}
_INT32: Final = (-(2**31), 2**31 - 1)


class _Fields(Mapping[str, ValueSchema]):
    """The fields of a struct of Kubernetes, read when they are asked for."""

    def __init__(self, struct: str, *, stored: bool) -> None:
        self._fields = fields(struct)
        self._stored = stored
        self._omitted = unset(struct, "omitted")
        self._null = unset(struct, "null")
        self._written = always_written(struct)

    def __getitem__(self, name: str) -> ValueSchema:
        schema = schema_of(self._fields[name], stored=self._stored)
        if not self._stored:
            return schema
        whole = bool(schema.kinds & {"list", "map"}) and schema.fields is None
        always = name in self._written
        omitted = name in self._omitted or (whole and not always)
        null: frozenset[Kind] = frozenset({"null"} if name in self._null else ())
        return replace(schema, kinds=schema.kinds | null, empty=not omitted, always=always)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def schema_of(of: FieldType, *, stored: bool = True) -> ValueSchema:
    """Return what a field of a built-in type may be; it may always be absent.

    Args:
        of: The type of the field.
        stored: Whether it is written as the API server writes built-in kinds, without most empty
            fields; in a custom kind, it is as its author wrote it.
    """
    absent: frozenset[Kind] = frozenset({"absent"})
    if of.shape == "struct":
        return ValueSchema(kinds=absent | {"map"}, fields=_Fields(str(of.struct), stored=stored))
    if of.element is not None:
        kind: Kind = "list" if of.shape == "list" else "map"
        element = schema_of(of.element, stored=stored)
        return ValueSchema(kinds=absent | {kind}, element=present(element))
    kinds = _SCALARS.get(str(of.scalar), frozenset({"string"}))
    return ValueSchema(
        kinds=absent | kinds,
        bounds=_INT32 if of.scalar == "int32" else (LEAST, GREATEST),
        quantity=stored and of.scalar == "quantity",
    )


def open_schema(places: Iterable[tuple[str, ...]], struct: str) -> ValueSchema:
    """Return the schema of objects of a custom kind that have a struct in some places.

    Args:
        places: The paths, with `EACH` for every element of a list or map.
        struct: The name of the struct.
    """
    by_step: dict[str, list[tuple[str, ...]]] = {}
    for step, *rest in places:
        by_step.setdefault(step, []).append(tuple(rest))
    absent: frozenset[Kind] = frozenset({"absent"})
    of_steps = {
        step: ValueSchema(kinds=absent | {"map"}, fields=_Fields(struct, stored=False))
        if () in rests
        else perhaps(open_schema(rests, struct))
        for step, rests in by_step.items()
    }
    if EACH in of_steps:
        whole = frozenset[Kind]({"list", "map"})
        return ValueSchema(kinds=whole, element=present(of_steps[EACH]))
    return ValueSchema(kinds=frozenset({"map"}), fields=of_steps, element=ANY)


def perhaps(schema: ValueSchema) -> ValueSchema:
    """Return a schema of what may be absent, too."""
    return replace(schema, kinds=schema.kinds | {"absent"})


def present(schema: ValueSchema) -> ValueSchema:
    """Return a schema of what is not absent."""
    return replace(schema, kinds=schema.kinds - {"absent"})


def struct_schema(
    struct: str, *, api_version: str | None = None, kind: str | None = None
) -> ValueSchema:
    """Return the schema of objects of a built-in kind; their metadata are always there.

    Args:
        struct: The name of its struct.
        api_version: The only version that the objects name; None for any text.
        kind: The only kind that the objects name; None for any text.
    """
    of_fields = dict(_Fields(struct, stored=True))
    if "metadata" in of_fields:
        of_fields["metadata"] = present(of_fields["metadata"])
    named = {"apiVersion": one_text(api_version), "kind": one_text(kind)}
    return ValueSchema(kinds=frozenset({"map"}), fields={**of_fields, **named})


def one_text(text: str | None) -> ValueSchema:
    """Return the schema of a string that is known; of any string for None."""
    return ValueSchema(kinds=frozenset({"string"}), values=() if text is None else (text,))

"""Check lists, maps and structs."""

from policyd.cel.check.checked import TypeReference
from policyd.cel.check.names import Checker
from policyd.cel.check.unify import most_general
from policyd.cel.syntax import ast
from policyd.cel.types import DYN, Type, is_dyn, list_of, map_of, optional_of
from policyd.errors import did_you_mean


def check_list_literal(checker: Checker, node: ast.ListLiteral) -> Type:
    """Return the type of a list, by its elements."""
    element: Type | None = None
    for place, part in enumerate(node.elements):
        kind = checker.check(part)
        if place in node.optionals:
            kind = _optional_part(checker, part, kind)
        element = _joined(checker, element, kind)
    return list_of(element or checker.found.fresh())


def check_map_literal(checker: Checker, node: ast.MapLiteral) -> Type:
    """Return the type of a map, by its entries."""
    key: Type | None = None
    value: Type | None = None
    for entry in node.entries:
        key = _joined(checker, key, checker.check(entry.key))
        kind = checker.check(entry.value)
        if entry.optional:
            kind = _optional_part(checker, entry.value, kind)
        value = _joined(checker, value, kind)
    return map_of(key or checker.found.fresh(), value or checker.found.fresh())


def _optional_part(checker: Checker, node: ast.ExpressionNode, kind: Type) -> Type:
    kind = checker.found.resolve(kind)
    if is_dyn(kind):
        return DYN
    inner = checker.found.fresh()
    if not checker.found.assignable(kind, optional_of(inner)):
        found = f"found '{checker.shown(kind)}'"
        return checker.issue(node, f"expected type 'optional_type' but {found}")
    return checker.found.resolve(inner)


def _joined(checker: Checker, before: Type | None, kind: Type) -> Type:
    if before is None:
        return kind
    if checker.found.assignable(before, kind):
        return most_general(checker.found.resolve(before), checker.found.resolve(kind))
    return DYN


def check_struct_literal(checker: Checker, node: ast.StructLiteral) -> Type:
    """Return the struct type; its fields must have theirs."""
    name = _struct_name(checker, node)
    for entry in node.fields:
        _struct_entry(checker, entry, name)
    if name is None:
        return checker.undeclared(node, node.name)
    checker.checked.references[node] = TypeReference(name)
    return Type(name)


def _struct_name(checker: Checker, node: ast.StructLiteral) -> str | None:
    environment = checker.environment
    return next(
        (
            name
            for name in environment.candidates(node.name)
            if name in environment.structs or environment.is_open_struct(name)
        ),
        None,
    )


def _struct_entry(checker: Checker, entry: ast.Field, struct: str | None) -> None:
    kind = checker.check(entry.value)
    if entry.optional:
        kind = _optional_part(checker, entry.value, kind)
    if struct is None:
        return
    wanted = checker.environment.field_type(struct, entry.name)
    if wanted is None:
        fields = checker.environment.structs.get(struct, ())
        checker.issue(entry, f"undefined field '{entry.name}'", did_you_mean(entry.name, fields))
        return
    if not checker.found.assignable(kind, wanted):
        expected = f"expected type of field '{entry.name}' is '{checker.shown(wanted)}'"
        checker.issue(entry, f"{expected} but provided type is '{checker.shown(kind)}'")

"""Check literals: lists, maps, structs, and texts that functions parse.

The API server accepts no list or map whose parts are of different types. As in cel-go, this is
checked once everything else is right: a value of type dyn is not a string, though it may be used
wherever a string may. The arguments of `format` may be mixed.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from policyd.cel.check.checked import TypeReference
from policyd.cel.check.names import Checker
from policyd.cel.check.unify import most_general
from policyd.cel.errors import CelError
from policyd.cel.lib.regex import compiled
from policyd.cel.lib.time import parse_duration, parse_timestamp
from policyd.cel.syntax import ast
from policyd.cel.syntax.macros import is_of_math
from policyd.cel.types import DYN, Type, is_dyn, list_of, map_of, optional_of
from policyd.errors import did_you_mean

_PARSERS: Final[dict[tuple[str, bool, int], Callable[[str], object]]] = {
    ("duration", False, 1): parse_duration,
    ("timestamp", False, 1): parse_timestamp,
    ("matches", False, 2): compiled,
    ("matches", True, 1): compiled,
}
"""By name, whether it is a method, and arguments; the last argument is the one that is parsed."""
_EXEMPT: Final = "format"
"""The function that takes a list of values of any types."""


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


def invalid_literal(call: ast.Call) -> tuple[ast.ExpressionNode, str, str] | None:
    """Return an invalid literal argument, cel-go's message, and the reason."""
    style = (call.function, call.target is not None, len(call.arguments))
    parse = _PARSERS.get(style)
    if parse is None:
        return None
    argument = call.arguments[-1]
    if not isinstance(argument, ast.Literal) or not isinstance(argument.value, str):
        return None
    try:
        parse(argument.value)
    except CelError as error:
        return argument, f"invalid {call.function} argument", error.message
    return None


def report_mixed_literals(checker: Checker) -> None:
    """Report the first part of each list and map that is not of the type of those before."""
    waiting = [checker.checked.tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call) and node.function == _EXEMPT:
            continue
        for parts in _alike(node):
            _report(checker, parts)
        waiting += ast.children(node)


def _alike(node: ast.ExpressionNode) -> Iterator[Iterable[tuple[ast.ExpressionNode, bool]]]:
    """Yield parts that must be of one type, each with whether it is optional."""
    match node:
        case ast.ListLiteral(elements=elements, optionals=optionals):
            yield [(part, place in optionals) for place, part in enumerate(elements)]
        case ast.MapLiteral(entries=entries):
            yield [(entry.key, False) for entry in entries]
            yield [(entry.value, entry.optional) for entry in entries]
        case ast.Call(arguments=arguments) if len(arguments) > 2 and is_of_math(node):
            # Three and more are a list to cel-go.
            yield [(part, False) for part in arguments]
        case _:
            return


def _report(checker: Checker, parts: Iterable[tuple[ast.ExpressionNode, bool]]) -> None:
    first: Type | None = None
    for node, optional in parts:
        kind = checker.checked.types[node]
        if optional:
            kind = DYN if is_dyn(kind) else kind.parameters[0]
        if first is None:
            first = kind
        elif kind != first:
            wanted = f"expected type '{checker.shown(first)}'"
            checker.issue(node, f"{wanted} but found '{checker.shown(kind)}'")
            return

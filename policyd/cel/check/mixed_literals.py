"""Lists and maps whose parts are of different types, which the API server does not accept.

As in cel-go, this is looked at once everything else is right: a value that may be of any type is
no text, though it may stand wherever a text may. What `format` is given may be mixed.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from policyd.cel.check.names import Checker
from policyd.cel.syntax import ast
from policyd.cel.syntax.macros import is_of_math
from policyd.cel.types import DYN, Type, is_dyn

_EXEMPT: Final = "format"
"""The function that may be given anything in a list."""


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
    """Yield what must be of one type, each with whether it is optional."""
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

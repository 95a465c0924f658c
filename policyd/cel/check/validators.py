"""Look at literals that could not work whenever they are evaluated, as the API server does."""

from collections.abc import Callable
from typing import Final

from policyd.cel.errors import CelError
from policyd.cel.lib.regex import compiled
from policyd.cel.lib.time import parse_duration, parse_timestamp
from policyd.cel.syntax import ast

_PARSERS: Final[dict[tuple[str, bool, int], Callable[[str], object]]] = {
    ("duration", False, 1): parse_duration,
    ("timestamp", False, 1): parse_timestamp,
    ("matches", False, 2): compiled,
    ("matches", True, 1): compiled,
}
"""By name, whether it is a method, and arguments; the last argument is the one that is parsed."""


def invalid_literal(call: ast.Call) -> tuple[ast.ExpressionNode, str, str] | None:
    """Return the literal argument that cannot be, what is wrong in cel-go's words, and why."""
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

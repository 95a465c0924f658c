"""Recognize macros: calls that bind variables, or take names instead of values."""

from collections.abc import Callable
from typing import Final

from policyd.cel.syntax import ast
from policyd.cel.syntax.ast import MacroKind


class MacroError(Exception):
    """The arguments of a macro are invalid."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


STANDARD_MACROS: Final = frozenset(
    ("has", "all", "exists", "exists_one", "existsOne", "map", "filter")
)
OPTIONAL_MACROS: Final = frozenset(("optMap", "optFlatMap"))
TWO_VARIABLE_MACROS: Final = frozenset(("transformList", "transformMap", "transformMapEntry"))
"""With these, `all`, `exists` and `existsOne` take two variables as well."""
MATH_MACROS: Final = frozenset(("least", "greatest"))
"""Functions of `math` that look at whether their arguments are written as numbers."""
ALL_MACROS: Final = (
    STANDARD_MACROS | OPTIONAL_MACROS | TWO_VARIABLE_MACROS | MATH_MACROS | {"bind", "sortBy"}
)

USAGES: Final = {
    "has": "has(object.field)",
    "all": "list.all(x, condition)",
    "exists": "list.exists(x, condition)",
    "exists_one": "list.exists_one(x, condition)",
    "existsOne": "list.existsOne(x, condition)",
    "filter": "list.filter(x, condition)",
    "map": "list.map(x, value)",
    "transformList": "list.transformList(index, x, value)",
    "transformMap": "map.transformMap(key, x, value)",
    "transformMapEntry": "map.transformMapEntry(key, x, {key: value})",
    "optMap": "optional.optMap(x, value)",
    "optFlatMap": "optional.optFlatMap(x, optional)",
    "bind": "cel.bind(x, value, result)",
    "sortBy": "list.sortBy(x, key)",
    "least": "math.least(a, b)",
    "greatest": "math.greatest(a, b)",
}
"""The form of each macro."""

_KINDS: Final[dict[str, MacroKind]] = {
    "all": "all",
    "exists": "exists",
    "exists_one": "exists_one",
    "existsOne": "exists_one",
    "map": "map",
    "filter": "filter",
    "transformList": "transformList",
    "transformMap": "transformMap",
    "transformMapEntry": "transformMapEntry",
}


def is_macro(call: ast.Call, macros: frozenset[str]) -> bool:
    """Tell whether a call is one of `macros`, by its name."""
    return call.function in macros and (
        not has_two_variables(call) or macros >= TWO_VARIABLE_MACROS
    )


def has_two_variables(call: ast.Call) -> bool:
    """Tell whether a macro that may have one variable or two has two."""
    return call.function in ("all", "exists", "existsOne") and len(call.arguments) == 3


def expand(call: ast.Call) -> ast.ExpressionNode:
    """Return the node of the macro `call` is; `call` itself if it only has a macro's name.

    Raises:
        MacroError: If it is the macro, but an argument is not.
    """
    if call.function == "has":
        return _has(call)
    if call.target is None:
        return call
    if call.function in _KINDS:
        return _comprehension(call, call.target)
    expander = _OTHERS.get(call.function)
    return expander(call, call.target) if expander else call


def _has(call: ast.Call) -> ast.ExpressionNode:
    if call.target is not None or len(call.arguments) != 1:
        return call
    argument = call.arguments[0]
    if not isinstance(argument, ast.Select) or argument.optional:
        raise MacroError(argument.position, "invalid argument to has() macro")
    return ast.Has(argument.position, argument.operand, argument.field)


def _comprehension(call: ast.Call, target: ast.ExpressionNode) -> ast.ExpressionNode:
    shape = _shape(call.function, len(call.arguments))
    if shape is None:
        return call
    variables = tuple(_variable(argument) for argument in call.arguments[:shape])
    if len(set(variables)) < len(variables):
        position = call.arguments[1].position
        raise MacroError(position, f"duplicate variable name: {variables[0]}")
    *condition, result = call.arguments[shape:]
    kind = _KINDS[call.function]
    first = condition[0] if condition else None
    return ast.Comprehension(call.position, kind, target, variables, first, result)


def _shape(function: str, arguments: int) -> int | None:
    """Return how many variables the macro has with so many arguments; None if it is not a macro."""
    if function.startswith("transform"):
        return 2 if arguments in (3, 4) else None
    if arguments == 2:
        return 1
    if arguments != 3 or function in ("filter", "exists_one"):
        return None
    return 1 if function == "map" else 2


def _variable(node: ast.ExpressionNode, macro: str = "") -> str:
    if not isinstance(node, ast.Identifier) or node.absolute:
        wanted = f"{macro} variable name must be a simple identifier"
        raise MacroError(node.position, wanted if macro else "argument must be a simple name")
    return node.name


def _bind(call: ast.Call, target: ast.ExpressionNode) -> ast.ExpressionNode:
    if len(call.arguments) != 3 or ast.qualified_name(target) != ("cel",):
        return call
    name, value, body = call.arguments
    return ast.Bind(call.position, _variable(name, "cel.bind()"), value, body)


def _optional_map(call: ast.Call, target: ast.ExpressionNode) -> ast.ExpressionNode:
    if len(call.arguments) != 2:
        return call
    name, body = call.arguments
    flat = call.function == "optFlatMap"
    variable = _variable(name, f"{call.function}()")
    return ast.OptionalMap(call.position, target, variable, body, flat)


def _sort_by(call: ast.Call, target: ast.ExpressionNode) -> ast.ExpressionNode:
    if len(call.arguments) != 2:
        return call
    name, key = call.arguments
    return ast.SortBy(call.position, target, _variable(name), key)


def _math_extreme(call: ast.Call, target: ast.ExpressionNode) -> ast.ExpressionNode:
    if not is_of_math(call):
        return call
    name, arguments = f"math.{call.function}()", call.arguments
    if not arguments:
        raise MacroError(target.position, f"{name} requires at least one argument")
    if len(arguments) == 1 and not _are_numbers(arguments[0]):
        raise MacroError(arguments[0].position, f"{name} invalid single argument value")
    for argument in arguments[1:] and arguments:
        if not _may_be_number(argument):
            wrong = f"{name} simple literal arguments must be numeric"
            raise MacroError(argument.position, wrong)
    return call


def is_of_math(call: ast.Call) -> bool:
    """Tell whether a call is `math.least` or `math.greatest`."""
    if call.function not in MATH_MACROS or call.target is None:
        return False
    return ast.qualified_name(call.target) == ("math",)


def _may_be_number(node: ast.ExpressionNode) -> bool:
    if isinstance(node, ast.Literal):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return not isinstance(node, ast.ListLiteral | ast.MapLiteral | ast.StructLiteral)


def _are_numbers(node: ast.ExpressionNode) -> bool:
    if isinstance(node, ast.ListLiteral):
        return bool(node.elements) and all(map(_may_be_number, node.elements))
    return _may_be_number(node)


_OTHERS: Final[dict[str, Callable[[ast.Call, ast.ExpressionNode], ast.ExpressionNode]]] = {
    "bind": _bind,
    "optMap": _optional_map,
    "optFlatMap": _optional_map,
    "sortBy": _sort_by,
    "least": _math_extreme,
    "greatest": _math_extreme,
}

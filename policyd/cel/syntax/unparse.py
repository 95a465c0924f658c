"""Write a tree as text: one line, spaces around operators, parentheses where needed."""

from collections.abc import Callable
from typing import Any, Final

from policyd.cel.syntax import ast
from policyd.cel.values import UInt

# How tightly operators bind; a part that binds less gets parentheses.
_CONDITIONAL, _OR, _AND, _RELATION, _SUM, _PRODUCT, _UNARY, _MEMBER = range(8)
_BINARY: Final = {
    "_==_": ("==", _RELATION),
    "_!=_": ("!=", _RELATION),
    "_<_": ("<", _RELATION),
    "_<=_": ("<=", _RELATION),
    "_>_": (">", _RELATION),
    "_>=_": (">=", _RELATION),
    "@in": ("in", _RELATION),
    "_+_": ("+", _SUM),
    "_-_": ("-", _SUM),
    "_*_": ("*", _PRODUCT),
    "_/_": ("/", _PRODUCT),
    "_%_": ("%", _PRODUCT),
}
_PREFIX: Final = {"!_": "!", "-_": "-"}
_ESCAPES: Final = {
    **{code: f"\\u{code:04x}" for code in range(32)},
    ord("\n"): "\\n",
    ord("'"): "\\'",
    ord("\\"): "\\\\",
}


def unparse(node: ast.ExpressionNode) -> str:
    """Return the text of an expression, with its macros."""
    return _WRITERS[type(node)](node)


def _within(node: ast.ExpressionNode, tightness: int) -> str:
    text = unparse(node)
    return f"({text})" if _tightness(node) < tightness else text


def _tightness(node: ast.ExpressionNode) -> int:
    if isinstance(node, ast.Conditional):
        return _CONDITIONAL
    if isinstance(node, ast.Logic):
        return _AND if node.conjunction else _OR
    if isinstance(node, ast.Call) and node.target is None:
        if node.function in _BINARY:
            return _BINARY[node.function][1]
        return _UNARY if node.function in _PREFIX else _MEMBER
    return _UNARY if _is_negative(node) else _MEMBER


def _is_negative(node: ast.ExpressionNode) -> bool:
    return _is_number(node) and str(getattr(node, "value", "")).startswith("-")


def _is_number(node: ast.ExpressionNode) -> bool:
    return isinstance(node, ast.Literal) and type(node.value) in (int, float)


def _literal(node: ast.Literal) -> str:
    value = node.value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bytes):
        return repr(value)
    return f"{int(value)}u" if isinstance(value, UInt) else str(value)


def _quoted(text: str) -> str:
    return f"'{text.translate(_ESCAPES)}'"


def _identifier(node: ast.Identifier) -> str:
    return f".{node.name}" if node.absolute else node.name


def _field(name: str) -> str:
    return name if name.replace("_", "a").isalnum() and not name[0].isdigit() else f"`{name}`"


def _select(node: ast.Select) -> str:
    dot = ".?" if node.optional else "."
    return f"{_within(node.operand, _MEMBER)}{dot}{_field(node.field)}"


def _index(node: ast.Index) -> str:
    mark = "?" if node.optional else ""
    return f"{_within(node.operand, _MEMBER)}[{mark}{unparse(node.index)}]"


def _call(node: ast.Call) -> str:
    if node.target is None and node.function in _BINARY:
        operator, tightness = _BINARY[node.function]
        left, right = node.arguments
        return f"{_within(left, tightness)} {operator} {_within(right, tightness + 1)}"
    if node.target is None and node.function in _PREFIX:
        # `-1` is a number, not the negative of one, and `--x` is x.
        tightness = _MEMBER + 1 if _is_number(node.arguments[0]) else _MEMBER
        return f"{_PREFIX[node.function]}{_within(node.arguments[0], tightness)}"
    target = f"{_within(node.target, _MEMBER)}." if node.target else ""
    return f"{target}{node.function}({', '.join(map(unparse, node.arguments))})"


def _logic(node: ast.Logic) -> str:
    operator, tightness = (" && ", _AND) if node.conjunction else (" || ", _OR)
    return operator.join(_within(operand, tightness + 1) for operand in node.operands)


def _conditional(node: ast.Conditional) -> str:
    then, otherwise = _within(node.then, _OR), unparse(node.otherwise)
    return f"{_within(node.condition, _OR)} ? {then} : {otherwise}"


def _list(node: ast.ListLiteral) -> str:
    marks = ["?" if place in node.optionals else "" for place in range(len(node.elements))]
    parts = (f"{mark}{unparse(part)}" for mark, part in zip(marks, node.elements, strict=True))
    return f"[{', '.join(parts)}]"


def _map(node: ast.MapLiteral) -> str:
    parts = (
        f"{'?' if entry.optional else ''}{unparse(entry.key)}: {unparse(entry.value)}"
        for entry in node.entries
    )
    return f"{{{', '.join(parts)}}}"


def _struct(node: ast.StructLiteral) -> str:
    parts = (
        f"{'?' if field.optional else ''}{_field(field.name)}: {unparse(field.value)}"
        for field in node.fields
    )
    return f"{node.name}{{{', '.join(parts)}}}"


def _comprehension(node: ast.Comprehension) -> str:
    parts = [*node.variables, *([unparse(node.condition)] if node.condition else [])]
    arguments = ", ".join((*parts, unparse(node.result)))
    # With two variables the macro has but one of its names.
    macro = "existsOne" if node.kind == "exists_one" and len(node.variables) > 1 else node.kind
    return f"{_within(node.range, _MEMBER)}.{macro}({arguments})"


def _bind(node: ast.Bind) -> str:
    return f"cel.bind({node.name}, {unparse(node.value)}, {unparse(node.body)})"


def _optional_map(node: ast.OptionalMap) -> str:
    macro = "optFlatMap" if node.flat else "optMap"
    return f"{_within(node.operand, _MEMBER)}.{macro}({node.name}, {unparse(node.body)})"


def _sort_by(node: ast.SortBy) -> str:
    return f"{_within(node.operand, _MEMBER)}.sortBy({node.name}, {unparse(node.key)})"


_WRITERS: Final[dict[type[ast.ExpressionNode], Callable[[Any], str]]] = {
    ast.Literal: _literal,
    ast.Identifier: _identifier,
    ast.Select: _select,
    ast.Has: lambda node: f"has({_within(node.operand, _MEMBER)}.{_field(node.field)})",
    ast.Index: _index,
    ast.Call: _call,
    ast.Logic: _logic,
    ast.Conditional: _conditional,
    ast.ListLiteral: _list,
    ast.MapLiteral: _map,
    ast.StructLiteral: _struct,
    ast.Comprehension: _comprehension,
    ast.Bind: _bind,
    ast.OptionalMap: _optional_map,
    ast.SortBy: _sort_by,
}

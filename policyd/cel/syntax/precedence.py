"""Operators with two operands: how strongly they bind, and the nodes they make."""

from typing import Final

from policyd.cel.syntax import ast
from policyd.cel.syntax.lexer import Token

LEVELS: Final = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), 3),
    **dict.fromkeys("+-", 4),
    **dict.fromkeys("*/%", 5),
}
"""The operators with two operands, by how strongly they bind."""
_FUNCTIONS: Final = {text: f"_{text}_" for text in LEVELS} | {"in": "@in"}


def fold(operands: list[ast.ExpressionNode], operator: Token) -> None:
    """Replace the last two operands by the operation on them."""
    right = operands.pop()
    left = operands.pop()
    if operator.text not in ("&&", "||"):
        function = _FUNCTIONS[operator.text]
        operands.append(ast.Call(operator.position, function, None, (left, right)))
        return
    conjunction = operator.text == "&&"
    if isinstance(left, ast.Logic) and left.conjunction == conjunction:
        left.operands.append(right)
        operands.append(left)
    else:
        operands.append(ast.Logic(operator.position, conjunction, [left, right]))

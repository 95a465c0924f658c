"""Estimate the least and the greatest cost of an expression, as the API server does.

Walks a checked tree by the rules of cel-go's own estimator. Macros are in the tree as they were
written; they are charged as cel-go's expansion.
"""

from typing import Final

from policyd.cel.check.checker import check
from policyd.cel.environment import Environment
from policyd.cel.estimate.estimation import Estimation, Rule, SizeOf, unknown_sizes
from policyd.cel.estimate.macros import (
    estimate_bind,
    estimate_comprehension,
    estimate_optional_map,
    estimate_sort_by,
)
from policyd.cel.estimate.spans import Span
from policyd.cel.estimate.values import (
    estimate_call,
    estimate_conditional,
    estimate_has,
    estimate_identifier,
    estimate_index,
    estimate_list,
    estimate_literal,
    estimate_logic,
    estimate_map,
    estimate_select,
    estimate_struct,
)
from policyd.cel.recursion import deep_recursion
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse

_RULES: Final[dict[type[ast.ExpressionNode], Rule]] = {
    ast.Literal: estimate_literal,
    ast.Identifier: estimate_identifier,
    ast.Select: estimate_select,
    ast.Has: estimate_has,
    ast.Index: estimate_index,
    ast.Call: estimate_call,
    ast.Logic: estimate_logic,
    ast.Conditional: estimate_conditional,
    ast.ListLiteral: estimate_list,
    ast.MapLiteral: estimate_map,
    ast.StructLiteral: estimate_struct,
    ast.Comprehension: estimate_comprehension,
    ast.Bind: estimate_bind,
    ast.OptionalMap: estimate_optional_map,
    ast.SortBy: estimate_sort_by,
}


def estimate_cost(source: str, environment: Environment, *, sizes: SizeOf = unknown_sizes) -> Span:
    """Return the least and the greatest cost of an expression.

    Args:
        source: The text.
        environment: The variables and functions of the expression.
        sizes: The known sizes of its inputs.

    Raises:
        CelCompileError: If the expression cannot be used.
    """
    tree = parse(source, macros=environment.macros)
    with deep_recursion():
        checked = check(tree, source, environment)
        return Estimation(checked, environment, sizes, _RULES).cost(tree)

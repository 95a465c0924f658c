"""Check an expression against its environment: names, types, overloads.

The result says, for every node, its type and what its name refers to. Everything wrong is reported,
not only the first thing; what cannot be typed counts as dyn from there on.
"""

from typing import Final

from policyd.cel.check.calls import check_call, check_conditional, check_logic
from policyd.cel.check.checked import Checked
from policyd.cel.check.literals import (
    check_list_literal,
    check_map_literal,
    check_struct_literal,
)
from policyd.cel.check.macros import (
    check_bind,
    check_comprehension,
    check_optional_map,
    check_sort_by,
)
from policyd.cel.check.mixed_literals import report_mixed_literals
from policyd.cel.check.names import Check, Checker
from policyd.cel.environment import Environment
from policyd.cel.errors import CelCompileError
from policyd.cel.syntax import ast

_CHECKS: Final[dict[type[ast.ExpressionNode], Check]] = {
    ast.Literal: Checker.literal,
    ast.Identifier: Checker.identifier,
    ast.Select: Checker.select,
    ast.Has: Checker.has,
    ast.Index: Checker.index,
    ast.Call: check_call,
    ast.Logic: check_logic,
    ast.Conditional: check_conditional,
    ast.ListLiteral: check_list_literal,
    ast.MapLiteral: check_map_literal,
    ast.StructLiteral: check_struct_literal,
    ast.Comprehension: check_comprehension,
    ast.Bind: check_bind,
    ast.OptionalMap: check_optional_map,
    ast.SortBy: check_sort_by,
}


def check(tree: ast.ExpressionNode, source: str, environment: Environment) -> Checked:
    """Check a tree.

    Raises:
        CelCompileError: If anything is wrong with it.
    """
    checked = check_leniently(tree, source, environment)
    if checked.issues:
        raise CelCompileError(checked.issues)
    return checked


def check_leniently(tree: ast.ExpressionNode, source: str, environment: Environment) -> Checked:
    """Check a tree, and leave the decision about its issues to the caller."""
    checker = Checker(source, environment, Checked(tree), checks=_CHECKS)
    checker.check(tree)
    checked = checker.finish()
    if environment.same_type_literals and not checked.issues:
        report_mixed_literals(checker)
    return checked

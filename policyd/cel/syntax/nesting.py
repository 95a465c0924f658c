"""Limit how deep an expression nests, counted as cel-go counts.

cel-go counts, for each rule of its grammar, how many are being read at a time. Its parser is
left-recursive: every further operator of a chain, and every further `.`, `[` or `(` behind a value,
is one level more. Afterwards it counts the levels of the tree. No rule but these four can be
nested deeper than `expression`.
"""

from typing import Final

from policyd.cel.syntax import ast

MAX_DEPTH: Final = 250
"""Levels of nesting cel-go allows."""


class TooDeepError(Exception):
    """An expression nests deeper than cel-go allows."""


class Nesting:
    """The number of open parts for each rule of the grammar."""

    __slots__ = ("calculation", "expression", "member", "relation")

    def __init__(self) -> None:
        self.expression = 0
        self.relation = 0
        self.calculation = 0
        self.member = 0

    def state(self) -> tuple[int, int, int, int]:
        """Return all counts, to come back to them."""
        return self.expression, self.relation, self.calculation, self.member

    def restore(self, state: tuple[int, int, int, int]) -> None:
        """Go back to former counts."""
        self.expression, self.relation, self.calculation, self.member = state

    def enter_expression(self) -> None:
        """Count an expression.

        Raises:
            TooDeepError: If it is one too many.
        """
        self.expression += 1
        if self.expression > MAX_DEPTH:
            raise TooDeepError

    def enter_member(self) -> None:
        """Count a value, or something behind it.

        Raises:
            TooDeepError: If it is one too many.
        """
        self.member += 1
        if self.member > MAX_DEPTH:
            raise TooDeepError


class OperatorChain:
    """The operators of one expression so far, as levels of its relations and calculations.

    A sum takes its operands one after the other; the products in an operand are a chain of their
    own, unless no plus or minus came before.
    """

    __slots__ = ("_calculation", "_nesting", "_products", "_relation", "_relations", "_steps")

    def __init__(self, nesting: Nesting) -> None:
        self._nesting = nesting
        self._relation = nesting.relation
        self._calculation = nesting.calculation
        self._relations = 0
        self._steps = 0
        self._products = -1
        nesting.relation += 1
        nesting.calculation += 1

    def behind(self, level: int) -> None:
        """Count the operator an operand stands behind: its level is that of its precedence.

        Raises:
            TooDeepError: If it is one too many.
        """
        if level < 4:
            self._relations = self._relations + 1 if level == 3 else 0
            self._steps, self._products = 0, -1
        elif level == 4:
            self._steps, self._products = self._steps + 1, 0
        elif self._products < 0:
            self._steps += 1
        else:
            self._products += 1
        nesting = self._nesting
        nesting.relation = self._relation + 1 + (self._relations + 1 if self._relations else 0)
        nesting.calculation = self._calculation + 1 + self._deepest(level)
        if nesting.relation > MAX_DEPTH or nesting.calculation > MAX_DEPTH:
            raise TooDeepError

    def _deepest(self, level: int) -> int:
        if self._products > 0:
            return self._steps + 1 + self._products + 1
        return self._steps + (1 if level > 3 else 0)

    def end(self) -> None:
        """Remove the counts of this expression."""
        self._nesting.relation = self._relation
        self._nesting.calculation = self._calculation


_BINARY: Final = frozenset(
    (*("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in"), *("_+_", "_-_", "_*_", "_/_", "_%_"))
)
_LEVELS: Final = (
    *(ast.Conditional, ast.Select, ast.Has, ast.Index),
    *(ast.Comprehension, ast.Bind, ast.OptionalMap, ast.SortBy),
)


def is_too_deep(tree: ast.ExpressionNode) -> bool:
    """Tell whether a tree has more levels than cel-go walks.

    Logic, negations, literals and functions without a receiver are not levels to it.
    """
    pending = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if isinstance(node, ast.Call):
            depth += node.target is not None or node.function in _BINARY
        else:
            depth += isinstance(node, _LEVELS)
        if depth > MAX_DEPTH:
            return True
        pending.extend((child, depth) for child in ast.children(node))
    return False

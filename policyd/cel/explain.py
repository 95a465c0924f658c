"""Evaluate each part of an expression, to show why it is false or fails.

Every part is compiled and evaluated by itself, by the same compiler as the whole. Parts the whole
does not get to, behind a `&&` that is false already, are named and not evaluated.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from policyd.cel.check.checked import CheckedExpression, VariableReference
from policyd.cel.check.checker import check
from policyd.cel.compile.program import compile_checked
from policyd.cel.containers import elements, pairs
from policyd.cel.cost import Budget
from policyd.cel.environment import Environment
from policyd.cel.errors import CelError, locate
from policyd.cel.estimate.estimator import estimate_cost
from policyd.cel.estimate.spans import Span
from policyd.cel.recursion import deep_recursion
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.cel.syntax.unparse import unparse
from policyd.cel.types import Type
from policyd.cel.values import Optional, Value

MOST_ROUNDS: Final = 10
"""Rounds of a loop that are shown."""
MOST_STEPS: Final = 500
"""Parts that are shown, at most."""


@dataclass(frozen=True, slots=True)
class EvaluationOutcome:
    """A value, or the error that came instead."""

    value: Value = None
    error: CelError | None = None

    def is_value(self, value: object) -> bool:
        """Tell whether it is this very value."""
        return self.error is None and self.value is value


@dataclass(frozen=True, slots=True)
class ExpressionStep:
    """A part of an expression.

    Attributes:
        text: The part.
        line: Line where it begins, from 1.
        column: Column where it begins, from 1.
        depth: How many parts it is in.
        outcome: Its result; None if the whole does not evaluate it.
        is_round: Whether it is a variable of a loop, before the parts of a round.
    """

    text: str
    line: int
    column: int
    depth: int
    outcome: EvaluationOutcome | None
    is_round: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """An expression, its value, and the explanations of its parts.

    Attributes:
        source: Its text.
        outcome: Its result.
        result_type: The type of that, as far as the checker knows.
        spent: Its cost.
        estimate: Its cost with any inputs.
        steps: Its parts, each before its own parts; the first is the whole.
    """

    source: str
    outcome: EvaluationOutcome
    result_type: Type
    spent: int
    estimate: Span
    steps: tuple[ExpressionStep, ...]


def explain(source: str, environment: Environment, variables: Mapping[str, object]) -> Explanation:
    """Evaluate an expression, and each of its parts.

    Args:
        source: The text.
        environment: The variables and functions of the expression.
        variables: A value for each variable the expression uses.

    Raises:
        CelCompileError: If the expression cannot be used.
    """
    tree = parse(source, macros=environment.macros)
    with deep_recursion():
        checked = check(tree, source, environment)
        budget = Budget()
        scope = _Scope(source, checked, environment, dict(variables))
        outcome = scope.evaluate(tree, budget)
        steps = []
        for step in scope.steps(tree, 0):
            steps.append(step)
            if len(steps) == MOST_STEPS:
                break
    estimate = estimate_cost(source, environment)
    return Explanation(source, outcome, checked.result, budget.spent, estimate, tuple(steps))


@dataclass(frozen=True, slots=True)
class _Scope:
    """The scope of a part: the variables of the loops around it."""

    source: str
    checked: CheckedExpression
    environment: Environment
    variables: dict[str, object]
    local: frozenset[str] = field(default_factory=frozenset)

    def evaluate(self, node: ast.ExpressionNode, budget: Budget | None = None) -> EvaluationOutcome:
        """Evaluate a part."""
        references = dict(self.checked.references)
        for inner in _descendants(node):
            if isinstance(inner, ast.Identifier) and inner.name in self.local:
                references[inner] = VariableReference(inner.name)
        part = replace(self.checked, tree=node, references=references)
        program = compile_checked(self.source, part, self.environment)
        try:
            return EvaluationOutcome(program.evaluate(self.variables, budget or Budget()))
        except CelError as error:
            return EvaluationOutcome(error=error)

    def within(self, variables: Mapping[str, object]) -> "_Scope":
        """Return the scope of a round of a loop."""
        return replace(
            self, variables={**self.variables, **variables}, local=self.local | frozenset(variables)
        )

    def steps(self, node: ast.ExpressionNode, depth: int) -> Iterator[ExpressionStep]:
        """Yield the steps of a part, and of the parts in it."""
        inner = depth
        if _is_shown(node):
            yield self.step(node, depth, self.evaluate(node))
            inner = depth + 1
        if ast.qualified_name(node) is None:
            yield from _WALKS.get(type(node), _walk_all)(self, node, inner)

    def step(
        self, node: ast.ExpressionNode, depth: int, outcome: EvaluationOutcome | None
    ) -> ExpressionStep:
        """Describe a part."""
        line, column = locate(self.source, _begin(node))
        return ExpressionStep(unparse(node), line, column, depth, outcome)

    def skipped(self, node: ast.ExpressionNode, depth: int) -> Iterator[ExpressionStep]:
        """Yield the step of a part the whole does not get to."""
        if _is_shown(node):
            yield self.step(node, depth, None)

    def rounds(
        self,
        node: ast.ExpressionNode,
        values: Mapping[str, object],
        parts: tuple[ast.ExpressionNode, ...],
        depth: int,
    ) -> Iterator[ExpressionStep]:
        """Yield the variables of a round, and the steps of its parts."""
        line, column = locate(self.source, _begin(node))
        scope = self.within(values)
        for name, value in values.items():
            yield ExpressionStep(name, line, column, depth, EvaluationOutcome(value), is_round=True)
        for part in parts:
            yield from scope.steps(part, depth + 1)


_CONSTANT: Final = (ast.Literal, ast.ListLiteral, ast.MapLiteral)


def _is_shown(node: ast.ExpressionNode) -> bool:
    """Tell whether a value says something: constants and whole objects do not."""
    if isinstance(node, ast.Identifier):
        return False
    return not all(isinstance(part, _CONSTANT) for part in _descendants(node))


def _begin(node: ast.ExpressionNode) -> int:
    return min((part.position for part in _descendants(node)), default=node.position)


def _descendants(node: ast.ExpressionNode) -> Iterator[ast.ExpressionNode]:
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += ast.children(part)


def _walk_all(scope: _Scope, node: ast.ExpressionNode, depth: int) -> Iterator[ExpressionStep]:
    for part in ast.children(node):
        yield from scope.steps(part, depth)


def _walk_has(scope: _Scope, node: ast.Has, depth: int) -> Iterator[ExpressionStep]:
    if ast.qualified_name(node.operand) is None:
        yield from scope.steps(node.operand, depth)


def _walk_logic(scope: _Scope, node: ast.Logic, depth: int) -> Iterator[ExpressionStep]:
    decided = False
    for operand in node.operands:
        if decided:
            yield from scope.skipped(operand, depth)
            continue
        yield from scope.steps(operand, depth)
        decided = scope.evaluate(operand).is_value(not node.conjunction)


def _walk_conditional(scope: _Scope, node: ast.Conditional, depth: int) -> Iterator[ExpressionStep]:
    yield from scope.steps(node.condition, depth)
    condition = scope.evaluate(node.condition)
    for value, branch in ((True, node.then), (False, node.otherwise)):
        walk = scope.steps if condition.is_value(value) else scope.skipped
        yield from walk(branch, depth)


def _walk_call(scope: _Scope, node: ast.Call, depth: int) -> Iterator[ExpressionStep]:
    if node.function not in ("or", "orValue") or node.target is None:
        yield from _walk_all(scope, node, depth)
        return
    yield from scope.steps(node.target, depth)
    target = scope.evaluate(node.target).value
    needed = isinstance(target, Optional) and not target.present
    for argument in node.arguments:
        yield from (scope.steps if needed else scope.skipped)(argument, depth)


def _walk_comprehension(
    scope: _Scope, node: ast.Comprehension, depth: int
) -> Iterator[ExpressionStep]:
    yield from scope.steps(node.range, depth)
    over = scope.evaluate(node.range)
    deciding = {"all": False, "exists": True}.get(node.kind)
    parts = tuple(part for part in (node.condition, node.result) if part is not None)
    for values in _rounds(over, node.variables):
        yield from scope.rounds(node.result, values, parts, depth)
        if deciding is not None and scope.within(values).evaluate(node.result).is_value(deciding):
            return


def _rounds(over: EvaluationOutcome, names: tuple[str, ...]) -> list[dict[str, object]]:
    try:
        if len(names) == 1:
            found = [{names[0]: element} for element in elements(over.value)]
        else:
            found = [dict(zip(names, pair, strict=True)) for pair in pairs(over.value)]
    except CelError:  # nothing that can be looped over: the whole says so
        return []
    return found[:MOST_ROUNDS]


def _walk_bind(scope: _Scope, node: ast.Bind, depth: int) -> Iterator[ExpressionStep]:
    yield from scope.steps(node.value, depth)
    value = scope.evaluate(node.value)
    if value.error is None:
        yield from scope.rounds(node.body, {node.name: value.value}, (node.body,), depth)


def _walk_optional_map(
    scope: _Scope, node: ast.OptionalMap, depth: int
) -> Iterator[ExpressionStep]:
    yield from scope.steps(node.operand, depth)
    operand = scope.evaluate(node.operand).value
    if isinstance(operand, Optional) and operand.present:
        yield from scope.rounds(node.body, {node.name: operand.value}, (node.body,), depth)
    else:
        yield from scope.skipped(node.body, depth)


def _walk_sort_by(scope: _Scope, node: ast.SortBy, depth: int) -> Iterator[ExpressionStep]:
    yield from scope.steps(node.operand, depth)
    for values in _rounds(scope.evaluate(node.operand), (node.name,)):
        yield from scope.rounds(node.key, values, (node.key,), depth)


_WALKS: Final[
    dict[type[ast.ExpressionNode], Callable[[_Scope, Any, int], Iterator[ExpressionStep]]]
] = {
    ast.Has: _walk_has,
    ast.Logic: _walk_logic,
    ast.Conditional: _walk_conditional,
    ast.Call: _walk_call,
    ast.Comprehension: _walk_comprehension,
    ast.Bind: _walk_bind,
    ast.OptionalMap: _walk_optional_map,
    ast.SortBy: _walk_sort_by,
}

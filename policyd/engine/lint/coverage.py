"""Find branches of a policy's expressions that no case takes.

For each part that decides something (the operands of `&&` and `||`, the condition of `?:`), two
expressions are made: whether the whole gets to it and finds it true, and whether false. They are
asked of each case. Inside a loop, one element is enough.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from policyd.cel import Budget, CelCompileError, CelError, Environment, Program, compile_expression
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.cel.syntax.unparse import unparse
from policyd.engine.evaluate.conditions import (
    Invocation,
    condition_variables,
    exemption_from,
    invocations,
    make_match,
    matches,
    variables_of,
)
from policyd.engine.evaluate.verdict import CATCHABLE
from policyd.engine.model.compiled import CompiledPolicy, environments_of
from policyd.engine.model.exceptions import NOTHING
from policyd.engine.model.facts import Facts
from policyd.engine.offline.cases import PreparedCase


class Branch(NamedTuple):
    """A part of an expression, and the way it may go.

    Attributes:
        policy: The policy's id.
        place: The expression: the name of a condition, variable or validation, or where it stands.
        part: The text of the part.
        holds: Whether the part is true on this way.
    """

    policy: str
    place: str
    part: str
    holds: bool

    def __str__(self) -> str:
        return (
            f"`{self.part}` in `{self.place}` of `{self.policy}` is never {str(self.holds).lower()}"
        )


@dataclass(frozen=True, slots=True)
class _Probe:
    """The evaluations that tell whether a branch is taken."""

    branch: Branch
    taken: Program


Reach = Callable[[str], str]
"""Makes the expression that tells whether a text is true where the whole gets to it."""


class BranchCoverage:
    """The branches of policies, and which of them cases take."""

    def __init__(self, policies: Iterable[CompiledPolicy]) -> None:
        self._conditions: dict[str, tuple[_Probe, ...]] = {}
        self._others: dict[str, tuple[_Probe, ...]] = {}
        for policy in policies:
            environments = environments_of(policy)
            self._conditions[policy.id] = tuple(
                _probes(policy, dict(policy.conditions), environments.conditions)
            )
            validations = {v.place: v.program for v in policy.validations}
            self._others[policy.id] = (
                *_probes(policy, policy.variables, environments.expressions),
                *_probes(policy, validations, environments.expressions),
                *_probes(
                    policy, {m.place: m.program for m in policy.mutations}, environments.mutations
                ),
            )
        self._taken: set[Branch] = set()

    @property
    def branches(self) -> tuple[Branch, ...]:
        """All branches, in the order of the policies."""
        found = (*self._conditions.values(), *self._others.values())
        return tuple(dict.fromkeys(probe.branch for probes in found for probe in probes))

    @property
    def missing(self) -> tuple[Branch, ...]:
        """The branches that no case took."""
        return tuple(branch for branch in self.branches if branch not in self._taken)

    def note(self, asked: PreparedCase) -> None:
        """Take note of the branches that a case takes."""
        changed = asked.policies.mutate(asked.request).object
        for policy in asked.policies.policies:
            facts = Facts(asked.request, asked.policies.surroundings)
            if policy.validations and not isinstance(changed, msgspec.UnsetType):
                facts.object = changed
            try:
                for invocation in invocations(policy, facts):
                    self._note(invocation, facts)
            except CATCHABLE:  # the case itself says so
                continue

    def _note(self, invocation: Invocation, facts: Facts) -> None:
        policy = invocation.policy
        for view in facts.views if policy.by_template else (facts.whole,):
            variables = variables_of(invocation, facts, view)
            exemption = exemption_from(policy, facts, variables) if policy.exceptions else NOTHING
            asked = condition_variables(policy, facts, variables)
            self._ask(self._conditions.get(policy.id, ()), asked)
            make_match(policy, view, variables, exemption)
        for match in matches(invocation, facts):
            self._ask(self._others.get(policy.id, ()), match.variables)

    def _ask(self, probes: Iterable[_Probe], variables: Mapping[str, object]) -> None:
        for probe in probes:
            if probe.branch in self._taken:
                continue
            try:
                if probe.taken.evaluate(variables, Budget()) is True:
                    self._taken.add(probe.branch)
            except CelError:
                continue


def _probes(
    policy: CompiledPolicy, programs: Mapping[str, Program], environment: Environment
) -> Iterator[_Probe]:
    for place, program in programs.items():
        try:
            tree = parse(program.source, macros=environment.macros)
        except CelCompileError:  # compiled more leniently
            continue
        for node, reach in _deciding(tree, lambda text: text):
            part = unparse(node)
            for holds, text in ((True, f"({part})"), (False, f"!({part})")):
                try:
                    taken = compile_expression(reach(text), environment)
                except CelCompileError:
                    continue
                yield _Probe(Branch(policy.id, place, part, holds), taken)


def _deciding(node: ast.ExpressionNode, reach: Reach) -> Iterator[tuple[ast.ExpressionNode, Reach]]:
    """Yield the parts that decide something, each with how the whole gets to it."""
    match node:
        case ast.Logic():
            yield from _joined(node, reach)
        case ast.Conditional(condition=condition, then=then, otherwise=otherwise):
            yield from _part(condition, reach)
            yield from _deciding(then, _after(reach, unparse(condition)))
            yield from _deciding(otherwise, _after(reach, f"!({unparse(condition)})"))
        case ast.Comprehension():
            yield from _looped(node, reach)
        case ast.Bind() | ast.OptionalMap() | ast.SortBy():
            return  # of a name of their own
        case _:
            for part in ast.children(node):
                yield from _deciding(part, reach)


def _joined(node: ast.Logic, reach: Reach) -> Iterator[tuple[ast.ExpressionNode, Reach]]:
    for operand in node.operands:
        yield from _part(operand, reach)
        text = unparse(operand)
        reach = _after(reach, text if node.conjunction else f"!({text})")


def _part(node: ast.ExpressionNode, reach: Reach) -> Iterator[tuple[ast.ExpressionNode, Reach]]:
    """Yield a deciding part; of a chain, its parts."""
    inner = node
    while isinstance(inner, ast.Call) and inner.function == "!_":
        inner = inner.arguments[0]
    if isinstance(inner, ast.Logic):
        yield from _deciding(inner, reach)
    elif not isinstance(inner, ast.Literal):
        yield inner, reach
        yield from _deciding(inner, reach)


def _after(reach: Reach, condition: str) -> Reach:
    return lambda text: reach(f"({condition}) && ({text})")


def _looped(node: ast.Comprehension, reach: Reach) -> Iterator[tuple[ast.ExpressionNode, Reach]]:
    yield from _deciding(node.range, reach)
    over, names = unparse(node.range), ", ".join(node.variables)

    def within(text: str) -> str:
        return reach(f"({over}).exists({names}, {text})")

    inner: Reach = within
    if node.condition is not None:
        yield from _part(node.condition, within)
        inner = _after(within, unparse(node.condition))
    yield from (
        _part(node.result, inner) if node.kind in _DECIDING else _deciding(node.result, inner)
    )


_DECIDING = frozenset({"all", "exists", "exists_one", "filter"})
"""The loops that ask something of each element."""

"""Check the fields and the cost of a policy's expressions before any request.

An API server says such things in a policy's status, or only when the policy fails. Here they are
findings: a field that no kind of the policy has is doubtful, and an expression
that exceeds its cost limit with any input is useless.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Final

from policyd.api.policy import MatchConstraints, Policy
from policyd.cel import Environment, Issue
from policyd.cel.cost import EXPRESSION_LIMIT, MATCH_CONDITIONS_LIMIT, POLICY_LIMIT
from policyd.cel.errors import CelCompileError
from policyd.cel.estimate.estimator import estimate_cost
from policyd.cel.estimate.spans import NOTHING, Span
from policyd.cel.kinds import BuiltinKind, TypeCheck, kind_of
from policyd.cel.types import DYN
from policyd.engine.compile.policies import OWN_FORM, Form, Layout
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import OWN
from policyd.engine.model.dialects import DEFAULT_DIALECT, Dialect
from policyd.engine.model.environments import PolicyEnvironments, PolicyPart
from policyd.patch.operations import Path

MOST_CHECKED: Final = 4_000_000
"""Characters of expressions times kinds: of more, no field is looked up, which is only doubtful."""

_FIELD = "undefined field"


@dataclass(frozen=True, slots=True)
class _Expression:
    """An expression of a policy: where it stands, its text, and its environment."""

    path: Path
    source: str
    part: PolicyPart = "expressions"
    variable: str = ""


def static_findings(
    policy: Policy, document: Document, form: Form = OWN_FORM, dialect: Dialect = DEFAULT_DIALECT
) -> list[Finding]:
    """Return the findings about a valid policy that need no request.

    Args:
        policy: The policy, as an object of policyd's own kind.
        document: Its document: findings point into it.
        form: Its format there.
        dialect: The version of Kubernetes it is written for.
    """
    environments = form.environments(dialect, policy.spec.param_kind is not None)
    environments = environments.with_variables(
        {variable.name: DYN for variable in policy.spec.variables}
    )
    expressions = tuple(_expressions(policy, form.layout))
    costs = _cost_findings(expressions, document, environments)
    if form.kind != OWN:  # an API server takes such a policy, and fails with it
        costs = (replace(finding, severity="warning") for finding in costs)
    return [*_field_findings(policy, expressions, document, environments), *costs]


def _expressions(policy: Policy, layout: Layout) -> Iterator[_Expression]:
    """Yield the expressions of a policy, variables in their order first."""
    spec = policy.spec
    for index, variable in enumerate(spec.variables):
        path = layout.at("variables", index, "expression")
        yield _Expression(path, variable.expression, variable=variable.name)
    for index, condition in enumerate(spec.match_conditions):
        path = layout.at("matchConditions", index, "expression")
        yield _Expression(path, condition.expression, "conditions")
    for index, validation in enumerate(spec.validations):
        path = layout.at("validations", index)
        yield _Expression((*path, "expression"), validation.expression)
        if validation.message_expression:
            where = (*path, "messageExpression")
            yield _Expression(where, validation.message_expression, "messages")
    for index, mutation in enumerate(spec.mutations):
        for name, given in (
            ("applyConfiguration", mutation.apply_configuration),
            ("jsonPatch", mutation.json_patch),
        ):
            if given is not None:
                path = layout.at("mutations", index, name, "expression")
                yield _Expression(path, given.expression, "mutations")


def named_kinds(constraints: MatchConstraints) -> tuple[BuiltinKind, ...]:
    """Return the kinds that rules name; none if the type of any of them is unknown."""
    named = dict.fromkeys(
        kind_of(group, version, resource)
        for rule in constraints.resource_rules
        for group in rule.api_groups
        for version in rule.api_versions
        for resource in rule.resources
    )
    known = tuple(kind for kind in named if kind is not None)
    return known if len(known) == len(named) else ()


def _field_findings(
    policy: Policy,
    expressions: tuple[_Expression, ...],
    document: Document,
    environments: PolicyEnvironments,
) -> Iterator[Finding]:
    """Yield the fields that none of the named kinds has."""
    kinds_named = named_kinds(policy.spec.match_constraints)
    written = sum(len(expression.source) for expression in expressions)
    if not kinds_named or len(kinds_named) * written > MOST_CHECKED:
        return
    checks = [TypeCheck(kind) for kind in kinds_named]
    kinds = " or ".join(str(check.kind) for check in checks)
    for expression in expressions:
        environment = environments.of(expression.part)
        first, *others = [_wrong_fields(check, expression, environment) for check in checks]
        for place, issue in first.items():
            if not all(place in other for other in others):
                continue
            at = document.position_within(expression.path, issue.line, issue.column)
            message = f"{issue.message} of {kinds}"
            found = document.finding(message, expression.path, hint=issue.hint, at=at)
            yield replace(found, severity="warning")


def _wrong_fields(
    check: TypeCheck, expression: _Expression, environment: Environment
) -> dict[tuple[int, int, str], Issue]:
    """Return the fields a kind has not, by where they stand."""
    if expression.variable:
        issues = check.variable(expression.variable, expression.source, environment)
    else:
        issues = check.expression(expression.source, environment)
    return {
        (issue.line, issue.column, issue.message): issue
        for issue in issues
        if issue.message.startswith(_FIELD)
    }


def _cost_findings(
    expressions: tuple[_Expression, ...], document: Document, environments: PolicyEnvironments
) -> Iterator[Finding]:
    """Yield costs over their limit: of an expression, the match conditions, or all others."""
    totals: dict[bool, Span] = {}
    for expression in expressions:
        span = _estimated(expression, environments)
        if span.least > EXPRESSION_LIMIT:
            message = _too_costly("the expression costs", span, EXPRESSION_LIMIT)
            yield document.finding(message, expression.path)
        if not expression.variable:  # it may be unused
            is_condition = expression.part == "conditions"
            totals[is_condition] = reduce(add, (totals.get(is_condition, NOTHING), span))
    for is_condition, what, limit in (
        (True, "the match conditions cost", MATCH_CONDITIONS_LIMIT),
        (False, "the expressions of the policy cost", POLICY_LIMIT),
    ):
        total = totals.get(is_condition, NOTHING)
        if total.least > limit:
            yield document.finding(_too_costly(what, total, limit), ("spec",))


def _estimated(expression: _Expression, environments: PolicyEnvironments) -> Span:
    try:
        return estimate_cost(expression.source, environments.of(expression.part))
    except CelCompileError:  # of a variable whose type is not known here
        return NOTHING


def _too_costly(what: str, span: Span, limit: int) -> str:
    return f"{what} at least {span.least:,}, the limit is {limit:,}"

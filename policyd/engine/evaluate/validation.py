"""Evaluate all validations of all policies; each that is not true is a denial."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from policyd.cel import Budget, CelError, CelTimeError, LazyVariables
from policyd.cel.cost import POLICY_LIMIT
from policyd.cel.lib.authorizer import Authorization as PermissionDecision
from policyd.cel.lib.authorizer import AuthorizedAction as Permission
from policyd.cel.lib.authorizer import Authorizer, ResourceCheck
from policyd.cel.values import type_name
from policyd.engine.documents.findings import field_path
from policyd.engine.evaluate.conditions import (
    BindingError,
    EvaluationError,
    Invocation,
    Match,
    failed_expression,
    invocations,
    matches,
    stop,
    variables_of,
    views_of,
)
from policyd.engine.evaluate.kept_values import KeptValues
from policyd.engine.evaluate.verdict import CATCHABLE, VerdictBuilder, effects_of_failure
from policyd.engine.inject.templates import ABSENT
from policyd.engine.model.compiled import VALIDATING, CompiledPolicy, CompiledValidation
from policyd.engine.model.deadline import OutOfTimeError
from policyd.engine.model.decision import Denial
from policyd.engine.model.facts import Facts
from policyd.engine.objects.extracts import without_containers
from policyd.errors import PolicydError

MAXIMUM_MESSAGE = 5 * 1024
"""Letters that a computed message may have, as in the API server."""

MAXIMUM_ANNOTATION = 10 * 1024
"""Letters of an audit annotation that are kept."""


def validate(policies: Sequence[CompiledPolicy], facts: Facts, verdict: VerdictBuilder) -> None:
    """Ask every policy that concerns the request."""
    for policy in policies:
        try:
            for invocation in invocations(policy, facts):
                _invoke(invocation, facts, verdict)
        except BindingError as error:
            verdict.fail(policy, error, error.binding, configuration=True)
        except CATCHABLE as error:
            verdict.fail(policy, error)


Concerns = Sequence[tuple[Invocation, Sequence[int]]]
"""The invocations of a policy whose conditions hold for an object, each with the views for which
they do, by their numbers."""


def concerns(policy: CompiledPolicy, facts: Facts) -> Concerns | None:
    """Return what a policy has to do with a request, without the request itself.

    A request for an object that conditions and selectors cannot distinguish from this one's has
    the same. The policy must have no exceptions.

    Returns:
        None if that cannot be evaluated, or a rule names another version of the request.
    """
    found = []
    views = views_of(policy, facts)
    try:
        for invocation in invocations(policy, facts):
            if invocation.matched is not None:
                return None
            own = [views.index(match.view) for match in matches(invocation, facts)]
            if own:
                found.append((invocation, own))
    except (*CATCHABLE, CelError):
        return None
    return found


def all_true(
    concerned: Concerns,
    validations: Sequence[CompiledValidation],
    facts: Facts,
    kept: KeptValues,
) -> bool:
    """Tell whether some validations of a policy are true of a request that it concerns.

    Nothing is explained: a caller that needs the reason evaluates the policy.

    Args:
        concerned: What the policy has to do with the request.
        validations: Those that are asked.
        facts: The request.
        kept: The policy, with values of its variables.

    Returns:
        False also if it cannot be evaluated.
    """
    policy = kept.policy
    views = views_of(policy, facts)
    try:
        for invocation, numbers in concerned:
            for number in numbers:
                view = views[number]
                variables = variables_of(invocation, facts, view)
                budget = Budget(POLICY_LIMIT, facts.allowance, policy.id)
                if policy.variables:
                    variables["variables"] = kept.variables(
                        variables, budget, params=invocation.param, facts=facts, view=view
                    )
                for validation in validations:
                    if validation.program.evaluate(variables, budget) is not True:
                        return False
                if budget.spent * len(policy.validations) > budget.limit:
                    return False  # all together might cost more than they may
    except (*CATCHABLE, CelError):
        return False
    return True


def _invoke(invocation: Invocation, facts: Facts, verdict: VerdictBuilder) -> None:
    policy, binding = invocation.policy, invocation.binding
    try:
        for match in matches(invocation, facts):
            if policy.conditions or policy.exceptions:
                facts.check_time()  # they may have taken all of it
            if facts.allowance.strained:
                match.budget.renew()
            verdict.matched(policy)
            _ask(invocation, match, facts, verdict)
            if policy.annotations:
                _annotate(invocation, match, facts, verdict)
    except CATCHABLE as error:
        verdict.fail(policy, error, binding)


class _Objection(NamedTuple):
    """A validation that is not true, or whose expression failed."""

    validation: CompiledValidation
    match: Match
    failed: CelError | None


def _ask(invocation: Invocation, match: Match, facts: Facts, verdict: VerdictBuilder) -> None:
    """Evaluate all validations first, since messages use the rest of the budget.

    Raises:
        OutOfTimeError: If there is no time left; the objections found before that count.
        OutOfBudgetError: If a foreign policy costs too much; it then has no objection at all, as
            in the API server.
    """
    policy, binding = invocation.policy, invocation.binding
    found: list[_Objection] = []
    ended: OutOfTimeError | None = None
    try:
        for objection in _objections(policy, match, facts):
            found.append(objection)  # noqa: PERF402 - those before an error are kept
    except OutOfTimeError as error:
        ended = error
    for validation, asked, failed in found:
        late = facts.out_of_time()
        effects = binding.actions if failed is None else effects_of_failure(policy, binding)
        if not verdict.has_room(policy, effects):
            verdict.leave_out(policy, binding, validation if failed is None else None)
        elif failed is None:
            denial = _denial(policy, validation, asked, facts, explain=not late)
            verdict.object_to(policy, denial, binding)
        else:
            verdict.fail(policy, _failure(policy, validation, failed), binding)
    if ended is not None:
        raise ended


def _objections(policy: CompiledPolicy, match: Match, facts: Facts) -> Iterator[_Objection]:
    """Yield the validations that are not true."""
    for validation in _in_time(policy.validations, facts):
        asked = match_for(policy, validation, match, facts)
        if asked is None:
            continue
        try:
            if validation.program.evaluate(asked.variables, match.budget) is not True:
                yield _Objection(validation, asked, None)
        except CelError as error:
            if not policy.own or isinstance(error, CelTimeError):
                stop(error, match.budget)
            # Its frames are not kept: the garbage collector would look through a thousand.
            error.__context__ = error.__traceback__ = None
            yield _Objection(validation, asked, error)


def _in_time(
    validations: Sequence[CompiledValidation], facts: Facts
) -> Iterator[CompiledValidation]:
    """Read the clock between validations: a policy may have a thousand."""
    for number, validation in enumerate(validations):
        if number:
            facts.check_time()
        yield validation


def match_for(
    policy: CompiledPolicy, validation: CompiledValidation, match: Match, facts: Facts
) -> Match | None:
    """Return the variables of a validation; None if an exception exempts the request from it."""
    left_out = match.exemption.validations.get(validation.place)
    if left_out is None:
        return match
    if not left_out:
        return None
    paths = tuple(template.path for template in facts.templates)
    variables = dict(match.variables)
    for name in ("object", "workload"):
        variables[name] = without_containers(variables.get(name), paths, left_out)
    if "pod" in variables:
        variables["pod"] = without_containers(variables["pod"], ((),), left_out)
    if policy.variables:
        variables["variables"] = LazyVariables(policy.variables, variables, match.budget)
    return Match(match.view, variables, match.budget)


def _failure(
    policy: CompiledPolicy, validation: CompiledValidation, error: CelError
) -> EvaluationError:
    if policy.own:
        return EvaluationError(f"`{validation.place}` failed: {error}")
    return EvaluationError(failed_expression(validation.program.source, error))


def _denial(
    policy: CompiledPolicy,
    validation: CompiledValidation,
    match: Match,
    facts: Facts,
    *,
    explain: bool,
) -> Denial:
    """Return the denial of a validation; without time to `explain`, with the static message."""
    several = len(facts.templates) > 1 and match.view is not facts.whole
    return Denial(
        policy=policy.name,
        validation=validation.place,
        message=_message(policy, validation, match) if explain else validation.message,
        remedy=_remedy(validation, match) if explain else "",
        reason=validation.reason,
        path=field_path(match.view.template or ()) if several else "",
    )


def _message(policy: CompiledPolicy, validation: CompiledValidation, match: Match) -> str:
    """Return the computed message if it can be had, and is one short line; else the static one."""
    if validation.message_program is None:
        return validation.message
    if policy.kind == VALIDATING:
        match = _anew(policy, match, match.budget)
    try:
        message = validation.message_program.evaluate(match.variables, match.budget)
    except CelError:
        return validation.message
    if not isinstance(message, str):
        return validation.message
    message = message.strip()
    if not message or "\n" in message or len(message.encode()) > MAXIMUM_MESSAGE:
        return validation.message
    return message


def _anew(policy: CompiledPolicy, match: Match, budget: Budget) -> Match:
    """Return the variables of messages and annotations: the policy's, evaluated again for them.

    In the API server, neither these nor the variables that they use can ask for permissions.
    """
    variables = dict(match.variables)
    if policy.kind == VALIDATING:
        variables |= _NO_USER
    if policy.variables:
        variables["variables"] = LazyVariables(policy.variables, variables, budget)
    return Match(match.view, variables, budget)


def _unknown(name: str) -> Callable[[Permission], PermissionDecision]:
    def decide(_permission: Permission) -> PermissionDecision:
        raise CelError(f"no such attribute(s): {name}")

    return decide


_RESOURCE: Final = "authorizer.requestResource"
_NO_USER: Final[Mapping[str, object]] = {
    "authorizer": Authorizer(_unknown("authorizer")),
    _RESOURCE: ResourceCheck(_unknown(_RESOURCE), Permission()),
}


def _remedy(validation: CompiledValidation, match: Match) -> str:
    try:
        remedy = validation.remedy.value(match.variables, match.budget)
    except PolicydError:
        return ""
    return "" if remedy is ABSENT else str(remedy)


def _annotate(invocation: Invocation, match: Match, facts: Facts, verdict: VerdictBuilder) -> None:
    """Add the policy's audit annotations, with a budget of their own."""
    policy = invocation.policy
    budget = Budget(POLICY_LIMIT, facts.allowance, policy.id)
    variables = _anew(policy, match, budget).variables
    for key, program in policy.annotations:
        facts.check_time()
        try:
            value = program.evaluate(variables, budget)
        except CelError as error:
            stop(error, budget)
            verdict.fail_annotation(invocation, failed_expression(program.source, error))
            continue
        if value is not None and not isinstance(value, str):
            message = (
                f"valueExpression '{program.source}' resulted in unsupported return type: "
                f"{type_name(value)}. Return type must be either string or null."
            )
            verdict.fail_annotation(invocation, message)
        elif value and value.strip():
            text = value.strip().encode()[:MAXIMUM_ANNOTATION].decode(errors="ignore")
            verdict.publish(f"{policy.name}/{key}", text)

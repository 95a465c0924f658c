"""Explain the verdict of each policy on one request.

Mutations run in their order, each on the result of the ones before; validations see the result
of all of them. Each expression is evaluated again with all its parts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from policyd.api.admission import AdmissionRequest
from policyd.cel import Budget, CelCompileError, CelError, Environment, Program
from policyd.cel.estimate.spans import NOTHING as FREE
from policyd.cel.explain import EvaluationOutcome, Explanation, explain
from policyd.engine.documents.findings import field_path
from policyd.engine.evaluate.conditions import (
    Invocation,
    Match,
    condition_variables,
    exemption_from,
    invocations,
    make_match,
    variables_of,
)
from policyd.engine.evaluate.mutation import mutate
from policyd.engine.evaluate.policy_set import Phase, PolicySet, is_exempt
from policyd.engine.evaluate.rollout import RolloutEnforcement, stage
from policyd.engine.evaluate.validation import match_for, validate
from policyd.engine.evaluate.verdict import CATCHABLE, VerdictBuilder
from policyd.engine.evaluate.why_not import why_not
from policyd.engine.model.compiled import CompiledPolicy, environments_of
from policyd.engine.model.decision import Decision
from policyd.engine.model.environments import PolicyEnvironments
from policyd.engine.model.exceptions import NOTHING
from policyd.engine.model.facts import Facts, View
from policyd.patch.operations import Operation


@dataclass(frozen=True, slots=True)
class ExplainedExpression:
    """An expression of a policy: its name, and the explanation of its value.

    `explanation` is None if an exception applies, so that it is not evaluated.
    """

    name: str
    explanation: Explanation | None

    @property
    def holds(self) -> bool:
        """Whether it is true."""
        return self.explanation is None or self.explanation.outcome.is_value(value=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPolicy:
    """A policy asked for one pod template of the object, or for the object as a whole.

    Attributes:
        path: The path of the template; empty for the object as a whole.
        binding: The name of the binding by which the policy applies, if it has one.
        exempt: Whether an exception from the whole policy applies.
        conditions: The match conditions, in order.
        variables: The variables, in order, if the conditions hold.
        validations: The validations, in order, if the conditions hold.
    """

    path: str
    binding: str
    exempt: bool
    conditions: tuple[ExplainedExpression, ...]
    variables: tuple[ExplainedExpression, ...] = ()
    validations: tuple[ExplainedExpression, ...] = ()

    @property
    def matched(self) -> bool:
        """Whether the policy matches this view."""
        return not self.exempt and all(condition.holds for condition in self.conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyExplanation:
    """One policy in one phase.

    Attributes:
        policy: The policy.
        phase: Whether it is evaluated for mutations or for validations.
        why_not: Why its rules, selectors or bindings do not pick the request; empty if they do.
        seen: The views of the object that it was evaluated for.
        decision: Its verdict and changes alone.
        staged: Its enforcement by each binding, if it is being rolled out.
    """

    policy: CompiledPolicy
    phase: Phase
    why_not: str
    seen: tuple[ExplainedPolicy, ...]
    decision: Decision
    staged: tuple[RolloutEnforcement, ...] = ()

    @property
    def matched(self) -> bool:
        """Whether the policy matches the request."""
        return any(one.matched for one in self.seen)


def explain_policies(
    policies: PolicySet, request: AdmissionRequest, *, names: Iterable[str] = ()
) -> Iterator[PolicyExplanation]:
    """Yield the explanation of each policy: mutating ones first, in their order.

    Shadows come last, and see the same objects as the policies in force.

    Args:
        policies: All policies: the object is validated as they changed it.
        request: The request.
        names: The names of the policies that are explained; all if none is given.
    """
    wanted = frozenset(names)
    for policy, facts, phase in _turns(policies, request):
        explained = _explain(policy, facts, phase)
        if not wanted or policy.name in wanted:
            yield explained


def _turns(
    policies: PolicySet, request: AdmissionRequest
) -> Iterator[tuple[CompiledPolicy, Facts, Phase]]:
    """Yield each policy in the order of evaluation, and the facts that it sees."""
    facts = Facts(request, policies.surroundings)
    for policy in policies.mutating:
        yield policy, facts, "mutate"
    facts = Facts(request, policies.surroundings)
    result = policies.mutate(request).object
    if not isinstance(result, msgspec.UnsetType):
        facts.object = result
    for policy in policies.validating:
        yield policy, facts, "validate"
    shadows = PolicySet.of(policies.shadows, policies.surroundings)
    for policy in shadows.mutating:
        yield policy, Facts(request, policies.surroundings), "mutate"
    for policy in shadows.validating:
        yield policy, facts, "validate"


def _explain(policy: CompiledPolicy, facts: Facts, phase: Phase) -> PolicyExplanation:
    if is_exempt(facts.attributes) and not policy.own:
        reason = "policies of its kind never match admission configuration or access reviews"
    else:
        reason = why_not(policy, facts)
    enforced, staged = stage(policy, facts) if policy.staged and not reason else (policy, ())
    if enforced is None:
        reason = f"left out: {'; '.join(map(str, staged))}"
    seen: tuple[ExplainedPolicy, ...] = ()
    verdict, operations = VerdictBuilder(), list[Operation]()
    if enforced is not None and not reason:
        seen = tuple(_all_seen(enforced, facts, phase))
        if phase == "mutate":
            operations = mutate([enforced], facts, verdict)
        else:
            validate([enforced], facts, verdict)
    exempted = [text for text in facts.exempted if text.startswith(f"{policy.name}: ")]
    return PolicyExplanation(
        policy=policy,
        phase=phase,
        why_not=reason,
        seen=seen,
        decision=verdict.decision(operations, exempted=exempted),
        staged=staged,
    )


def _all_seen(policy: CompiledPolicy, facts: Facts, phase: Phase) -> Iterator[ExplainedPolicy]:
    environments = environments_of(policy)
    for invocation in invocations(policy, facts):
        for view in facts.views if policy.by_template else (facts.whole,):
            try:
                yield _seen(invocation, view, facts, phase, environments)
            except CATCHABLE:  # the decision says why
                continue


def _seen(
    invocation: Invocation, view: View, facts: Facts, phase: Phase, environments: PolicyEnvironments
) -> ExplainedPolicy:
    policy = invocation.policy
    variables = variables_of(invocation, facts, view)
    exemption = exemption_from(policy, facts, variables) if policy.exceptions else NOTHING
    asked = condition_variables(policy, facts, variables)
    seen = ExplainedPolicy(
        path=field_path(view.template or ()) if len(facts.templates) > 1 else "",
        binding=invocation.binding.name,
        exempt=exemption.whole,
        conditions=tuple(
            ExplainedExpression(name, _explained(program, environments.conditions, asked))
            for name, program in policy.conditions
        ),
    )
    if not seen.matched:
        return seen
    match = make_match(policy, view, variables, exemption)
    validations = _validations(policy, match, facts, environments) if phase == "validate" else ()
    return replace(
        seen,
        variables=tuple(
            ExplainedExpression(
                name, _explained(program, environments.expressions, match.variables)
            )
            for name, program in policy.variables.items()
        ),
        validations=tuple(validations),
    )


def _validations(
    policy: CompiledPolicy, match: Match, facts: Facts, environments: PolicyEnvironments
) -> Iterator[ExplainedExpression]:
    for validation in policy.validations:
        asked = match_for(policy, validation, match, facts)
        explanation = None
        if asked is not None:
            explanation = _explained(validation.program, environments.expressions, asked.variables)
        yield ExplainedExpression(validation.place, explanation)


def _explained(
    program: Program, environment: Environment, variables: Mapping[str, object]
) -> Explanation:
    """Explain an expression; without its parts if it was compiled more leniently."""
    try:
        return explain(program.source, environment, variables)
    except CelCompileError:
        budget = Budget()
        try:
            outcome = EvaluationOutcome(program.evaluate(variables, budget))
        except CelError as error:
            outcome = EvaluationOutcome(error=error)
        return Explanation(program.source, outcome, program.result_type, budget.spent, FREE, ())

"""One policy on one request: does it concern it, and what do its expressions see."""

from collections.abc import Mapping

import msgspec

from policyd.cel import Budget, CelError, LazyVariables
from policyd.cel.cost import MATCH_CONDITIONS_LIMIT
from policyd.engine.compile import CompiledPolicy
from policyd.engine.facts import Facts, View
from policyd.engine.match import rules_match, selects_all, selects_namespace, selects_object
from policyd.engine.workloads import value_at
from policyd.errors import PolicydError


class EvaluationError(PolicydError):
    """A policy cannot be evaluated on this request."""


class Match(msgspec.Struct, frozen=True):  # made for each policy, three times as fast
    """Pods that a policy concerns, the variables its expressions see, and what they may cost."""

    view: View
    variables: Mapping[str, object]
    budget: Budget


def concerns(policy: CompiledPolicy, facts: Facts) -> bool:
    """Tell whether rules and selectors of a policy pick the request.

    The policy must be one that names the request's resource and operation.

    Raises:
        PolicydError: If a selector cannot be decided.
    """
    constraints = policy.policy.spec.match_constraints
    exact = constraints.match_policy == "Exact"
    attributes = facts.original_attributes if exact else facts.attributes
    if not policy.named_only and not rules_match(
        constraints.resource_rules, constraints.exclude_resource_rules, attributes
    ):
        return False
    selector = constraints.namespace_selector
    if not selects_all(selector):
        obj = facts.object if attributes.for_namespace else None
        if not selects_namespace(selector, attributes, obj, namespaces=facts.namespaces):
            return False
    selector = constraints.object_selector
    return selects_all(selector) or selects_object(selector, facts.object, facts.old_object)


def matches(policy: CompiledPolicy, facts: Facts) -> list[Match]:
    """Return the pods for which the match conditions hold, or the object as a whole.

    A policy whose expressions look at `pod` is asked for each pod template of the object.

    Raises:
        PolicydError: If a condition fails, and none says no; if there is no time left.
    """
    views = facts.views if "pod" in policy.uses else (facts.whole,)
    found = []
    for view in views:
        facts.check_time()
        variables = _variables(policy, facts, view)
        if not policy.conditions or _conditions_hold(policy, variables):
            budget = Budget()
            if policy.variables:
                variables["variables"] = LazyVariables(policy.variables, variables, budget)
            found.append(Match(view, variables, budget))
    return found


def _variables(policy: CompiledPolicy, facts: Facts, view: View) -> dict[str, object]:
    uses = policy.uses
    if not uses:
        return {}
    variables: dict[str, object] = {"object": facts.object, "workload": facts.subject}
    if "pod" in uses:
        there = view.template is not None
        variables["pod"] = value_at(facts.subject, view.template or ()) if there else {}
    if "oldObject" in uses:
        variables["oldObject"] = facts.old_object
    if "request" in uses:
        variables["request"] = facts.request_variable
    if "namespaceObject" in uses:
        variables["namespaceObject"] = facts.namespace_object
    return variables


def _conditions_hold(policy: CompiledPolicy, variables: Mapping[str, object]) -> bool:
    """Tell whether all match conditions are true; one that is false outweighs any error."""
    failed: EvaluationError | None = None
    budget = Budget(MATCH_CONDITIONS_LIMIT)
    for name, program in policy.conditions:
        try:
            if program.evaluate(variables, budget) is False:
                return False
        except CelError as error:
            failed = failed or EvaluationError(f"match condition `{name}` failed: {error}")
    if failed is not None:
        raise failed
    return True

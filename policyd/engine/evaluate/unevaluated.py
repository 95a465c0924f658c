"""Find the policies that match a request that is not evaluated, by its envelope alone.

The object is not known: its labels are assumed to be those that policies select, and its conditions
to hold. A policy that must not be skipped denies what it may match.
"""

from collections.abc import Iterable
from typing import NamedTuple

from policyd.api.admission import Head
from policyd.api.policy import MatchConstraints, MatchResources
from policyd.api.rollout import RolloutStep
from policyd.api.selectors import LabelSelector
from policyd.engine.evaluate.conditions import named_by
from policyd.engine.evaluate.policy_set import Phase, PolicySet
from policyd.engine.model.compiled import CompiledBinding, CompiledPolicy
from policyd.engine.model.facts import Facts
from policyd.engine.objects.match import UnknownNamespaceError, selects_namespace


class UnevaluatedPolicies(NamedTuple):
    """The names of policies that may match a request, and were not evaluated.

    Attributes:
        refusing: Those that must not be bypassed.
        ignored: Those that may be.
    """

    refusing: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def unevaluated_policies(policies: PolicySet, head: Head, phase: Phase) -> UnevaluatedPolicies:
    """Return the policies that the request of a review may concern."""
    if not head.whole:
        return _sorted_out(policies.mutating if phase == "mutate" else policies.validating)
    facts = Facts(head.request, policies.surroundings)
    concerned = policies.concerned(head.request, phase)
    return _sorted_out(policy for policy in concerned if _may_concern(policy, facts))


def _denies_unevaluated(policy: CompiledPolicy) -> bool:
    """Tell whether a policy denies anything if it cannot be evaluated, in any namespace."""
    return fails_closed(policy) and any(map(_refuses, policy.bindings))


def fails_closed(policy: CompiledPolicy) -> bool:
    """Tell whether a policy is in force and does not say that failures are ignored."""
    return not policy.shadow_of and not policy.ignores_failures


def _sorted_out(policies: Iterable[CompiledPolicy]) -> UnevaluatedPolicies:
    refusing: dict[str, None] = {}
    ignored: dict[str, None] = {}
    for policy in policies:
        (refusing if _denies_unevaluated(policy) else ignored)[policy.name] = None
    return UnevaluatedPolicies(
        tuple(refusing), tuple(name for name in ignored if name not in refusing)
    )


def _refuses(binding: CompiledBinding) -> bool:
    return "Deny" in binding.actions or any(s.enforcement == "Deny" for s in binding.rollout)


def _may_concern(policy: CompiledPolicy, facts: Facts) -> bool:
    return (
        policy.namespace in {"", facts.attributes.namespace}
        and _may_pick(policy.constraints, facts)
        and any(_may_apply(binding, facts) for binding in policy.bindings)
    )


def _may_apply(binding: CompiledBinding, facts: Facts) -> bool:
    """Tell whether a binding may have a policy applied, and refuses there if it does anywhere."""
    if binding.constraints is not None and not _may_pick(binding.constraints, facts):
        return False
    if "Deny" in binding.actions or not _refuses(binding):
        return True
    return any(_may_pick_step(s, facts) for s in binding.rollout if s.enforcement == "Deny")


def _may_pick_step(step: RolloutStep, facts: Facts) -> bool:
    named = not step.namespaces or facts.attributes.namespace in step.namespaces
    return named and _may_select(step.namespace_selector, facts)


def _may_pick(constraints: MatchConstraints | MatchResources, facts: Facts) -> bool:
    return named_by(constraints, facts) is not None and _may_select(
        constraints.namespace_selector, facts
    )


def _may_select(selector: LabelSelector, facts: Facts) -> bool:
    attributes = facts.attributes
    if attributes.for_namespace:
        return True  # by its own labels, which were not read
    try:
        return selects_namespace(selector, attributes, None, namespaces=facts.namespaces)
    except UnknownNamespaceError:
        return True

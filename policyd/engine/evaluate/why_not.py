"""Explain why a policy does not match a request: rules, selectors, bindings."""

from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from policyd.api.admission import AdmissionRequest, Rule
from policyd.api.names import NAME_LABEL
from policyd.api.policy import MatchConstraints, MatchResources
from policyd.api.selectors import LabelSelector, Requirement
from policyd.engine.evaluate.conditions import invocations, is_of_its_namespace, seen_by
from policyd.engine.evaluate.policy_set import PHASES, PolicySet
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.facts import Facts
from policyd.engine.objects.match import (
    RequestAttributes,
    attributes_of,
    labels_of,
    resource_matches,
    rules_match,
    selects_all,
)
from policyd.errors import PolicydError

_ALL = LabelSelector()


def why_not(policy: CompiledPolicy, facts: Facts) -> str:
    """Say why a policy does not concern a request before its conditions are asked.

    Returns:
        A sentence; empty if the rules, selectors and a binding pick the request.
    """
    if not is_of_its_namespace(policy, facts):
        return f"it applies only to namespace `{policy.namespace}` alone"
    try:
        reason = _not_picked(policy.constraints, facts)
        if reason:
            return reason
        if policy.applies is not None and not policy.applies(facts):
            return "its filters exclude the request"
        if any(True for _ in invocations(policy, facts)):
            return ""
        return _not_bound(policy, facts)
    except PolicydError as error:
        return f"cannot be decided: {error}"


def _not_bound(policy: CompiledPolicy, facts: Facts) -> str:
    reasons = [
        f"binding `{binding.name}`: {reason}"
        for binding in policy.bindings
        if binding.constraints is not None
        for reason in [_not_picked(binding.constraints, facts)]
        if reason
    ]
    return "; ".join(reasons) or "no params found for it"


def _not_picked(constraints: MatchConstraints | MatchResources, facts: Facts) -> str:
    """Say which part of the constraints does not pick the request; empty if all do."""
    by_rules = replace(constraints, namespace_selector=_ALL, object_selector=_ALL)
    if seen_by(by_rules, facts) is None:
        if seen_by(replace(by_rules, exclude_resource_rules=()), facts) is not None:
            return "an exclude rule matches it"
        return _not_named(constraints.resource_rules, facts.attributes)
    if seen_by(replace(constraints, object_selector=_ALL), facts) is None:
        reasons = _unmet(constraints.namespace_selector, _namespace_labels(facts))
        return f"namespaceSelector, by namespace `{facts.attributes.namespace}`: {reasons}"
    if seen_by(constraints, facts) is None:
        reasons = _unmet(constraints.object_selector, labels_of(facts.subject))
        return f"objectSelector: {reasons}"
    return ""


def _namespace_labels(facts: Facts) -> Mapping[str, str]:
    if facts.attributes.for_namespace:
        return labels_of(facts.subject)
    return labels_of(facts.namespaces(facts.attributes.namespace))


def why_unnamed(policy: CompiledPolicy, request: AdmissionRequest) -> str:
    """Say why no rule of a policy names the resource and operation of a request."""
    return _not_named(policy.constraints.resource_rules, attributes_of(request))


def _not_named(rules: tuple[Rule, ...], attributes: RequestAttributes) -> str:
    """Explain why the rule that matches best does not match the request."""
    reasons = min((list(_against(rule, attributes)) for rule in rules), key=len, default=[])
    return f"no rule matches it: {'; '.join(reasons)}"


def _against(rule: Rule, attributes: RequestAttributes) -> Iterator[str]:
    resource = attributes.resource
    if attributes.subresource:
        resource = f"{resource}/{attributes.subresource}"
    if not resource_matches(rule.resources, attributes.resource, attributes.subresource):
        yield f"it is for resources {_words(rule.resources)}, not `{resource}`"
    for what, given, asked in (
        ("operations", rule.operations, attributes.operation),
        ("apiGroups", rule.api_groups, attributes.group),
        ("apiVersions", rule.api_versions, attributes.version),
    ):
        if asked not in given and "*" not in given:
            yield f"it is for {what} {_words(given)}, not `{asked}`"
    if rule.scope != "*" and attributes.namespaced != (rule.scope == "Namespaced"):
        yield f"its scope is `{rule.scope}`"
    if rule.resource_names and attributes.name not in rule.resource_names:
        yield f"it is for resourceNames {_words(rule.resource_names)}, not `{attributes.name}`"


def _words(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _unmet(selector: LabelSelector, labels: Mapping[str, str]) -> str:
    """Say which of a selector's requirements labels do not meet."""
    reasons = [
        f"`{key}` must be `{value}` and {_shown(labels, key)}"
        for key, value in selector.match_labels.items()
        if labels.get(key) != value
    ]
    for requirement in selector.match_expressions:
        alone = LabelSelector(match_expressions=(requirement,))
        if not alone.matches(labels):
            values = f" {_words(requirement.values)}" if requirement.values else ""
            asked = f"`{requirement.key}` {requirement.operator}{values}"
            reasons.append(f"{asked} is required, and it {_shown(labels, requirement.key)}")
    return "; ".join(reasons)


def _shown(labels: Mapping[str, str], key: str) -> str:
    return f"is `{labels[key]}`" if key in labels else "is missing"


def undecided(
    policies: PolicySet, request: AdmissionRequest, *, is_known: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Yield each policy whose selectors ask for a label of a namespace that is not known.

    Args:
        policies: All of them.
        request: The request.
        is_known: Tells whether the labels of a namespace are known, given its name.

    Yields:
        The policy's id, and the label.
    """
    attributes = attributes_of(request)
    if not attributes.namespaced or is_known(attributes.namespace):
        return
    concerned = {p.id: p for phase in PHASES for p in policies.concerned(request, phase)}
    for policy in concerned.values():
        label = _unknown_label(policy, attributes)
        if label is not None:
            yield policy.id, label


def _unknown_label(policy: CompiledPolicy, attributes: RequestAttributes) -> str | None:
    if rules_match(policy.constraints.exclude_resource_rules, (), attributes):
        return None
    for selector in _selectors(policy):
        label = _asks_for(selector, attributes.namespace)
        if label is not None:
            return label
    return None


def _selectors(policy: CompiledPolicy) -> Iterator[LabelSelector]:
    yield policy.constraints.namespace_selector
    for binding in policy.bindings:
        if binding.constraints is not None:
            yield binding.constraints.namespace_selector
        yield from (step.namespace_selector for step in binding.rollout)


def _asks_for(selector: LabelSelector, namespace: str) -> str | None:
    """Return a label that decides about a selector, unless the namespace's name does."""
    if selects_all(selector):
        return None
    asked = [
        *(Requirement(key, "In", (value,)) for key, value in selector.match_labels.items()),
        *selector.match_expressions,
    ]
    if not all(each.matches({NAME_LABEL: namespace}) for each in asked if each.key == NAME_LABEL):
        return None
    return next((each.key for each in asked if each.key != NAME_LABEL), None)

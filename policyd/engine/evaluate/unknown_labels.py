"""Which policies are decided by labels of a namespace that nobody has told.

Without a cluster a namespace is made up, with no label but its name. A selector that asks for
another label then leaves the policy out, and what it would have refused passes.
"""

from collections.abc import Callable, Iterator

from policyd.api.admission import AdmissionRequest
from policyd.api.names import NAME_LABEL
from policyd.api.selectors import LabelSelector, Requirement
from policyd.engine.evaluate.policy_set import PHASES, PolicySet
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.objects.match import RequestAttributes, attributes_of, rules_match, selects_all


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

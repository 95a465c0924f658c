"""What is to be asked of one policy about one request: by which binding, and with which params."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from policyd.api.meta import Json
from policyd.api.policy import MatchConstraints, MatchResources
from policyd.engine.model.compiled import CompiledBinding, CompiledPolicy
from policyd.engine.model.confinement import check_params
from policyd.engine.model.facts import Facts
from policyd.engine.model.params import find_params
from policyd.engine.objects.equivalents import equivalent_match
from policyd.engine.objects.match import (
    RequestAttributes,
    rules_match,
    selects_all,
    selects_namespace,
    selects_object,
)
from policyd.errors import PolicydError


class Invocation(msgspec.Struct, frozen=True):  # made for each policy, three times as fast
    """One policy by one of its bindings, with one of its params.

    `matched` is the request in the version that the policy's rule names; None if that is the one
    the request came in.
    """

    policy: CompiledPolicy
    binding: CompiledBinding
    param: Json
    matched: RequestAttributes | None


class BindingError(PolicydError):
    """A policy cannot be asked at all: `binding` is the one that is wrong, if one is."""

    def __init__(self, error: PolicydError, binding: CompiledBinding | None = None) -> None:
        what = "policy" if binding is None else "binding"
        super().__init__(f"failed to configure {what}: {error}", hint=error.hint)
        self.binding = binding

    @classmethod
    def of(
        cls, policy: CompiledPolicy, error: PolicydError, binding: CompiledBinding | None = None
    ) -> PolicydError:
        """Return an error that refuses by itself; policyd's own kind is refused as it says."""
        return error if policy.own else cls(error, binding)


def invocations(policy: CompiledPolicy, facts: Facts) -> Iterable[Invocation]:
    """Yield what is to be asked of a policy: nothing if it does not concern the request.

    The policy must be one that names the request's resource and operation.

    Raises:
        ConfigurationError: If a selector cannot be decided, or params cannot be had.
    """
    if policy.unconditional:
        return [Invocation(policy, binding, None, None) for binding in policy.bindings]
    return _narrowed(policy, facts)


def _narrowed(policy: CompiledPolicy, facts: Facts) -> Iterator[Invocation]:
    if not is_of_its_namespace(policy, facts):
        return
    constraints = policy.constraints
    try:
        if policy.named_only:
            matched = facts.attributes if _selected(constraints, facts) else None
        else:
            matched = seen_by(constraints, facts)
    except PolicydError as error:
        raise BindingError.of(policy, error) from error
    if matched is None or (policy.applies is not None and not policy.applies(facts)):
        return
    _check_param_kind(policy, facts)
    seen = None if matched is facts.attributes else matched
    for given in policy.bindings:
        binding = given if given.actions_for is None else _acting(given, facts)
        has_params = policy.policy.spec.param_kind is not None and not binding.unusable
        if binding.constraints is None and not has_params:
            yield Invocation(policy, binding, None, seen)
        else:
            yield from _bound(policy, binding, facts, seen)


def is_of_its_namespace(policy: CompiledPolicy, facts: Facts) -> bool:
    """Tell whether a request is for something that lives where a policy may have a say.

    A Namespace lives in none: what belongs to a namespace has no say in that object.
    """
    attributes = facts.attributes
    return not policy.namespace or (
        attributes.namespaced and attributes.namespace == policy.namespace
    )


def _check_param_kind(policy: CompiledPolicy, facts: Facts) -> None:
    """Check that there is such a kind: else a policy refuses, whatever its bindings say."""
    kind = policy.policy.spec.param_kind
    if kind is None or policy.own:
        return
    try:
        facts.surroundings.params.namespaced(kind)
    except PolicydError as error:
        raise BindingError.of(policy, error) from error


def _acting(binding: CompiledBinding, facts: Facts) -> CompiledBinding:
    """Return a binding with the actions that it has for the request."""
    assert binding.actions_for is not None, "asked by the caller"
    return replace(binding, actions=binding.actions_for(facts))


def _bound(
    policy: CompiledPolicy,
    binding: CompiledBinding,
    facts: Facts,
    matched: RequestAttributes | None,
) -> Iterator[Invocation]:
    """Yield what is to be asked by one binding: once for each of its params."""
    kind = policy.policy.spec.param_kind
    try:
        if binding.constraints is not None and seen_by(binding.constraints, facts) is None:
            return
        if binding.unusable:
            yield Invocation(policy, binding, None, matched)
            return
        source, namespace = facts.surroundings.params, facts.attributes.namespace
        if policy.namespace and kind is not None:
            check_params(kind, binding.param_ref, source, policy.namespace)
        params = find_params(kind, binding.param_ref, source, namespace=namespace)
    except PolicydError as error:
        raise BindingError.of(policy, error, binding) from error
    for param in params:
        yield Invocation(policy, binding, param, matched)


def seen_by(
    constraints: MatchConstraints | MatchResources, facts: Facts
) -> RequestAttributes | None:
    """Return the request as rules see it that pick it; None if they or the selectors do not.

    Raises:
        PolicydError: If a selector cannot be decided.
    """
    matched = named_by(constraints, facts)
    return matched if matched is not None and _selected(constraints, facts) else None


def named_by(
    constraints: MatchConstraints | MatchResources, facts: Facts
) -> RequestAttributes | None:
    """Return the request as rules see it that pick it, selectors aside; None if none does.

    Exclude rules pick what is left out in the same way. Without any rules, everything is picked.
    """
    exact = constraints.match_policy == "Exact"
    attributes = facts.original_attributes if exact else facts.attributes
    rules, exclude = constraints.resource_rules, constraints.exclude_resource_rules
    served = facts.surroundings.served
    if rules_match(exclude, (), attributes):
        return None
    if not exact and exclude and equivalent_match(exclude, attributes, served) is not None:
        return None
    if not rules or rules_match(rules, (), attributes):
        return facts.attributes
    return None if exact else equivalent_match(rules, attributes, served)


def _selected(constraints: MatchConstraints | MatchResources, facts: Facts) -> bool:
    """Tell whether the selectors pick the request."""
    selector = constraints.namespace_selector
    if not selects_all(selector):
        attributes = facts.attributes
        obj = facts.object if attributes.for_namespace else None
        if not selects_namespace(selector, attributes, obj, namespaces=facts.namespaces):
            return False
    selector = constraints.object_selector
    return selects_all(selector) or selects_object(selector, facts.object, facts.old_object)

"""Match one policy with one request, and evaluate its conditions.

An Invocation is a policy by one of its bindings, with one of its params; a Match is one for which
the conditions hold.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final, cast

import msgspec

from policyd.api.meta import Json
from policyd.api.policy import MatchConstraints, MatchResources
from policyd.cel import Budget, CelError, CelTimeError, LazyVariables
from policyd.cel.cost import MATCH_CONDITIONS_LIMIT, POLICY_LIMIT, RequestBudget
from policyd.engine.model.compiled import NATIVE, CompiledBinding, CompiledPolicy
from policyd.engine.model.confinement import check_params, confined
from policyd.engine.model.deadline import OutOfTimeError
from policyd.engine.model.environments import REQUEST_OBJECTS
from policyd.engine.model.exceptions import NOTHING, Exemption, exempt
from policyd.engine.model.facts import Facts, View
from policyd.engine.model.params import find_params
from policyd.engine.model.queue_facts import QUEUE_VARIABLES
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.equivalents import equivalent_match
from policyd.engine.objects.extracts import as_pod, named
from policyd.engine.objects.match import (
    RequestAttributes,
    rules_match,
    selects_namespace,
    selects_object,
)
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError

_NUMBERS: Final = frozenset({"int", "uint", "double"})
_TIMES: Final = frozenset({"google.protobuf.Duration", "google.protobuf.Timestamp"})
_TEXTS: Final = frozenset({"string", "bytes"})

_TAKEN: Final = {
    "_+_": _NUMBERS | _TEXTS | _TIMES | {"list"},
    "_-_": _NUMBERS | _TIMES | {"string"},
    **dict.fromkeys(("_*_", "_/_"), _NUMBERS | {"string"}),
    "_%_": frozenset({"int", "uint", "string"}),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _NUMBERS | _TEXTS | _TIMES | {"bool"}),
    "-_": frozenset({"string", "bool"}),
    "sort": frozenset({"string"}),
    **dict.fromkeys(("size", "_[_]"), frozenset()),
}
"""The functions that cel-go leaves to the left operand, of these types; errors lack their names."""

_NAMELESS: Final = frozenset(
    {"@in", "optional", "contains", "startsWith", "endsWith", "matches", "find", "findAll"}
)
"""The functions whose errors do not name them."""


def _overload(found: re.Match[str]) -> str:
    name, types = found.groups()
    if name in _NAMELESS or types.partition(",")[0] in _TAKEN.get(name, ()):
        return "no such overload"
    shown = name if name in _TAKEN else f"{name}({types})"
    return f"no such overload: {shown}"


_CONVERSION: Final = r"type conversion error from 'string' to "
_RULES: Final = (
    (re.compile(r"no such overload: (\S+) applied to '\(([^']*)\)'"), _overload),
    (re.compile(r"no such overload: expected \w+, found \w+"), "no such overload"),
    (re.compile(r"no such overload: \S+ has no field '([^']*)'"), r"no such key: \1"),
    (re.compile(rf"({_CONVERSION}'\w+'): '[^']*'"), r"\1"),
    (re.compile(r"time: invalid duration '[^']*'"), f"{_CONVERSION}'google.protobuf.Duration'"),
    (re.compile(r"invalid timestamp '[^']*'"), f"{_CONVERSION}'google.protobuf.Timestamp'"),
)


def _in_go_words(message: str) -> str:
    """Say an error of an expression as cel-go does."""
    for pattern, words in _RULES:
        message = pattern.sub(words, message)
    return message


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
    """Yield the invocations of a policy for a request; none if it does not match.

    The policy must be one that names the request's resource and operation.

    Raises:
        ConfigurationError: If a selector cannot be decided, or params cannot be had.
    """
    found: list[Invocation] = []
    if policy.unconditional:
        for binding in policy.bindings:
            found.append(Invocation(policy, binding, None, None))  # noqa: PERF401 - one call less
        return found
    if policy.namespace and not is_of_its_namespace(policy, facts):
        return found
    constraints = policy.constraints
    try:
        if policy.named_only:
            matched = facts.attributes if _selected(constraints, facts) else None
        else:
            matched = seen_by(constraints, facts)
    except PolicydError as error:
        raise BindingError.of(policy, error) from error
    if matched is None or (policy.applies is not None and not policy.applies(facts)):
        return found
    return _by_bindings(policy, facts, None if matched is facts.attributes else matched)


def _by_bindings(
    policy: CompiledPolicy, facts: Facts, seen: RequestAttributes | None
) -> Iterator[Invocation]:
    """Yield the invocations by each binding, with the request as the policy's rule names it."""
    _check_param_kind(policy, facts)
    for given in policy.bindings:
        binding = given if given.actions_for is None else _acting(given, facts)
        has_params = policy.policy.spec.param_kind is not None and not binding.unusable
        if binding.constraints is None and not has_params:
            yield Invocation(policy, binding, None, seen)
        else:
            yield from _bound(policy, binding, facts, seen)


def is_of_its_namespace(policy: CompiledPolicy, facts: Facts) -> bool:
    """Tell whether a request is for something that lives where a policy may have a say.

    A Namespace is in no namespace: a namespaced policy does not apply to it.
    """
    attributes = facts.attributes
    return not policy.namespace or (
        attributes.namespaced and attributes.namespace == policy.namespace
    )


def _check_param_kind(policy: CompiledPolicy, facts: Facts) -> None:
    """Check that the kind of params exists: if not, the policy denies for any bindings."""
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
    """Yield the invocations by one binding: one for each of its params."""
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

    Exclude rules select exclusions in the same way. Without any rules, all requests match.
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


def is_for_namespace(policy: CompiledPolicy, facts: Facts) -> bool:
    """Tell whether a policy matches objects in the namespace of a request, Namespaces aside.

    Raises:
        PolicydError: If that cannot be decided.
    """
    selector = policy.constraints.namespace_selector
    return is_of_its_namespace(policy, facts) and selects_namespace(
        selector, facts.attributes, None, namespaces=facts.namespaces
    )


def _selected(constraints: MatchConstraints | MatchResources, facts: Facts) -> bool:
    """Tell whether the selectors pick the request."""
    selector = constraints.namespace_selector
    if selector.match_labels or selector.match_expressions:
        attributes = facts.attributes
        if attributes.namespace and attributes.resource != "namespaces":
            picked = selector.matches(facts.namespace_labels)
        else:
            obj = facts.object if attributes.for_namespace else None
            picked = selects_namespace(selector, attributes, obj, namespaces=facts.namespaces)
        if not picked:
            return False
    selector = constraints.object_selector
    if not selector.match_labels and not selector.match_expressions:
        return True
    return selects_object(selector, facts.object, facts.old_object)


class EvaluationError(PolicydError):
    """A policy cannot be evaluated on this request."""


class OutOfBudgetError(EvaluationError):
    """The expressions of a policy cost more together than they may."""

    def __init__(self) -> None:
        super().__init__(
            "validation failed due to running out of cost budget, "
            "no further validation rules will be run"
        )


class UnusableError(EvaluationError):
    """A policy, or its binding, has mistakes that keep it from being used."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            reason, hint="ask the owner of the policy to fix it: `policyd check` shows its errors"
        )


class Match(msgspec.Struct, frozen=True):
    """The matching pods of a policy, the variables of its expressions, and their budget."""

    view: View
    variables: Mapping[str, object]
    budget: Budget
    exemption: Exemption = NOTHING


def matches(invocation: Invocation, facts: Facts) -> list[Match]:
    """Return the pods for which the match conditions hold, or the object as a whole.

    A policy whose expressions look at `pod` is asked for each pod template of the object.

    Raises:
        PolicydError: If a condition fails, and none is false; if there is no time left.
    """
    policy = invocation.policy
    found = []
    for view in facts.views if policy.by_template else (facts.whole,):  # asked for each policy
        if facts.out_of_time():
            raise OutOfTimeError
        variables = variables_of(invocation, facts, view)
        exemption = exemption_from(policy, facts, variables) if policy.exceptions else NOTHING
        if exemption.whole:
            continue
        if not policy.conditions or _conditions_hold(policy, facts, variables):
            found.append(make_match(policy, view, variables, exemption, facts.allowance))
    unusable = policy.unusable or invocation.binding.unusable
    if unusable and found:
        raise UnusableError(unusable)
    return found


def views_of(policy: CompiledPolicy, facts: Facts) -> tuple[View, ...]:
    """Return the views of an object for which a policy is asked."""
    return facts.views if policy.by_template else (facts.whole,)


def exemption_from(policy: CompiledPolicy, facts: Facts, variables: dict[str, object]) -> Exemption:
    """Return the parts that exceptions exempt, and pass their allowed values to expressions.

    Raises:
        PolicydError: If an exception cannot be evaluated.
    """
    asked = dict(variables)
    if policy.templates:  # exceptions match the object's name, not its template's
        pairs = (("object", facts.object), ("oldObject", facts.old_object))
        asked |= {name: named(variables.get(name), obj) for name, obj in pairs}
    exemption = exempt(policy, facts, asked)
    allowed = {"allowedImages": exemption.images, "allowedValues": exemption.values}
    variables["exceptions"] = {name: list(given) for name, given in allowed.items()}
    return exemption


def make_match(
    policy: CompiledPolicy,
    view: View,
    variables: dict[str, object],
    exemption: Exemption = NOTHING,
    allowance: RequestBudget | None = None,
) -> Match:
    """Add the policy's own variables to those of a request, and a budget for all of them."""
    budget = Budget(POLICY_LIMIT, allowance, policy.id)
    if policy.variables:
        variables["variables"] = LazyVariables(policy.variables, variables, budget)
    return Match(view, variables, budget, exemption)


def object_of(invocation: Invocation, facts: Facts, view: View) -> Json:
    """Return the value of `object` for expressions."""
    matched = invocation.matched
    obj = facts.object if matched is None else facts.seen_as(matched).object
    return as_pod(obj, view.template or ()) if invocation.policy.templates else obj


def variables_of(invocation: Invocation, facts: Facts, view: View) -> dict[str, object]:
    """Return the variables of a policy's expressions, as far as they name them."""
    policy = invocation.policy
    uses = policy.uses
    if not uses:
        return {}
    seen, own = facts.looked_up.get(uses) or _look_up(policy, facts)
    variables = seen.copy()
    if "object" in uses:
        variables["object"] = facts.object
    if own:
        _add_own(variables, policy, facts, view)
    if "params" in uses:
        variables["params"] = invocation.param
    if (
        invocation.matched is not None
        or policy.templates
        or policy.namespace
        or facts.surroundings.written
    ):
        _see_otherwise(variables, invocation, facts, view)
    if policy.environments.request_objects and "request" in uses:
        objects = {name: variables[name] for name in REQUEST_OBJECTS}
        sent = {**cast("dict[str, Json]", variables["request"]), **objects}
        variables["request"] = sent if facts.trigger is None else facts.trigger
    return variables


_OWN: Final = frozenset({"workload", "maker", "pod", *QUEUE_VARIABLES})
"""Variables that only policyd's own policies have."""


def _add_own(
    variables: dict[str, object], policy: CompiledPolicy, facts: Facts, view: View
) -> None:
    uses, subject, template = policy.uses, facts.subject, view.template
    if "workload" in uses:
        variables["workload"] = subject
    if "maker" in uses:
        variables["maker"] = facts.maker
    if "pod" in uses and template is None:
        variables["pod"] = {}
    elif "pod" in uses:
        variables["pod"] = value_at(subject, template) if template else subject
    if not uses.isdisjoint(QUEUE_VARIABLES):
        known = facts.queue_facts
        if policy.namespace:
            known = known.within(policy.namespace)
        variables |= known.variables(facts.request.namespace, facts.queue_name)


def _look_up(policy: CompiledPolicy, facts: Facts) -> tuple[dict[str, object], bool]:
    """Look up the variables that are the same for every policy, before and after mutations."""
    uses, given, missing = policy.uses, facts.surroundings.extra, policy.environments.values
    wanted, own = _looked_up(uses)
    variables = {name: look_up(facts) for name, look_up in wanted}
    if given or missing:
        for name in uses - variables.keys():
            if name in given:
                variables[name] = given[name]
            elif name in missing:
                variables[name] = missing[name]
    found = facts.looked_up[uses] = variables, own
    return found


@lru_cache(maxsize=1024)
def _looked_up(
    uses: frozenset[str],
) -> tuple[tuple[tuple[str, Callable[[Facts], object]], ...], bool]:
    """Return which of the names in expressions are looked up, and whether others are policyd's."""
    wanted = tuple((name, _VARIABLES[name]) for name in uses if name in _VARIABLES)
    return wanted, not uses.isdisjoint(_OWN)


def sees_as_sent(policy: CompiledPolicy, surroundings: PolicyContext) -> bool:
    """Tell whether a policy sees objects as the API server sends them, and not as written."""
    if policy.own or not surroundings.written:
        return False
    return policy.kind in NATIVE or not surroundings.as_written


def _see_otherwise(
    variables: dict[str, object], invocation: Invocation, facts: Facts, view: View
) -> None:
    """Show a policy the version that its rule names, and a foreign policy its own variables.

    That is the object as the API server sends it, pod templates as if they were pods, if it is one
    that Kyverno extends to them, and the external data of its own namespace, if it belongs to one.
    """
    policy = invocation.policy
    if invocation.matched is not None:
        seen = facts.seen_as(invocation.matched)
        variables |= {"object": seen.object, "oldObject": seen.old_object, "request": seen.request}
    if facts.surroundings.written and sees_as_sent(policy, facts.surroundings):
        for name in ("object", "oldObject"):
            variables[name] = facts.as_sent(variables.get(name))
    if policy.templates and view.template:
        for name in ("object", "oldObject"):
            variables[name] = as_pod(variables.get(name), view.template)
    if policy.namespace:
        variables |= confined(variables, policy.namespace)


_VARIABLES: Final[Mapping[str, Callable[[Facts], object]]] = {
    "oldObject": lambda facts: facts.old_object,
    "request": lambda facts: facts.request_variable,
    "namespaceObject": lambda facts: facts.namespace_object,
    "images": lambda facts: facts.images,
    "authorizer": lambda facts: facts.authorizer,
    "authorizer.requestResource": lambda facts: facts.request_resource_check,
}
"""The variables that are looked up only if an expression names them."""


def stop(error: CelError, budget: Budget) -> None:
    """End a policy of which no other expression is to be evaluated after one that failed.

    Raises:
        OutOfTimeError: If there is no time left.
        OutOfBudgetError: If the cost budget of its expressions is used up.
    """
    if isinstance(error, CelTimeError):
        raise OutOfTimeError from None
    if budget.remaining < 0 or budget.is_exhausted:
        raise OutOfBudgetError from None


def _conditions_hold(policy: CompiledPolicy, facts: Facts, variables: dict[str, object]) -> bool:
    """Tell whether all match conditions are true; one that is false outweighs any error."""
    failed: list[str] = []
    if not policy.own:
        variables = condition_variables(policy, facts, variables)
    budget = Budget(MATCH_CONDITIONS_LIMIT, facts.allowance, policy.id)
    for name, program in policy.conditions:
        try:
            if program.evaluate(variables, budget) is False:
                return False
        except CelError as error:
            stop(error, budget)
            own = f"match condition `{name}` failed: {error}"
            failed.append(own if policy.own else failed_expression(program.source, error))
    if failed:
        failed = list(dict.fromkeys(failed))
        shown = failed[0] if policy.own or len(failed) == 1 else f"[{', '.join(failed)}]"
        raise EvaluationError(shown)
    return True


def condition_variables(
    policy: CompiledPolicy, facts: Facts, variables: dict[str, object]
) -> dict[str, object]:
    """Return the variables of match conditions, which do not see the namespace.

    Kinds whose conditions are open see it, and the policy's variables.
    """
    is_open = policy.environments.open_conditions
    if is_open and policy.variables:
        seen = dict(variables)
        budget = Budget(POLICY_LIMIT, facts.allowance, policy.id)
        seen["variables"] = LazyVariables(policy.variables, seen, budget)
        return seen
    if "namespaceObject" not in variables or policy.own or is_open:
        return variables
    return variables | {"namespaceObject": None}


def failed_expression(source: str, error: CelError) -> str:
    """Say in the API server's words that an expression failed."""
    return f"expression '{source}' resulted in error: {_in_go_words(error.message)}"

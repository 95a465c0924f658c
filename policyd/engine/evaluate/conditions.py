"""One policy on one request: do its conditions hold, and what do its expressions see."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from policyd.api.meta import Json
from policyd.cel import Budget, CelError, CelTimeError, LazyVariables
from policyd.cel.cost import MATCH_CONDITIONS_LIMIT, POLICY_LIMIT, RequestBudget
from policyd.engine.evaluate.go_words import in_go_words
from policyd.engine.evaluate.invocations import Invocation
from policyd.engine.model.compiled import NATIVE, CompiledPolicy
from policyd.engine.model.confinement import confined
from policyd.engine.model.deadline import OutOfTimeError
from policyd.engine.model.exceptions import NOTHING, Lifted, lift
from policyd.engine.model.facts import Facts, View
from policyd.engine.objects.extracts import as_pod, named
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError


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
        super().__init__(reason, hint="fix the policy: `policyd check` shows what is wrong with it")


class Match(msgspec.Struct, frozen=True):
    """Pods that a policy concerns, the variables its expressions see, and what they may cost."""

    view: View
    variables: Mapping[str, object]
    budget: Budget
    lifted: Lifted = NOTHING


def matches(invocation: Invocation, facts: Facts) -> list[Match]:
    """Return the pods for which the match conditions hold, or the object as a whole.

    A policy whose expressions look at `pod` is asked for each pod template of the object.

    Raises:
        PolicydError: If a condition fails, and none says no; if there is no time left.
    """
    policy = invocation.policy
    found = []
    for view in views_of(policy, facts):
        if facts.out_of_time():
            raise OutOfTimeError
        variables = variables_of(invocation, facts, view)
        lifted = lifted_by(policy, facts, variables) if policy.exceptions else NOTHING
        if lifted.whole:
            continue
        if not policy.conditions or _conditions_hold(policy, facts, variables):
            found.append(make_match(policy, view, variables, lifted, facts.allowance))
    unusable = policy.unusable or invocation.binding.unusable
    if unusable and found:
        raise UnusableError(unusable)
    return found


def views_of(policy: CompiledPolicy, facts: Facts) -> tuple[View, ...]:
    """Return the pod templates that a policy is asked for, or the object as a whole."""
    return facts.views if policy.templates or "pod" in policy.uses else (facts.whole,)


def lifted_by(policy: CompiledPolicy, facts: Facts, variables: dict[str, object]) -> Lifted:
    """Return what exceptions lift from a policy, and tell its expressions what they allow.

    Raises:
        PolicydError: If an exception cannot be evaluated.
    """
    asked = dict(variables)
    if policy.templates:  # exceptions are by the object's name, whatever its template has
        pairs = (("object", facts.object), ("oldObject", facts.old_object))
        asked |= {name: named(variables.get(name), obj) for name, obj in pairs}
    lifted = lift(policy, facts, asked)
    allowed = {"allowedImages": lifted.images, "allowedValues": lifted.values}
    variables["exceptions"] = {name: list(given) for name, given in allowed.items()}
    return lifted


def make_match(
    policy: CompiledPolicy,
    view: View,
    variables: dict[str, object],
    lifted: Lifted = NOTHING,
    allowance: RequestBudget | None = None,
) -> Match:
    """Add the policy's own variables to those of a request, and a budget for all of them."""
    budget = Budget(POLICY_LIMIT, allowance, policy.id)
    if policy.variables:
        variables["variables"] = LazyVariables(policy.variables, variables, budget)
    return Match(view, variables, budget, lifted)


def object_of(invocation: Invocation, facts: Facts, view: View) -> Json:
    """Return what expressions see as `object`."""
    matched = invocation.matched
    obj = facts.object if matched is None else facts.seen_as(matched).object
    return as_pod(obj, view.template or ()) if invocation.policy.templates else obj


def variables_of(invocation: Invocation, facts: Facts, view: View) -> dict[str, object]:
    """Return what the expressions of a policy see of a request, as far as they name it."""
    policy = invocation.policy
    uses = policy.uses
    if not uses:
        return {}
    seen, own = facts.looked_up.get(uses) or _look_up(uses, facts)
    variables = seen.copy()
    if "object" in uses:
        variables["object"] = facts.object
    if own:
        _add_own(variables, uses, facts, view)
    if "params" in uses:
        variables["params"] = invocation.param
    if (
        invocation.matched is not None
        or policy.templates
        or policy.namespace
        or facts.surroundings.written
    ):
        _see_otherwise(variables, invocation, facts, view)
    return variables


_OWN: Final = frozenset({"workload", "maker", "pod"})
"""Variables that only policyd's own policies have."""


def _add_own(variables: dict[str, object], uses: frozenset[str], facts: Facts, view: View) -> None:
    if "workload" in uses:
        variables["workload"] = facts.subject
    if "maker" in uses:
        variables["maker"] = facts.maker
    if "pod" in uses:
        variables["pod"] = {} if view.template is None else value_at(facts.subject, view.template)


def _look_up(uses: frozenset[str], facts: Facts) -> tuple[dict[str, object], bool]:
    """Look up what is the same for every policy that names it, whatever mutations do."""
    extra = facts.surroundings.extra
    variables: dict[str, object] = {}
    for name in uses:
        look_up = _VARIABLES.get(name)
        if look_up is not None:
            variables[name] = look_up(facts)
        elif name in extra:
            variables[name] = extra[name]
    found = facts.looked_up[uses] = variables, not uses.isdisjoint(_OWN)
    return found


def _see_otherwise(
    variables: dict[str, object], invocation: Invocation, facts: Facts, view: View
) -> None:
    """Let a policy see the version that its rule names, and a foreign one what it would at home.

    That is the object as the API server sends it, pod templates as if they were pods, if it is one
    that Kyverno extends to them, and of the world outside its own namespace, if it belongs to one.
    """
    policy = invocation.policy
    if invocation.matched is not None:
        seen = facts.seen_as(invocation.matched)
        variables |= {"object": seen.object, "oldObject": seen.old_object, "request": seen.request}
    if facts.surroundings.written and policy.kind in NATIVE:
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
"""What is looked up only if an expression names it."""


def stop(error: CelError, budget: Budget) -> None:
    """End a policy of which no other expression is to be evaluated after one that failed.

    Raises:
        OutOfTimeError: If there is no time left.
        OutOfBudgetError: If nothing is left of what its expressions may cost.
    """
    if isinstance(error, CelTimeError):
        raise OutOfTimeError from None
    if budget.remaining < 0 or budget.is_exhausted:
        raise OutOfBudgetError from None


def _conditions_hold(policy: CompiledPolicy, facts: Facts, variables: dict[str, object]) -> bool:
    """Tell whether all match conditions are true; one that is false outweighs any error."""
    failed: list[str] = []
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
    """Return what match conditions see: the API server's code asks without the namespace.

    Kyverno's own code has the policy's variables for them.
    """
    if policy.kind in _KYVERNO and policy.variables:
        seen = dict(variables)
        budget = Budget(POLICY_LIMIT, facts.allowance, policy.id)
        seen["variables"] = LazyVariables(policy.variables, seen, budget)
        return seen
    if "namespaceObject" not in variables or policy.own or policy.kind in _KYVERNO:
        return variables
    return variables | {"namespaceObject": None}


_KYVERNO: Final = frozenset(
    (
        "ValidatingPolicy",
        "NamespacedValidatingPolicy",
        "MutatingPolicy",
        "NamespacedMutatingPolicy",
    )
)
"""The kinds of policies that ask their conditions by Kyverno's own code."""


def failed_expression(source: str, error: CelError) -> str:
    """Say in the API server's words that an expression failed."""
    return f"expression '{source}' resulted in error: {in_go_words(error.message)}"

"""Write the actions of a rule that validates: the usual one, and those of some namespaces.

A policy of policyd says other actions by steps of `rollout`. Where these cannot say it, and in
Kyverno's and the API server's own kinds, which have none, each action becomes a policy of its own,
with a condition on the namespace.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policyd.api.meta import Json
from policyd.migrate.cel_values import Untranslatable, all_of, has_wildcards
from policyd.migrate.kyverno.matching import (
    has_patterns,
    may_be_in_no_namespace,
    namespace_selected,
    one_of,
)
from policyd.migrate.kyverno.patterns import any_of, grouped, negated

DENY: Final = "Deny"
AUDIT: Final = "Audit"


@dataclass(frozen=True)
class NamespacedAction:
    """Another action in some namespaces.

    Attributes:
        enforcement: `Deny` or `Audit`.
        condition: The condition in CEL that a request is of one of them; empty for all.
        step: The step of a roll-out that says so; None if none can.
    """

    enforcement: str
    condition: str
    step: dict[str, Any] | None


@dataclass(frozen=True)
class RuleActions:
    """What a rule does about an object that violates it.

    Attributes:
        enforcement: `Deny` or `Audit`.
        overrides: Other actions, of which the first that concerns a request is done.
    """

    enforcement: str = AUDIT
    overrides: tuple[NamespacedAction, ...] = ()

    def steps(self) -> list[dict[str, Any]] | None:
        """Return the steps of a roll-out for the overrides; None if they cannot say them all."""
        steps = [each.step for each in self.overrides if each.step is not None]
        return steps if len(steps) == len(self.overrides) else None

    def conditions(self) -> dict[str, str]:
        """Return the condition in CEL of each action that is done; empty if it is the only one."""
        other = AUDIT if self.enforcement == DENY else DENY
        overridden = ""
        for each in reversed(self.overrides):
            if each.enforcement == other:
                overridden = any_of(filter(None, [each.condition, overridden]))
            elif overridden:
                overridden = all_of([negated(each.condition), grouped(overridden)])
        if not overridden:
            return {self.enforcement: ""}
        return {self.enforcement: negated(overridden), other: overridden}


def actions_of(
    validate: Mapping[str, Any], spec: Mapping[str, Any], kinds: Sequence[str]
) -> RuleActions:
    """Return the actions of a rule.

    Those that it says itself go first. What the policy says beside them makes a rule that enforces
    milder, and no other rule stricter.

    Args:
        validate: What the rule validates, with its own actions.
        spec: The policy, with those of rules that say none.
        kinds: The kinds that the rule is for; empty for all.

    Raises:
        Untranslatable: If an override has no counterpart.
    """
    own, action = validate.get("failureActionOverrides") or (), validate.get("failureAction")
    shared = spec.get("validationFailureActionOverrides") or ()
    usual = _enforcement(action or spec.get("validationFailureAction"))
    if (own and action) or ((own or action) and usual == AUDIT):
        shared = ()
    overrides: dict[str, NamespacedAction] = {}
    for each in (_override(given, kinds) for given in (*own, *shared)):
        if not each.condition:
            usual = each.enforcement
            break
        overrides.setdefault(each.condition, each)
    return RuleActions(usual, tuple(overrides.values()))


def _enforcement(action: Json) -> str:
    return DENY if str(action or AUDIT).lower() == "enforce" else AUDIT


def _override(given: Json, kinds: Sequence[str]) -> NamespacedAction:
    if not isinstance(given, Mapping) or not given.get("action"):
        raise Untranslatable("an override of the action has no `action`")
    enforcement = _enforcement(given["action"])
    names, selector = given.get("namespaces") or (), given.get("namespaceSelector") or {}
    step: dict[str, Any] = {"enforcement": enforcement}
    step |= {"namespaces": [*names]} if names else {}
    step |= {"namespaceSelector": selector} if selector else {}
    named = one_of("request.namespace", names) if names else ""
    labeled = namespace_selected(selector, kinds) if selector else ""
    condition = all_of(filter(None, [named, labeled])) if named or labeled else ""
    return NamespacedAction(
        enforcement, condition, step if _is_step(names, selector, kinds) else None
    )


def _is_step(names: Collection[str], selector: Mapping[str, Any], kinds: Sequence[str]) -> bool:
    """Tell whether a step of a roll-out can say which namespaces are meant.

    It knows no patterns, and takes objects in no namespace for selected, which Kyverno does not.
    """
    if any(has_wildcards(str(name)) for name in names) or has_patterns(selector):
        return False
    return not (selector and may_be_in_no_namespace(kinds))

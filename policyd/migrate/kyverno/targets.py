"""Write `mutate.targets` of a rule as the targets of a MutatingPolicy with `mutateExisting`.

There, `object` is the target, which a legacy rule calls `target`, and `request` is the request of
the trigger. What a field of `targets` cannot say by itself, a condition on the target does.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from policyd.api.meta import Json
from policyd.cel.syntax.literals import text_literal
from policyd.migrate.cel_values import CelTerm, Untranslatable
from policyd.migrate.kyverno.conditions import block_condition
from policyd.migrate.kyverno.generating import check_fields, kind_of
from policyd.migrate.kyverno.scopes import ExpressionScope

_FIELDS: Final = frozenset(
    ["apiVersion", "kind", "name", "namespace", "uid", "selector", "context", "preconditions"]
)
TARGETS_NOTE: Final = (
    "targets are mutated while their trigger exists, and not once for each request:"
    " a mutation must not change its own result"
)
"""What differs for rules with targets."""


def target_scope(scope: ExpressionScope) -> ExpressionScope:
    """Return what mutations of targets see, from what their trigger's conditions see."""
    target = CelTerm(text="object", kind="map")
    return replace(scope, subject=target, roots={**scope.roots, "target": target})


def target_fields(
    target: Json, scope: ExpressionScope, *, existing: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of a policy that say what it mutates, and conditions on targets by name.

    Args:
        target: One of `targets`.
        scope: What expressions about the target see.
        existing: Whether objects that exist before the policy are triggers.

    Raises:
        Untranslatable: If a part has no counterpart.
    """
    if not isinstance(target, Mapping):
        raise Untranslatable("a target is not a map")
    _check(target)
    version, plural = kind_of(target, "targets")
    group, _, version = version.rpartition("/")
    rule: dict[str, Any] = {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [plural],
    }
    conditions: dict[str, str] = {}
    for name in ("name", "namespace"):
        given = str(target.get(name) or "")
        if name == "name" and given and not set(given) & set("*?{"):
            rule["resourceNames"] = [given]
        elif given and given != "*":
            conditions[f"target-{name}"] = _named(name, given, scope)
    constraints: dict[str, Any] = {"resourceRules": [rule]}
    if target.get("selector"):
        constraints["objectSelector"] = target["selector"]
    if target.get("preconditions"):
        conditions["target"] = block_condition(target["preconditions"], scope)
    evaluation: dict[str, Any] = {"mutateExisting": {"enabled": True}}
    if not existing:
        evaluation["background"] = {"enabled": False}
    return {"evaluation": evaluation, "targetMatchConstraints": constraints}, conditions


def _check(target: Mapping[str, Any]) -> None:
    """Check that a target has no part without a counterpart.

    Raises:
        Untranslatable: If it has one.
    """
    check_fields(target, _FIELDS, "targets")
    for name in ("context", "uid"):
        if target.get(name):
            raise Untranslatable(f"a target has `{name}`, which the new kind lacks")
    if "{{" in str(target.get("selector")):
        raise Untranslatable("the selector of a target has variables")


def _named(field: str, given: str, scope: ExpressionScope) -> str:
    """Return the condition that a target has a name that a text with variables or `*` says."""
    own = f"object.metadata.{field}"
    if field == "namespace":
        own = "object.metadata.?namespace.orValue('')"
    if "{{" in given:
        if set(given) & set("*?"):
            raise Untranslatable(f"the {field} of a target has variables and `*`")
        return f"{own} == {scope.value(given).otherwise(text_literal(''))}"
    escaped = "".join({"*": ".*", "?": "."}.get(each, _quoted(each)) for each in given)
    return f"{own}.matches({text_literal(f'^{escaped}$')})"


def _quoted(letter: str) -> str:
    return letter if letter.isalnum() or letter == "-" else f"[{letter}]"

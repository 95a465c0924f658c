"""Write `mutate` in CEL: overlays, JSON patches, and `foreach` of either."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from policyd.api.meta import Json
from policyd.migrate.cel_values import CelTerm, Untranslatable, all_of, outline
from policyd.migrate.kyverno.conditions import block_condition
from policyd.migrate.kyverno.foreach import element_scope
from policyd.migrate.kyverno.json_patches import for_each, json_patch, read_patch
from policyd.migrate.kyverno.overlay_patches import Overlay
from policyd.migrate.kyverno.overlays import whole
from policyd.migrate.kyverno.scopes import ExpressionScope

_TYPES: Final = {
    "ApplyConfiguration": ("applyConfiguration", "Object{}"),
    "JSONPatch": ("jsonPatch", "[]"),
}
"""The field of each type of patch, and the expression of one that changes nothing."""


def mutations_of(
    mutate: Mapping[str, Any], scope: ExpressionScope, place: Sequence[str]
) -> tuple[dict[str, str], str, list[dict[str, Any]]]:
    """Return further conditions of a policy, a condition on its variables, and its mutations.

    Args:
        mutate: The block of the rule.
        scope: What its expressions see.
        place: Where in the object the pod is that the rule is about.

    Raises:
        Untranslatable: If a part has no counterpart.
    """
    if "foreach" in mutate:
        return {}, "", [made for each in mutate["foreach"] for made in _foreach(each, scope, place)]
    if "patchesJson6902" in mutate:
        patch = json_patch(mutate["patchesJson6902"], scope, place)
        patches = [*patch.shared, *patch.operations]
        text = " + ".join(patches).replace("}] + [JSONPatch", "}, JSONPatch")
        return {}, "", [_patching(text)]
    if "patchStrategicMerge" not in mutate:
        raise Untranslatable("`mutate` has neither an overlay nor patches")
    overlay = Overlay(scope)
    made = _merging(overlay, mutate["patchStrategicMerge"], place)
    condition = all_of(overlay.conditions) if overlay.conditions else ""
    if "variables." in condition:
        return {}, condition, made
    return {"applies": condition} if condition else {}, "", made


def chosen_of(ways: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the mutation that does what the first of several does whose condition holds.

    Args:
        ways: Conditions, empty for one that always holds, and mutations of one type of patch.
    """
    (type_,) = {mutation["patchType"] for _, mutation in ways}
    field_name, nothing = _TYPES[type_]
    text = nothing
    for condition, mutation in reversed(ways):
        made = mutation[field_name]["expression"]
        if condition:
            made = f"({made})" if " ? " in outline(made) else made
            made = f"{condition} ? {made} : {text}"
        text = made
    return {"patchType": type_, field_name: {"expression": text}}


def _apply(text: str) -> dict[str, Any]:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}


def _merging(overlay: Overlay, pattern: Json, place: Sequence[str]) -> list[dict[str, Any]]:
    """Return the mutations of an overlay.

    Patches come first: what chooses their elements is rarely what they set.
    """
    text = whole(overlay, pattern, place)
    made = [_patching(" + ".join(overlay.patches))] if overlay.patches else []
    return made if text.endswith("{}") else [*made, _apply(text)]


def _patching(text: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}


def _foreach(
    given: Mapping[str, Any], scope: ExpressionScope, place: Sequence[str]
) -> list[dict[str, Any]]:
    listed, inner, names = element_scope(given, scope)
    chosen = (
        block_condition(given.get("preconditions"), inner) if given.get("preconditions") else ""
    )
    if "patchesJson6902" in given:
        if given.get("order") == "Descending":
            inner = _from_last(inner, listed, names, chosen)
        elif not chosen and _moves_others(read_patch(given["patchesJson6902"])):
            raise Untranslatable("patches that remove elements from first to last move the others")
        return [_foreach_patches(given, inner, place, (listed, names, chosen))]
    if "patchStrategicMerge" not in given:
        raise Untranslatable("a `foreach` has neither an overlay nor patches")
    element = inner.roots["element"]
    overlay = Overlay(inner, listed=listed, element=element, chosen=chosen)
    made = _merging(overlay, given["patchStrategicMerge"], place)
    if not overlay.used:
        raise Untranslatable("the overlay of the `foreach` does not say which element it changes")
    condition = all_of(overlay.conditions) if overlay.conditions else ""
    return [chosen_of([(condition, each)]) for each in made] if condition else made


def _from_last(
    scope: ExpressionScope, listed: str, names: Sequence[str], chosen: str
) -> ExpressionScope:
    """Return a scope whose index goes from the last element of a list to its first.

    Raises:
        Untranslatable: If there is no index, or the elements have a condition.
    """
    if len(names) == 1 or chosen:
        raise Untranslatable("a `foreach` from last to first goes by `elementIndex` alone")
    index = f"({listed}.size() - 1 - {names[0]})"
    elements = {
        name: replace(term, text=f"{listed}[{index}]")
        for name, term in scope.roots.items()
        if name.startswith("element")
    }
    elements["elementIndex"] = CelTerm(text=index, kind="number")
    return scope.with_roots(**elements)


def _moves_others(operations: Sequence[Json]) -> bool:
    """Tell whether operations for an element remove it, so that those after it move."""
    paths: dict[str, set[str]] = {"remove": set(), "add": set()}
    for each in operations:
        if isinstance(each, Mapping) and "elementIndex" in str(each.get("path")):
            paths.setdefault(str(each.get("op")), set()).add(str(each["path"]))
    return bool(paths["remove"] - paths["add"])


def _foreach_patches(
    given: Mapping[str, Any],
    scope: ExpressionScope,
    place: Sequence[str],
    around: tuple[str, list[str], str],
) -> dict[str, Any]:
    listed, names, chosen = around
    some = f"!{listed}.exists({', '.join(names)}, {chosen})"
    patch = json_patch(
        given["patchesJson6902"], scope, place, some if chosen else f"{listed}.size() == 0"
    )
    return _patching(" + ".join([*patch.shared, for_each(listed, names, chosen, patch.operations)]))

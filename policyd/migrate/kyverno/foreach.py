"""Write `foreach` of `validate` as conditions on all elements of a list."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from policyd.api.meta import Json
from policyd.migrate.cel_values import CelTerm, Untranslatable, all_of
from policyd.migrate.kyverno.conditions import block_condition, refusal
from policyd.migrate.kyverno.context import inline_variables
from policyd.migrate.kyverno.patterns import (
    any_of,
    any_pattern,
    applies,
    grouped,
    negated,
    pattern_steps,
    verdict,
)
from policyd.migrate.kyverno.scopes import ExpressionScope


def foreach_condition(given: Json, scope: ExpressionScope) -> str:
    """Return the condition that every element of a list is as a `foreach` asks.

    Raises:
        Untranslatable: If a part has no counterpart in CEL.
    """
    if not isinstance(given, Mapping) or "list" not in given:
        raise Untranslatable("a `foreach` needs a `list`")
    listed, inner, names = element_scope(given, scope)
    condition = _of_element(given, inner)
    if given.get("preconditions"):
        before = block_condition(given["preconditions"], inner)
        condition = f"{negated(before)} || {grouped(condition)}" if before else condition
    return f"{listed}.all({', '.join(names)}, {condition})"


def foreach_applies(given: Mapping[str, Any], scope: ExpressionScope) -> str:
    """Return the condition that a `foreach`, which has a counterpart, is about some element."""
    listed, inner, names = element_scope(given, scope)
    parts = [_applies_to_element(given, inner)]
    if given.get("preconditions"):
        parts.insert(0, block_condition(given["preconditions"], inner))
    condition = all_of(filter(None, parts))
    return f"{listed}.exists({', '.join(names)}, {condition})" if condition else f"{listed} != []"


def element_scope(
    given: Mapping[str, Any], scope: ExpressionScope
) -> tuple[str, ExpressionScope, list[str]]:
    """Return the list of a `foreach`, what its expressions see, and the names of its variables.

    Raises:
        Untranslatable: If the list has no counterpart in CEL.
    """
    listed = scope.translated(str(given["list"]))
    if listed.kind not in ("list", "dyn"):
        raise Untranslatable(f"`{given['list']}` is not a list")
    inner, element, name = scope.deeper(listed)
    names, roots = [name], {"element": element}
    if "elementIndex" in json.dumps(given):
        index = inner.free("i")
        names, roots["elementIndex"] = [index, name], CelTerm(text=index, kind="number")
        inner = replace(inner, taken=(*inner.taken, index))
    depth = sum(key.startswith("element") and key[7:].isdigit() for key in scope.roots)
    roots[f"element{depth}"] = element
    images = [path for path in scope.roots if path.endswith("_of_element")]
    for path in images:
        text = scope.roots[path].text.replace("(container.", f"({name}.")
        roots[path] = replace(scope.roots[path], text=text)
    inner = replace(inner.with_roots(**roots), listed=listed.listed())
    inner = inline_variables(given.get("context"), inner)
    text = listed.listed() if listed.kind == "list" else listed.otherwise("[]")
    return text, inner, names


def _asked_of(given: Mapping[str, Any], scope: ExpressionScope) -> CelTerm:
    """Return what the patterns of a `foreach` are about: an element, or the whole object."""
    return scope.subject if given.get("elementScope") is False else scope.roots["element"]


def _of_element(given: Mapping[str, Any], scope: ExpressionScope) -> str:
    if "pattern" in given:
        return verdict(pattern_steps(_asked_of(given, scope), given["pattern"], scope)) or "true"
    if "anyPattern" in given:
        return any_pattern(_asked_of(given, scope), given["anyPattern"], scope)
    if "deny" in given:
        return refusal((given["deny"] or {}).get("conditions"), scope)
    if "foreach" in given:
        return all_of(foreach_condition(each, scope) for each in given["foreach"])
    raise Untranslatable("a `foreach` has none of `pattern`, `anyPattern`, `deny` and `foreach`")


def _applies_to_element(given: Mapping[str, Any], scope: ExpressionScope) -> str:
    if not given.keys() & {"pattern", "anyPattern", "deny"}:
        return any_of(foreach_applies(each, scope) for each in given["foreach"])
    return asked_applies(given, _asked_of(given, scope), scope)


def asked_applies(given: Mapping[str, Any], value: CelTerm, scope: ExpressionScope) -> str:
    """Return the condition that the patterns of a block are about a value; empty for always."""
    patterns = [given["pattern"]] if "pattern" in given else given.get("anyPattern") or ()
    ways = [applies(pattern_steps(value, pattern, scope)) for pattern in patterns]
    return any_of(ways) if all(ways) else ""

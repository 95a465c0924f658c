"""Write `generate` of a rule as the entries of a GeneratingPolicy: data, clones, `foreach`."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from policyd.api.kinds import resources
from policyd.api.meta import Json
from policyd.cel.syntax.literals import json_literal, text_literal
from policyd.dialects.kyverno.filters import parse_kind
from policyd.engine.objects.equivalents import plural_of
from policyd.migrate.cel_values import CelTerm, Untranslatable, all_of, as_json_value
from policyd.migrate.jmespath import split_variables
from policyd.migrate.kyverno.conditions import block_condition
from policyd.migrate.kyverno.foreach import element_scope
from policyd.migrate.kyverno.matching import label_requirement
from policyd.migrate.kyverno.scopes import ExpressionScope

_SOURCES: Final = ("data", "clone", "cloneList")
_TARGET: Final = frozenset(["apiVersion", "kind", "name", "namespace", "uid", *_SOURCES])
_OF_RULE: Final = frozenset(
    ["foreach", "synchronize", "generateExisting", "orphanDownstreamOnPolicyDelete"]
)
_OF_FOREACH: Final = frozenset(["list", "context", "preconditions"])
_WIDTH: Final = 1_000_000
"""Columns of a template: a longer line would be folded, in the middle of an expression."""


@dataclass(frozen=True)
class GeneratedEntries:
    """What a rule generates.

    Attributes:
        entries: The entries of `generate`.
        evaluation: The fields of `evaluation` that are not the default.
    """

    entries: list[dict[str, Any]]
    evaluation: dict[str, Any]


def generated_entries(
    given: Json, scope: ExpressionScope, *, existing: bool = False
) -> GeneratedEntries:
    """Return what a rule generates, as a GeneratingPolicy says it.

    Args:
        given: The block `generate` of the rule.
        scope: What its expressions see.
        existing: Whether the policy asks for objects that exist before it.

    Raises:
        Untranslatable: If a part has no counterpart.
    """
    if not isinstance(given, Mapping):
        raise Untranslatable("`generate` is not a map")
    check_fields(given, _TARGET | _OF_RULE, "generate")
    several = given.get("foreach")
    if several is None:
        entries = [_entry(given, scope)]
    elif isinstance(several, list) and several:
        entries = [{"expression": _foreach(each, scope)} for each in several]
    else:
        raise Untranslatable("`foreach` of `generate` is not a list")
    clones = {"clone" in each for each in several or [given]}
    synchronized = given.get("synchronize") is True
    orphaned = given.get("orphanDownstreamOnPolicyDelete") is True
    if synchronized and not orphaned and len(clones) > 1:
        raise Untranslatable(
            "`foreach` generates clones, which stay when the policy is deleted, and others, which"
            " do not: give each a rule of its own"
        )
    # Kyverno keeps single clones when the policy is deleted, whatever the field says.
    orphans = synchronized and (True in clones or orphaned)
    chosen = {
        "generateExisting": given.get("generateExisting", existing) is True,
        "synchronize": synchronized,
        "orphanDownstreamOnPolicyDelete": orphans,
    }
    return GeneratedEntries(
        entries, {name: {"enabled": True} for name, wanted in chosen.items() if wanted}
    )


def check_fields(given: Mapping[str, Any], known: frozenset[str], of: str) -> None:
    """Check that a block has no other fields than Kyverno's.

    Raises:
        Untranslatable: If it has.
    """
    unknown = sorted(set(map(str, given)) - known)
    if unknown:
        raise Untranslatable(f"`{of}` has the field `{unknown[0]}`, which Kyverno does not know")


def _entry(given: Mapping[str, Any], scope: ExpressionScope) -> dict[str, Any]:
    if _source(given) != "data" or any("{{" in key for key in _keys(given["data"])):
        return {"expression": _applied(given, scope)}
    value = yaml.safe_dump(
        _interpolated(_object(given), scope), sort_keys=False, width=_WIDTH, allow_unicode=True
    )
    template = {"value": value}
    return {"template": {"interpolate": "cel", **template} if "((" in value else template}


def _source(given: Mapping[str, Any]) -> str:
    """Return which of the fields that give the object a block has.

    Raises:
        Untranslatable: If it has none, or several.
    """
    sources = [name for name in _SOURCES if name in given]
    if len(sources) != 1:
        raise Untranslatable("`generate` needs one of `data`, `clone` and `cloneList`")
    return sources[0]


def _keys(value: Json) -> Iterator[str]:
    """Yield the keys of all maps in a value."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield str(key)
            yield from _keys(part)
    elif isinstance(value, list):
        for part in value:
            yield from _keys(part)


def _object(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object of `data`, with the names that the rule gives it."""
    data = given["data"]
    if not isinstance(data, Mapping):
        raise Untranslatable("`data` of `generate` is not a map")
    if not given.get("name"):
        raise Untranslatable("`generate` has no `name`")
    version, _ = kind_of(given)
    metadata = {"name": given["name"]}
    if given.get("namespace"):
        metadata["namespace"] = given["namespace"]
    given_metadata = data.get("metadata")
    if isinstance(given_metadata, Mapping):
        metadata |= {k: v for k, v in given_metadata.items() if k not in ("name", "namespace")}
    fixed = ("apiVersion", "kind", "metadata")
    rest = {name: part for name, part in data.items() if name not in fixed}
    return {"apiVersion": version, "kind": given["kind"], "metadata": metadata, **rest}


def kind_of(given: Mapping[str, Any], of: str = "generate") -> tuple[str, str]:
    """Return the apiVersion and the plural of what a block names by its kind.

    Raises:
        Untranslatable: If it does not say which they are.
    """
    kind, version = given.get("kind"), given.get("apiVersion")
    if not isinstance(kind, str) or not kind:
        raise Untranslatable(f"`{of}` has no `kind`")
    if not version:
        found = [each for each in resources() if each.kind == kind]
        if not found:
            raise Untranslatable(f"`{of}` has no `apiVersion`, and `{kind}` is not a known kind")
        version = found[0].api_version
    return str(version), _plural(str(version), kind)


def _plural(version: str, kind: str) -> str:
    found = (
        each.plural for each in resources() if (each.api_version, each.kind) == (version, kind)
    )
    return next(found, None) or plural_of(kind)


# Templates.


def _interpolated(value: Json, scope: ExpressionScope) -> Json:
    """Return a value whose texts have `(( ))` where Kyverno has `{{ }}`."""
    if isinstance(value, Mapping):
        return {str(key): _interpolated(part, scope) for key, part in value.items()}
    if isinstance(value, list):
        return [_interpolated(part, scope) for part in value]
    if not isinstance(value, str):
        return value
    if "{{" not in value:
        return value.replace("((", "\\((") if "((" in value else value
    parts = list(split_variables(value))
    if len(parts) == 3 and not parts[0].strip() and not parts[2].strip():
        return _placeholder(parts[1], scope)
    return "".join(
        _placeholder(part, scope) if index % 2 else part.replace("((", "\\((")
        for index, part in enumerate(parts)
    )


def _placeholder(expression: str, scope: ExpressionScope) -> str:
    return f"(( {as_json_value(scope.asked(expression)).text} ))"


# Expressions.


def _applied(given: Mapping[str, Any], scope: ExpressionScope) -> str:
    """Return the call that generates an object, or those of a list."""
    namespace = _text(given.get("namespace") or "", scope)
    objects = {"data": _data, "clone": _clone, "cloneList": _clones}[_source(given)](given, scope)
    return f"generator.Apply({namespace}, {objects})"


def _data(given: Mapping[str, Any], scope: ExpressionScope) -> str:
    return f"[{_json(_object(given), scope)}]"


def _clone(given: Mapping[str, Any], scope: ExpressionScope) -> str:
    source = given["clone"]
    if not isinstance(source, Mapping) or not source.get("name"):
        raise Untranslatable("`clone` of `generate` has no `name`")
    version, plural = kind_of(given)
    where = [version, plural, source.get("namespace") or "", source["name"]]
    found = f"resource.Get({', '.join(_text(each, scope) for each in where)})"
    name = given.get("name") or source["name"]
    if name == source["name"]:
        return f"[{found}]"
    kept = ", ".join(f"?'{part}': v.?{part}" for part in ("labels", "annotations"))
    named = f"dyn({{'name': dyn({_text(name, scope)}), {kept}}})"
    renamed = f"source.transformMap(k, v, k == 'metadata' ? {named} : dyn(v))"
    # A source that is gone stays null, so that what was generated from it ends.
    return f"[{found}].map(source, source == null ? source : {renamed})"


def _clones(given: Mapping[str, Any], scope: ExpressionScope) -> str:
    source = given["cloneList"]
    if not isinstance(source, Mapping) or not isinstance(source.get("kinds"), list):
        raise Untranslatable("`cloneList` of `generate` has no `kinds`")
    selector = source.get("selector") or {}
    labels, further = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    made = []
    for each in source["kinds"]:
        group, version, kind, _ = parse_kind(str(each))
        if "*" in (version, kind):
            raise Untranslatable(f"`cloneList` needs the version and kind of `{each}`")
        api_version = version if group in ("*", "") else f"{group}/{version}"
        where = [api_version, _plural(api_version, kind), source.get("namespace") or ""]
        arguments = [_text(part, scope) for part in where]
        if labels:
            arguments.append(_json(labels, scope))
        found = f"resource.List({', '.join(arguments)})"
        if further:
            asked = all_of(label_requirement("item.metadata.?labels", part) for part in further)
            kept = f"{found}.items.filter(item, {asked})"
            about = f"'apiVersion': {text_literal(api_version)}, 'kind': '{kind}List'"
            found = f"{{{about}, 'metadata': {{}}, 'items': {kept}}}"
        made.append(found)
    return f"[{', '.join(made)}]"


def _foreach(given: Json, scope: ExpressionScope) -> str:
    """Return the calls for each element of a list."""
    if not isinstance(given, Mapping) or "list" not in given:
        raise Untranslatable("a `foreach` needs a `list`")
    check_fields(given, _TARGET | _OF_FOREACH, "foreach")
    listed, inner, names = element_scope(given, scope)
    call = _applied(given, inner)
    chosen = block_condition(given["preconditions"], inner) if given.get("preconditions") else ""
    if not chosen:
        return f"{listed}.all({', '.join(names)}, {call})"
    if len(names) == 1:
        return f"{listed}.filter({names[0]}, {chosen}).all({names[0]}, {call})"
    return f"{listed}.all({', '.join(names)}, {chosen} ? {call} : true)"


def _text(given: Json, scope: ExpressionScope) -> str:
    value = _value(str(given), scope)
    return value.text if value.kind in ("string", "dyn") else f"string({value.text})"


def _value(text: str, scope: ExpressionScope) -> CelTerm:
    """Return a text with variables; one that is absent is an error, as in Kyverno."""
    parts = list(split_variables(text))
    if len(parts) < 3 or (len(parts) == 3 and not parts[0].strip() and not parts[2].strip()):
        return scope.value(text)
    pieces = []
    for index, part in enumerate(parts):
        if not index % 2:
            pieces += [text_literal(part)] if part else []
            continue
        asked = scope.asked(part)
        pieces.append(asked.tight if asked.kind == "string" else f"string({asked.text})")
    return CelTerm(text=" + ".join(pieces), kind="string", loose=len(pieces) > 1)


def _json(given: Json, scope: ExpressionScope) -> str:
    """Return a value in CEL, whose keys and texts may have variables."""
    if "{{" not in json.dumps(given):
        return json_literal(given)
    if isinstance(given, Mapping):
        entries = (f"{_text(key, scope)}: {_json(part, scope)}" for key, part in given.items())
        return f"{{{', '.join(entries)}}}"
    if isinstance(given, list):
        return f"[{', '.join(_json(part, scope) for part in given)}]"
    return as_json_value(_value(given, scope)).text

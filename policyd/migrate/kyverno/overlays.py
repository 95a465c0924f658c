"""Write `mutate` in CEL: overlays as apply configurations, JSON patches as such, and `foreach`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import yaml

from policyd.api.kinds import FieldType, fields
from policyd.api.meta import Json
from policyd.cel.syntax.literals import json_literal, text_literal
from policyd.migrate.cel_values import (
    IDENTIFIER,
    CelTerm,
    Untranslatable,
    all_of,
    as_json_value,
    member,
    outline,
    value_of_optional,
)
from policyd.migrate.jmespath import split_variables
from policyd.migrate.kyverno.conditions import block_condition
from policyd.migrate.kyverno.foreach import element_scope
from policyd.migrate.kyverno.patterns import ANCHOR, passes, pattern_steps
from policyd.migrate.kyverno.scopes import ExpressionScope

_KEYWORDS: Final = frozenset(["in", "true", "false", "null", "namespace", "package", "as", "for"])
_OPERATIONS: Final = frozenset(["add", "replace", "remove", "copy", "move", "test"])
_LONGEST: Final = 100_000
_INDEX: Final = "{{elementIndex}}"
_SPACED_INDEX: Final = "{{ elementIndex }}"
_TYPES: Final = {
    "ApplyConfiguration": ("applyConfiguration", "Object{}"),
    "JSONPatch": ("jsonPatch", "[]"),
}
"""The field of each type of patch, and the expression of one that changes nothing."""


@dataclass
class _Overlay:
    """An overlay in the making.

    Attributes:
        scope: What its expressions see.
        conditions: Conditions without which nothing is changed.
        listed: The list of a `foreach` in CEL; empty if there is none.
        element: Its element.
        chosen: The condition of elements that are changed.
        used: Whether the element has been put in its place.
        patches: What an apply configuration cannot set: lists of operations in CEL.
        mixed: Whether a map has literals and computed values, whose types CEL tells apart.
    """

    scope: ExpressionScope
    conditions: list[str] = field(default_factory=list)
    listed: str = ""
    element: CelTerm | None = None
    chosen: str = ""
    used: bool = False
    patches: list[str] = field(default_factory=list)
    mixed: bool = False

    def patch(self, operations: Sequence[str]) -> None:
        """Add operations; an object that several fields are in is added once."""
        self.patches += [each for each in operations if each not in self.patches]


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
        return {}, "", [_foreach(each, scope, place) for each in mutate["foreach"]]
    if "patchesJson6902" in mutate:
        patch = _patch(mutate["patchesJson6902"], scope, place)
        patches = [*patch.shared, *patch.operations]
        text = " + ".join(patches).replace("}] + [JSONPatch", "}, JSONPatch")
        return {}, "", [_json_patch(text)]
    if "patchStrategicMerge" not in mutate:
        raise Untranslatable("`mutate` has neither an overlay nor patches")
    overlay = _Overlay(scope)
    text = _whole(overlay, mutate["patchStrategicMerge"], place)
    made = []
    if not text.endswith("{}"):
        made.append(_apply(text))
    if overlay.patches:
        made.append(_json_patch(" + ".join(overlay.patches)))
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


def _json_patch(text: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}


def _whole(overlay: _Overlay, pattern: Json, place: Sequence[str]) -> str:
    if not isinstance(pattern, Mapping):
        raise Untranslatable("the overlay is not a map")
    typed = ".".join(("Object", *place))
    text = _object(overlay, pattern, typed, overlay.scope.subject)
    if text.endswith("{}"):
        return text
    for index in reversed(range(len(place))):
        typed = ".".join(("Object", *place[:index]))
        text = f"{typed}{{{place[index]}: {text}}}"
    return text


def _object(overlay: _Overlay, pattern: Mapping[str, Json], typed: str, value: CelTerm) -> str:
    parts = _parts(overlay, pattern, typed, value)
    if any(
        not IDENTIFIER.fullmatch(key.strip("?")) or key.strip("?") in _KEYWORDS for key, _ in parts
    ):
        return _map(parts)
    return f"{typed}{{{', '.join(f'{key}: {text}' for key, text in parts)}}}"


def _map(parts: Sequence[tuple[str, str]]) -> str:
    shown = (
        f"?{text_literal(key[1:])}: {text}"
        if key.startswith("?")
        else f"{text_literal(key)}: {text}"
        for key, text in parts
    )
    return f"{{{', '.join(shown)}}}"


def _parts(
    overlay: _Overlay, pattern: Mapping[str, Json], typed: str, value: CelTerm
) -> list[tuple[str, str]]:
    """Return the fields that an overlay sets, with a `?` before those that may have no value."""
    parts: list[tuple[str, str] | None] = []
    for key, wanted in pattern.items():
        anchor = ANCHOR.fullmatch(key)
        if anchor is None:
            parts.append(_plain_part(overlay, (key, wanted), typed, value))
        elif anchor["kind"] in ("", "<", "="):
            condition = passes(pattern_steps(value, {f"({anchor['key']})": wanted}, overlay.scope))
            overlay.conditions += [condition] if condition else []
        elif anchor["kind"] == "+":
            added = anchor["key"], _plain(wanted)
            parts.append(_added_part(overlay, added, typed, member(value, anchor["key"]), value))
        else:
            raise Untranslatable(f"the anchor `{key}` has no meaning in `mutate`")
    return [part for part in parts if part is not None]


def _plain_part(
    overlay: _Overlay, entry: tuple[str, Json], typed: str, value: CelTerm
) -> tuple[str, str] | None:
    key, wanted = entry
    found = member(value, key)
    if _is_replaced(value, key, wanted):
        overlay.patch(_replacing(overlay, wanted, f"{typed}.{key}", found, value))
        return None
    text = _set(overlay, wanted, f"{typed}.{key}", found)
    if not text:
        return None
    return (f"?{key}" if text.startswith("?") else key, text.lstrip("?"))


def _added_part(
    overlay: _Overlay, entry: tuple[str, Json], typed: str, found: CelTerm, value: CelTerm
) -> tuple[str, str] | None:
    """Return a field that is set where it is absent."""
    key, wanted = entry
    if _is_replaced(value, key, wanted, whole=True):
        overlay.patch(_added(overlay, wanted, f"{typed}.{key}", found))
        return None
    text = _set(overlay, wanted, f"{typed}.{key}", found)
    given = text.lstrip("?") if text.startswith("?") else f"optional.of({text})"
    return f"?{key}", f"{found.present() or 'true'} ? optional.none() : {given}"


def _types_of(value: CelTerm, key: str) -> list[FieldType]:
    """Return the types of a field in the structs that a value may be."""
    structs = [fields(shape[1]) for shape in value.shapes if shape[0] == "struct"]
    return [struct[key] for struct in structs if key in struct]


def _is_replaced(value: CelTerm, key: str, wanted: Json, *, whole: bool = False) -> bool:
    """Tell whether an apply configuration may not set a field, for it is replaced as a whole."""
    return any(_has_atomic(of, wanted, inside=whole) for of in _types_of(value, key))


def _has_atomic(of: FieldType, wanted: Json, *, inside: bool = False) -> bool:
    if isinstance(wanted, list):
        if any(isinstance(each, Mapping) and any(map(ANCHOR.fullmatch, each)) for each in wanted):
            return False
        element = of.element
        atomic = of.shape == "list" and (of.list_type == "atomic")
        return atomic or (
            element is not None and any(_has_atomic(element, each, inside=True) for each in wanted)
        )
    if not isinstance(wanted, Mapping):
        return False
    if of.atomic and (inside or not any(map(ANCHOR.fullmatch, wanted))):
        return True
    if of.shape != "struct" or of.struct is None or not inside:
        return False
    inner = fields(of.struct)
    return any(
        key in inner and _has_atomic(inner[key], part, inside=True) for key, part in wanted.items()
    )


def _pointer_of(typed: str) -> str:
    return "/" + typed.removeprefix("Object.").replace(".", "/")


def _parents(overlay: _Overlay, typed: str) -> list[str]:
    """Return operations that add the objects that a field is in, where they are absent."""
    of, made = CelTerm(text="object", shapes=overlay.scope.roots["request.object"].shapes), []
    if overlay.scope.subject.text != "object":
        of = CelTerm(text="object")
    path = ""
    for name in typed.split(".")[1:-1]:
        of, path = member(of, name), f"{path}/{name}"
        there = of.present()
        if there and not overlay.scope.subject.text.startswith(of.text) and name != "spec":
            operation = f"JSONPatch{{op: 'add', path: '{path}', value: {{}}}}"
            made.append(f"({there} ? [] : [{operation}])")
    return made


def _replacing(
    overlay: _Overlay, wanted: Json, typed: str, found: CelTerm, value: CelTerm
) -> list[str]:
    """Return operations that set a field as a whole; elements of other keys stay."""
    text = _json(_plain(wanted), overlay.scope)
    (of, *_) = _types_of(value, typed.rpartition(".")[2])
    key = of.patch_merge_key
    if isinstance(wanted, list) and "merge" in of.patch_strategies and key:
        names = ", ".join(_json(each.get(key), overlay.scope) for each in wanted)
        element = overlay.scope.free(found.name)
        others = f"{found.listed()}.filter({element}, !({element}.{key} in [{names}]))"
        text = f"{text} + {others}"
    return [*_parents(overlay, typed), f"[{_add(typed, text)}]"]


def _add(typed: str, text: str) -> str:
    return f"JSONPatch{{op: 'add', path: {text_literal(_pointer_of(typed))}, value: {text}}}"


def _added(overlay: _Overlay, wanted: Json, typed: str, found: CelTerm) -> list[str]:
    """Return operations that set a field where it is absent."""
    text = _add(typed, _json(wanted, overlay.scope))
    there = found.present() or "true"
    return [*_parents(overlay, typed), f"({there} ? [] : [{text}])"]


def _plain(pattern: Json) -> Json:
    """Return a pattern without anchors: what is added as a whole."""
    if isinstance(pattern, Mapping):
        keys = {key: (m["key"] if (m := ANCHOR.fullmatch(key)) else key) for key in pattern}
        return {keys[key]: _plain(part) for key, part in pattern.items()}
    return [_plain(part) for part in pattern] if isinstance(pattern, list) else pattern


def _set(overlay: _Overlay, wanted: Json, typed: str, value: CelTerm) -> str:
    """Return the value that a field is set to; empty for none, with a `?` for an optional."""
    if wanted is None:
        raise Untranslatable(f"the overlay removes `{typed.removeprefix('Object.')}`")
    if isinstance(wanted, Mapping):
        if any(shape[0] == "map" for shape in value.shapes):
            return _entries(overlay, wanted, typed, value)
        if not wanted:
            return f"{typed}{{}}"
        text = _object(overlay, wanted, typed, value)
        return "" if text == f"{typed}{{}}" else text  # anchors alone set nothing
    if isinstance(wanted, list):
        return _list(overlay, wanted, typed, value)
    return _scalar(overlay, wanted)


def _scalar(overlay: _Overlay, wanted: Json) -> str:
    given = as_json_value(overlay.scope.value(wanted))
    if given.needs:
        return f"?{given.optional()}"
    text = json_literal(wanted) if given.is_literal else given.text
    return f"dyn({text})" if overlay.mixed else text


def _entries(overlay: _Overlay, wanted: Mapping[str, Json], typed: str, value: CelTerm) -> str:
    if any("{{" in key for key in wanted):
        return _computed_entries(overlay, wanted)
    computed = ["{{" in str(part) for part in wanted.values()]
    overlay.mixed = any(computed) and len(computed) > 1
    parts = _parts(overlay, wanted, typed, value)
    overlay.mixed = False
    return _map(parts) if parts or not wanted else ""


def _computed_entries(overlay: _Overlay, wanted: Mapping[str, Json]) -> str:
    """Return entries whose keys are made of the element of a `foreach`."""
    if not overlay.listed or overlay.element is None or len(wanted) != 1:
        raise Untranslatable("the overlay computes the key of a map")
    ((key, text),) = wanted.items()
    overlay.used = True
    named, shown = overlay.scope.value(key), _scalar(overlay, text)
    index = overlay.scope.free("i")
    chosen = f".filter({overlay.element.text}, {overlay.chosen})" if overlay.chosen else ""
    entry = f"{{{named.text}: {shown}}}"
    return f"{overlay.listed}{chosen}.transformMapEntry({index}, {overlay.element.text}, {entry})"


def _list(overlay: _Overlay, wanted: list[Json], typed: str, value: CelTerm) -> str:
    if not all(isinstance(each, Mapping) for each in wanted):
        if any(isinstance(each, Mapping | list) for each in wanted):
            raise Untranslatable("a list of the overlay has values of several kinds")
        return f"[{', '.join(_scalar(overlay, each).lstrip('?') for each in wanted)}]"
    parts = [_items(overlay, each, typed, value) for each in wanted]
    literals = [part for part in parts if part and not part.startswith("(")]
    computed = [part[1:] for part in parts if part.startswith("(")]
    joined = [*computed, *([f"[{', '.join(literals)}]"] if literals else [])]
    if literals and typed.rpartition(".")[2] in ("containers", "initContainers"):
        kept = overlay.scope.free(value.name)
        joined.append(f"{value.listed()}.map({kept}, {typed}{{name: {kept}.name}})")
    return " + ".join(joined)


def _asks(wanted: Json) -> bool:
    """Tell whether a part of an overlay has an anchor that asks, however deep."""
    if isinstance(wanted, list):
        return any(map(_asks, wanted))
    if not isinstance(wanted, Mapping):
        return False
    kinds = {found["kind"] for found in map(ANCHOR.fullmatch, map(str, wanted)) if found}
    return bool(kinds & {"", "<", "="}) or any(map(_asks, wanted.values()))


def _asked_alone(wanted: Mapping[str, Json]) -> dict[str, Json]:
    """Return the pattern that a part of an overlay asks for, which sets nothing.

    Raises:
        Untranslatable: If it sets something.
    """
    asked: dict[str, Json] = {}
    for key, each in wanted.items():
        anchor = ANCHOR.fullmatch(key)
        if anchor is not None and anchor["kind"] == "<":
            asked[f"({anchor['key']})"] = each
        elif isinstance(each, Mapping) and anchor is None:
            asked[key] = _asked_alone(each)
        else:
            raise Untranslatable(f"`{key}` of an element is set, and another part of it is asked")
    return asked


def _items(overlay: _Overlay, wanted: Mapping[str, Json], typed: str, value: CelTerm) -> str:
    """Return an element of a list, or with a `(` before it a list that is computed."""
    anchors = {ANCHOR.fullmatch(key)["kind"] for key in wanted if ANCHOR.fullmatch(key)}  # type: ignore[index]
    if overlay.element is not None and not overlay.used and _names_element(wanted):
        return _of_element(overlay, wanted, typed, value)
    if not anchors & {"", "<", "="} and _asks(wanted):
        asked = _asked_alone(wanted)
        inner, element, name = overlay.scope.deeper(value)
        condition = passes(pattern_steps(element, asked, inner))
        overlay.conditions.append(f"{value.listed()}.exists({name}, {condition})")
        return ""
    if not anchors & {"", "<", "="}:
        return _object(overlay, wanted, typed, CelTerm(text="object", needs=("optional.none()",)))
    inner, element, name = overlay.scope.deeper(value)
    part = _Overlay(inner, listed=overlay.listed, element=overlay.element, used=overlay.used)
    kept = {key: each for key, each in wanted.items() if not key.startswith("<")}
    globals_ = {f"({key[2:-1]})": each for key, each in wanted.items() if key.startswith("<")}
    if globals_:
        condition = passes(pattern_steps(element, globals_, inner))
        overlay.conditions.append(f"{value.listed()}.exists({name}, {condition})")
        if not kept:
            return ""
    entry = _object(part, kept, typed, element)
    overlay.used = overlay.used or part.used
    keyed = _with_keys(entry, typed, element, value)
    return f"({_changed(value.listed(), name, keyed, part.conditions)}"


def _changed(listed: str, name: str, entry: str, conditions: Sequence[str]) -> str:
    chosen = f".filter({name}, {all_of(conditions)})" if conditions else ""
    return f"{listed}{chosen}.map({name}, {entry})"


def _names_element(wanted: Mapping[str, Json]) -> bool:
    return any(
        isinstance(text, str) and text.replace(" ", "") == "{{element.name}}"
        for key, text in wanted.items()
        if key in ("name", "(name)")
    )


def _of_element(overlay: _Overlay, wanted: Mapping[str, Json], typed: str, value: CelTerm) -> str:
    """Return the changes of the elements of a `foreach` that is about the list itself."""
    element = overlay.element
    assert element is not None, "checked by the caller"
    overlay.used = True
    rest = {key: text for key, text in wanted.items() if key not in ("name", "(name)")}
    part = _Overlay(overlay.scope, listed=overlay.listed, element=element, used=True)
    parts = [("name", f"{element.text}.name"), *_parts(part, rest, typed, element)]
    entry = f"{typed}{{{', '.join(f'{key}: {text}' for key, text in parts)}}}"
    conditions = [*filter(None, [overlay.chosen]), *part.conditions]
    listed = overlay.listed
    if listed != value.listed():
        conditions.append(f"{element.text}.name in {value.listed()}.map(other, other.name)")
    return f"({_changed(listed, element.text, entry, conditions)}"


def _with_keys(entry: str, typed: str, element: CelTerm, of: CelTerm) -> str:
    """Put the fields into an element that tell the elements of its list apart."""
    keys = _keys_of(of)
    start = f"{typed}{{"
    if not entry.startswith(start):
        raise Untranslatable("a list of the overlay has an element with a key that is no name")
    rest = entry[len(start) :]
    missing = [key for key in keys if f"{key}: " not in _top(rest)]
    given = [
        f"{key}: {element.text}.{key}" if key == keys[0] else f"?{key}: {element.text}.?{key}"
        for key in missing
    ]
    joined = ", ".join(filter(None, [*given, rest[:-1]]))
    return f"{start}{joined}}}"


def _top(text: str) -> str:
    """Return the part of a text of fields that is in no braces."""
    depth, kept = 0, []
    for each in text:
        depth += (each in "{[(") - (each in "}])")
        if depth == 0:
            kept.append(each)
    return "".join(kept)


def _keys_of(of: CelTerm) -> tuple[str, ...]:
    keys = {_list_keys(shape) for shape in of.shapes}
    found = keys.pop() if len(keys) == 1 else ()
    return found or ("name",)


def _list_keys(shape: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the keys of a list of structs, which name some struct's own list."""
    if shape[0] != "list" or shape[1][0] != "struct":
        return ()
    struct = shape[1][1]
    return ("name",) if "name" in fields(struct) else tuple(_required(fields(struct)))


def _required(of: Mapping[str, FieldType]) -> list[str]:
    return [name for name, each in of.items() if each.required][:1]


# Patches.


def _foreach(
    given: Mapping[str, Any], scope: ExpressionScope, place: Sequence[str]
) -> dict[str, Any]:
    listed, inner, names = element_scope(given, scope)
    chosen = (
        block_condition(given.get("preconditions"), inner) if given.get("preconditions") else ""
    )
    if "patchesJson6902" in given:
        if given.get("order") == "Descending":
            inner = _from_last(inner, listed, names, chosen)
        elif not chosen and _moves_others(_read_patch(given["patchesJson6902"])):
            raise Untranslatable("patches that remove elements from first to last move the others")
        return _foreach_patches(given, inner, place, (listed, names, chosen))
    if "patchStrategicMerge" not in given:
        raise Untranslatable("a `foreach` has neither an overlay nor patches")
    element = inner.roots["element"]
    overlay = _Overlay(inner, listed=listed, element=element, chosen=chosen)
    text = _whole(overlay, given["patchStrategicMerge"], place)
    if not overlay.used:
        raise Untranslatable("the overlay of the `foreach` does not say which element it changes")
    made = _apply(text)
    return chosen_of([(all_of(overlay.conditions), made)]) if overlay.conditions else made


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
    patch = _patch(
        given["patchesJson6902"], scope, place, some if chosen else f"{listed}.size() == 0"
    )
    patches = patch.operations
    several = len(patches) > 1 or not patches[0].startswith("[JSONPatch")
    text = " + ".join(patches) if several else patches[0][1:-1]
    if len(names) == 1:
        kept = f".filter({names[0]}, {chosen})" if chosen else ""
        made = f"{listed}{kept}.map({names[0]}, {text})"
    else:
        condition = f"{chosen}, " if chosen else ""
        made = f"{listed}.transformList({', '.join(names)}, {condition}{text})"
    made = f"{made}.flatten()" if several else made
    return _json_patch(" + ".join([*patch.shared, made]))


class _Patch(NamedTuple):
    """Lists of operations of a JSON patch in CEL.

    Attributes:
        shared: Those that add what is missing on the way, once for all elements: expressions see
            the object as it was, so that each element would add it anew, and lose what others did.
        operations: The others, once for each element of a `foreach`.
    """

    shared: tuple[str, ...]
    operations: tuple[str, ...]


def _patch(given: Json, scope: ExpressionScope, place: Sequence[str], unneeded: str = "") -> _Patch:
    """Return the operations of a JSON patch; what is missing on the way of all is added first.

    Args:
        given: The patch, a text.
        scope: What its expressions see.
        place: Where the object is that it is about.
        unneeded: When there is no element to add anything for.
    """
    shared: dict[str, None] = {}
    parents: dict[str, None] = {}
    operations: list[str] = []
    for each in _read_patch(given):
        walked, operation = _operation(each, scope, place)
        for there, added, of_element in walked:
            condition = f"{there} || {unneeded}" if unneeded and not of_element else there
            text = f"({condition} ? [] : [{added}])"
            (parents if of_element else shared)[text] = None
        operations.append(operation)
    return _Patch(tuple(shared), (*parents, *operations))


def _read_patch(given: Json) -> list[Json]:
    """Return the operations of a JSON patch, which is a text."""
    if not isinstance(given, str):
        raise Untranslatable("`patchesJson6902` is not a text of YAML")
    if len(given) > _LONGEST:
        raise Untranslatable("`patchesJson6902` is too long")
    try:
        read = yaml.safe_load(given)
    except yaml.YAMLError as error:
        raise Untranslatable("`patchesJson6902` is not YAML") from error
    if not isinstance(read, list) or not read:
        raise Untranslatable("`patchesJson6902` is not a list of operations")
    return read


class _Parent(NamedTuple):
    """What is missing on the way of a path: when it is there, what adds it, and for what."""

    there: str
    added: str
    of_element: bool


def _operation(
    given: Json, scope: ExpressionScope, place: Sequence[str]
) -> tuple[list[_Parent], str]:
    """Return an operation; `add` adds the objects that its path is in, as Kyverno does."""
    if not isinstance(given, Mapping) or given.get("op") not in _OPERATIONS or "path" not in given:
        raise Untranslatable("an operation of the patch needs `op` and `path`")
    prefix = "".join(f"/{step}" for step in place)
    given = {**given, "path": _without_negative_end(str(given["path"]))}
    parents, path = _walked(given, scope, prefix)
    parts = [f"op: {text_literal(given['op'])}"]
    parts.append(f"path: {path}")
    if "from" in given:
        parts.append(f"from: {_pointer(prefix + str(given['from']), scope)}")
    if "value" in given:
        parts.append(f"value: {_json(given['value'], scope)}")
    return parents, f"[JSONPatch{{{', '.join(parts)}}}]"


def _without_negative_end(path: str) -> str:
    return f"{path[:-2]}-" if path.endswith("/-1") else path


def _walked(
    given: Mapping[str, Any], scope: ExpressionScope, prefix: str
) -> tuple[list[_Parent], str]:
    """Return what is missing on the way of a path, up to a computed step, and the path in CEL."""
    text = str(given["path"])
    if given["op"] != "add":
        return [], _pointer(prefix + text, scope)
    steps = [_INDEX if each == _SPACED_INDEX else each for each in _steps(text)]
    parents: list[_Parent] = []
    value, path = scope.subject, [text_literal(prefix)] if prefix else []
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        if step == "-1":
            size = f"{value.listed()}.size()"
            path += [text_literal("/"), f"string({size} > 0 ? {size} - 1 : 0)"]
        elif step == _INDEX:
            path += [text_literal("/"), f"string({scope.roots['elementIndex'].text})"]
        elif "{{" in step:
            path.append(_pointer(f"/{step}", scope))
            if not last:
                return parents, _pointer(prefix + text, scope)
            break
        else:
            path.append(text_literal(f"/{step}"))
        following = value_at_step(value, step, scope)
        if not last and following.needs and step != "-1":
            empty = {"-": "[]", "-1": "[{}]"}.get(steps[index + 1], "{}")
            added = f"JSONPatch{{op: 'add', path: {_joined(path)}, value: {empty}}}"
            parents.append(_Parent(following.present(), added, _INDEX in steps[: index + 1]))
        value = following
    return parents, _joined(path)


def _steps(pointer: str) -> list[str]:
    """Return the steps of a JSON pointer, whose expressions may have slashes."""
    parts = list(split_variables(pointer))
    whole = "".join(f"\0{index}\0" if index % 2 else part for index, part in enumerate(parts))
    steps = whole.split("/")[1:]
    for index in range(1, len(parts), 2):
        steps = [step.replace(f"\0{index}\0", f"{{{{{parts[index]}}}}}") for step in steps]
    return steps


def value_at_step(value: CelTerm, step: str, scope: ExpressionScope) -> CelTerm:
    """Return what a step of a JSON pointer leads to."""
    if step == "-1":
        return value_of_optional(f"{value.listed()}.last()")
    if step == _INDEX:
        found = scope.roots["element"]
        return found if scope.listed == value.listed() else CelTerm(text=f"{value.text}[0]")
    if step.isdigit():
        optional = f"{value.needs[0] if value.itself else value.tight}[?{step}]"
        return value_of_optional(optional)
    return member(value, step.replace("~1", "/").replace("~0", "~"))


def _joined(pieces: Sequence[str]) -> str:
    """Return pieces of a text as one expression; literals side by side become one."""
    joined: list[str] = []
    for piece in pieces:
        if joined and joined[-1].startswith("'") and piece.startswith("'"):
            joined[-1] = joined[-1][:-1] + piece[1:]
        else:
            joined.append(piece)
    return " + ".join(joined)


def _pointer(text: str, scope: ExpressionScope) -> str:
    pieces = []
    for index, part in enumerate(split_variables(text)):
        if index % 2:
            value = scope.translated(part)
            if value.kind == "number":
                pieces.append(f"string({value.text})")
            else:
                pieces.append(f"jsonpatch.escapeKey({value.otherwise(repr(''))})")
        elif part:
            pieces.append(text_literal(part))
    return " + ".join(pieces)


def _json(given: Json, scope: ExpressionScope) -> str:
    """Return a value of a patch, whose texts may have variables."""
    if "{{" not in json.dumps(given):
        return json_literal(given)
    if isinstance(given, Mapping):
        entries = []
        for key, part in given.items():
            value = scope.value(part) if isinstance(part, str) else None
            if value is not None and value.needs and value.itself:
                entries.append(f"?{text_literal(key)}: {value.optional()}")
            else:
                shown = _json(part, scope)
                entries.append(
                    f"{text_literal(key)}: {f'dyn({shown})' if len(given) > 1 else shown}"
                )
        return f"{{{', '.join(entries)}}}"
    if isinstance(given, list):
        return f"[{', '.join(_json(part, scope) for part in given)}]"
    value = as_json_value(scope.value(given))
    return value.otherwise("''") if value.needs else value.text

"""Write overlays of `mutate` in CEL: as apply configurations, and as JSON patches where need be.

An apply configuration cannot set what is replaced as a whole, such as the command of a container.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

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
)
from policyd.migrate.kyverno.json_patches import for_each
from policyd.migrate.kyverno.overlay_patches import (
    Overlay,
    added,
    is_replaced,
    replacing,
    without_anchors,
)
from policyd.migrate.kyverno.patterns import ANCHOR, passes, pattern_steps

_KEYWORDS: Final = frozenset(["in", "true", "false", "null", "namespace", "package", "as", "for"])


def whole(overlay: Overlay, pattern: Json, place: Sequence[str]) -> str:
    """Return the apply configuration of an overlay; one that ends in `{}` sets nothing.

    Args:
        overlay: The overlay in the making, which gets its conditions and patches.
        pattern: What it says.
        place: Where in the object the pod is that it is about.

    Raises:
        Untranslatable: If a part has no counterpart.
    """
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


def _object(overlay: Overlay, pattern: Mapping[str, Json], typed: str, value: CelTerm) -> str:
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
    overlay: Overlay, pattern: Mapping[str, Json], typed: str, value: CelTerm
) -> list[tuple[str, str]]:
    """Return the fields that an overlay sets, with a `?` before those that may have no value."""
    parts: list[tuple[str, str] | None] = []
    for key, wanted in pattern.items():
        anchor = ANCHOR.fullmatch(key)
        if anchor is None:
            parts.append(_plain_part(overlay, (key, wanted), typed, value))
        elif anchor["kind"] in ("", "<", "="):
            asked, set_there = _apart(wanted)
            condition = passes(pattern_steps(value, {f"({anchor['key']})": asked}, overlay.scope))
            overlay.conditions += [condition] if condition else []
            if set_there:
                parts.append(_plain_part(overlay, (anchor["key"], set_there), typed, value))
        elif anchor["kind"] == "+":
            added = anchor["key"], without_anchors(wanted)
            parts.append(_added_part(overlay, added, typed, member(value, anchor["key"]), value))
        else:
            raise Untranslatable(f"the anchor `{key}` has no meaning in `mutate`")
    return [part for part in parts if part is not None]


def _apart(wanted: Json) -> tuple[Json, dict[str, Json]]:
    """Return what a part of an overlay asks, and what is added in it where it is absent."""
    if not isinstance(wanted, Mapping):
        return wanted, {}
    asked: dict[str, Json] = {}
    added: dict[str, Json] = {}
    for key, each in wanted.items():
        inner, further = _apart(each)
        if str(key).startswith("+("):
            added[key] = each
        else:
            asked[key] = inner
        if further:
            added[key] = further
    return asked, added


def _plain_part(
    overlay: Overlay, entry: tuple[str, Json], typed: str, value: CelTerm
) -> tuple[str, str] | None:
    key, wanted = entry
    found = member(value, key)
    if is_replaced(value, key, wanted) and not _changes_element(overlay, wanted):
        overlay.patch(replacing(overlay, wanted, f"{typed}.{key}", found, value))
        return None
    text = _set(overlay, wanted, f"{typed}.{key}", found)
    if not text:
        return None
    return (f"?{key}" if text.startswith("?") else key, text.lstrip("?"))


def _added_part(
    overlay: Overlay, entry: tuple[str, Json], typed: str, found: CelTerm, value: CelTerm
) -> tuple[str, str] | None:
    """Return a field that is set where it is absent."""
    key, wanted = entry
    if is_replaced(value, key, wanted, whole=True):
        overlay.patch(added(overlay, wanted, f"{typed}.{key}", found))
        return None
    text = _set(overlay, wanted, f"{typed}.{key}", found)
    given = text.lstrip("?") if text.startswith("?") else f"optional.of({text})"
    return f"?{key}", f"{found.present() or 'true'} ? optional.none() : {given}"


def _set(overlay: Overlay, wanted: Json, typed: str, value: CelTerm) -> str:
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


def _scalar(overlay: Overlay, wanted: Json) -> str:
    given = as_json_value(overlay.scope.value(wanted))
    if given.needs:
        return f"?{given.optional()}"
    text = json_literal(wanted) if given.is_literal else given.text
    return f"dyn({text})" if overlay.mixed else text


def _entries(overlay: Overlay, wanted: Mapping[str, Json], typed: str, value: CelTerm) -> str:
    if any("{{" in key for key in wanted):
        return _computed_entries(overlay, wanted)
    computed = ["{{" in str(part) for part in wanted.values()]
    overlay.mixed = any(computed) and len(computed) > 1
    parts = _parts(overlay, wanted, typed, value)
    overlay.mixed = False
    return _map(parts) if parts or not wanted else ""


def _computed_entries(overlay: Overlay, wanted: Mapping[str, Json]) -> str:
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


def _list(overlay: Overlay, wanted: list[Json], typed: str, value: CelTerm) -> str:
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


def _items(overlay: Overlay, wanted: Mapping[str, Json], typed: str, value: CelTerm) -> str:
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
    index = inner.free(f"{name}Index")
    part = overlay.of_element(inner, typed, element, index)
    kept = {key: each for key, each in wanted.items() if not key.startswith("<")}
    globals_ = {f"({key[2:-1]})": each for key, each in wanted.items() if key.startswith("<")}
    if globals_:
        condition = passes(pattern_steps(element, globals_, inner))
        overlay.conditions.append(f"{value.listed()}.exists({name}, {condition})")
        if not kept:
            return ""
    entry = _object(part, kept, typed, element)
    overlay.used = overlay.used or part.used
    _patch_elements(overlay, part, (value.listed(), index, name), part.conditions)
    if entry == f"{typed}{{}}":
        return ""
    keyed = _with_keys(entry, typed, element, value)
    return f"({_changed(value.listed(), name, keyed, part.conditions)}"


def _patch_elements(
    overlay: Overlay, part: Overlay, around: tuple[str, str, str], conditions: Sequence[str]
) -> None:
    """Add the patches of the elements of a list: around them are list, index and element."""
    listed, *names = around
    if part.patches:
        chosen = all_of(conditions) if conditions else ""
        overlay.patch([for_each(listed, names, chosen, part.patches)])


def _changed(listed: str, name: str, entry: str, conditions: Sequence[str]) -> str:
    chosen = f".filter({name}, {all_of(conditions)})" if conditions else ""
    return f"{listed}{chosen}.map({name}, {entry})"


def _names_element(wanted: Mapping[str, Json]) -> bool:
    return any(
        isinstance(text, str) and text.replace(" ", "") == "{{element.name}}"
        for key, text in wanted.items()
        if key in ("name", "(name)")
    )


def _changes_element(overlay: Overlay, wanted: Json) -> bool:
    """Tell whether a list has an element of a `foreach`, which changes as a part of it."""
    listed = wanted if overlay.element is not None and isinstance(wanted, list) else ()
    return any(isinstance(each, Mapping) and _names_element(each) for each in listed)


def _of_element(overlay: Overlay, wanted: Mapping[str, Json], typed: str, value: CelTerm) -> str:
    """Return the changes of the elements of a `foreach` that is about the list itself."""
    element = overlay.element
    assert element is not None, "checked by the caller"
    overlay.used = True
    rest = {key: text for key, text in wanted.items() if key not in ("name", "(name)")}
    index = overlay.scope.free(f"{element.text}Position")
    part = overlay.of_element(overlay.scope, typed, element, index)
    parts = [("name", f"{element.text}.name"), *_parts(part, rest, typed, element)]
    entry = f"{typed}{{{', '.join(f'{key}: {text}' for key, text in parts)}}}"
    conditions = [*filter(None, [overlay.chosen]), *part.conditions]
    listed = overlay.listed
    if listed != value.listed():
        conditions.append(f"{element.text}.name in {value.listed()}.map(other, other.name)")
        if part.patches:
            raise Untranslatable("the `foreach` replaces parts of elements of another list")
    _patch_elements(overlay, part, (listed, index, element.text), conditions)
    if len(parts) == 1:
        return ""
    return f"({_changed(listed, element.text, entry, conditions)}"


def _with_keys(entry: str, typed: str, element: CelTerm, of: CelTerm) -> str:
    """Put the fields into an element that tell the elements of its list apart."""
    keys = _keys_of(of)
    start = f"{typed}{{"
    if not entry.startswith(start):
        raise Untranslatable("a list of the overlay has an element with a key that is not a name")
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

"""Write `patchesJson6902` in CEL: operations, and those that add what a path leads through."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml

from policyd.api.meta import Json
from policyd.api.yaml_texts import plain_yaml
from policyd.cel.syntax.literals import json_literal, text_literal
from policyd.migrate.cel_values import (
    CelTerm,
    Untranslatable,
    as_json_value,
    member,
    value_of_optional,
)
from policyd.migrate.jmespath import split_variables
from policyd.migrate.kyverno.scopes import ExpressionScope

_OPERATIONS: Final = frozenset(["add", "replace", "remove", "copy", "move", "test"])
_LONGEST: Final = 100_000
_UNQUOTED: Final = re.compile(
    r"^(?P<field>[ ]*(?:-[ ]+)?(?:op|path|from|value):[ ]+)(?P<value>\{\{.*\}\})[ ]*$",
    re.MULTILINE,
)
_INDEX: Final = "{{elementIndex}}"
_SPACED_INDEX: Final = "{{ elementIndex }}"


class JsonPatch(NamedTuple):
    """Lists of operations of a JSON patch in CEL.

    Attributes:
        shared: Those that add what is missing on the way, once for all elements: expressions see
            the object as it was, so that each element would add it anew, and lose what others did.
        operations: The others, once for each element of a `foreach`.
    """

    shared: tuple[str, ...]
    operations: tuple[str, ...]


def json_patch(
    given: Json, scope: ExpressionScope, place: Sequence[str], unneeded: str = ""
) -> JsonPatch:
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
    written: list[Mapping[str, Any]] = []
    for each in read_patch(given):
        walked, operation = _operation(each, scope, place)
        for there, added, of_element, path in walked:
            before = [other for other in written if f"{path}/".startswith(f"{other['path']}/")]
            if before and not any(_has_written(other, path) for other in before):
                operations.append(f"[{added}]")
                written.append({"path": path, "value": {}})
            if before:
                continue
            condition = f"{there} || {unneeded}" if unneeded and not of_element else there
            text = f"({condition} ? [] : [{added}])"
            (parents if of_element else shared)[text] = None
        operations.append(operation)
        if each["op"] in ("add", "replace"):
            path = str(each["path"]).replace(_SPACED_INDEX, _INDEX)
            written.append({"path": path, "value": each.get("value")})
    return JsonPatch(tuple(shared), (*parents, *operations))


def _has_written(operation: Mapping[str, Any], path: str) -> bool:
    """Tell whether an operation before writes what is at a path, as a whole or within a value."""
    value = operation["value"]
    if isinstance(value, str) and "{{" in value:
        return True
    for step in path[len(str(operation["path"])) :].split("/")[1:]:
        if not isinstance(value, Mapping) or step not in value:
            return False
        value = value[step]
    return True


def for_each(listed: str, names: Sequence[str], chosen: str, operations: Sequence[str]) -> str:
    """Return the operations for each element of a list.

    Args:
        listed: The list.
        names: The variables of its index and its element, or of its element alone.
        chosen: The condition of elements that count; empty for all.
        operations: Lists of operations for an element, in CEL.
    """
    several = len(operations) > 1 or not operations[0].startswith("[JSONPatch")
    text = " + ".join(operations) if several else operations[0][1:-1]
    if len(names) == 1:
        kept = f".filter({names[0]}, {chosen})" if chosen else ""
        made = f"{listed}{kept}.map({names[0]}, {text})"
    else:
        condition = f"{chosen}, " if chosen else ""
        made = f"{listed}.transformList({', '.join(names)}, {condition}{text})"
    return f"{made}.flatten()" if several else made


def read_patch(given: Json) -> list[Json]:
    """Return the operations of a JSON patch, which is a text."""
    if not isinstance(given, str):
        raise Untranslatable("`patchesJson6902` is not a text of YAML")
    if len(given) > _LONGEST:
        raise Untranslatable("`patchesJson6902` is too long")
    try:
        read = plain_yaml(given)
    except yaml.YAMLError:
        read = _read_without_quotes(given)
    if not isinstance(read, list) or not read:
        raise Untranslatable("`patchesJson6902` is not a list of operations")
    return read


def _read_without_quotes(given: str) -> Json:
    """Return the operations of a patch in which variables have no quotes."""
    try:
        return plain_yaml(_UNQUOTED.sub(_quoted, given))
    except yaml.YAMLError as error:
        raise Untranslatable("`patchesJson6902` is not YAML") from error


def _quoted(found: re.Match[str]) -> str:
    """Return a value with quotes, which Kyverno puts in before it reads the patch."""
    shown = found["value"].replace("'", "''")
    return f"{found['field']}'{shown}'"


class _Parent(NamedTuple):
    """What is missing on the way of a path: when it is there, what adds it, and for what."""

    there: str
    added: str
    of_element: bool
    path: str


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
        parts.append(f"value: {json_value(given['value'], scope)}")
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
            added = f"JSONPatch{{op: 'add', path: {joined_text(path)}, value: {empty}}}"
            way = steps[: index + 1]
            parents.append(_Parent(following.present(), added, _INDEX in way, "/".join(["", *way])))
        value = following
    return parents, joined_text(path)


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


def joined_text(pieces: Sequence[str]) -> str:
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


def json_value(given: Json, scope: ExpressionScope) -> str:
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
                shown = json_value(part, scope)
                entries.append(
                    f"{text_literal(key)}: {f'dyn({shown})' if len(given) > 1 else shown}"
                )
        return f"{{{', '.join(entries)}}}"
    if isinstance(given, list):
        return f"[{', '.join(json_value(part, scope) for part in given)}]"
    value = as_json_value(scope.value(given))
    return value.otherwise("''") if value.needs else value.text

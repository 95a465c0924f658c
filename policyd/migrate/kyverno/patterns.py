"""Write the patterns of `validate` as conditions in CEL, with all anchors.

A pattern gives one of three answers: it holds, it does not, or it does not apply, which the
anchors `( )` and `<( )` say. Kyverno looks at the fields of a map one after the other, those with
anchors first, and the first that does not hold or apply decides. A pattern is therefore a list of
steps; of elements of a list that do not apply, the list says nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policyd.api.meta import Json
from policyd.cel.syntax.literals import text_literal
from policyd.migrate.cel_values import (
    CelTerm,
    Untranslatable,
    all_of,
    has_wildcards,
    member,
    outline,
    wildcard,
)
from policyd.migrate.kyverno.leaves import matches, plain_alternatives
from policyd.migrate.kyverno.scopes import ExpressionScope, known

ANCHOR: Final = re.compile(r"(?P<kind>[+<=X^]?)\((?P<key>.+)\)")

_DEEPEST: Final = 60


@dataclass(frozen=True)
class Step:
    """A part of a pattern: conditions in CEL, empty if they are always true.

    Attributes:
        applies: Whether the pattern applies.
        holds: Whether this part of it holds.
        implied: Whether `holds` is true where the pattern does not apply.
    """

    applies: str = ""
    holds: str = ""
    implied: bool = False


def verdict(steps: Iterable[Step]) -> str:
    """Return the condition that a pattern holds or does not apply; empty if it always does."""
    text = ""
    for step in reversed(list(steps)):
        last = not text
        held = _both(step.holds, text)
        if not step.applies or (last and step.implied):
            text = held
        elif held:
            text = f"{negated(step.applies)} || {_tight(held)}"
    return text


def passes(steps: Iterable[Step]) -> str:
    """Return the condition that a pattern applies and holds; empty if it always does."""
    parts = [part for step in steps for part in (step.applies, step.holds)]
    return _conjunction(dict.fromkeys(filter(None, parts)))


def applies(steps: Iterable[Step]) -> str:
    """Return the condition that a pattern applies, or fails before that is seen."""
    text = ""
    for step in reversed(list(steps)):
        if step.holds and text:
            text = f"{negated(step.holds)} || {_tight(text)}"
        text = _both(step.applies, text)
    return text


def _both(first: str, second: str) -> str:
    return _conjunction(filter(None, (first, second)))


def _conjunction(parts: Iterable[str]) -> str:
    return all_of(parts) if (parts := list(parts)) else ""


def _tight(text: str) -> str:
    return f"({text})" if re.search(r"\|\|| \? ", outline(text)) else text


_COMPARISON: Final = re.compile(r" (==|!=|<=|>=|<|>) ")
_LOGICAL: Final = re.compile(r"&&|\|\|| \? ")
_LOOSE: Final = re.compile(r"&&|\|\|| ")
_OPPOSITE: Final = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def negated(text: str) -> str:
    """Return the condition that another is false."""
    shown = outline(text)
    if shown == "!()" or (shown.startswith("!") and not _LOOSE.search(shown)):
        return text[2:-1] if shown == "!()" else text[1:]
    if not _LOOSE.search(shown):
        return f"!{text}"
    compared = _COMPARISON.findall(shown)
    if len(compared) == 1 and not _LOGICAL.search(shown):
        (operator,) = compared
        for found in re.finditer(f" {operator} ", text):
            before, after = text[: found.start()], text[found.end() :]
            if outline(before) + found[0] + outline(after) == shown:
                return f"{before} {_OPPOSITE[operator]} {after}"
    return f"!({text})"


def pattern_steps(value: CelTerm, pattern: Json, scope: ExpressionScope) -> list[Step]:
    """Return the steps of a pattern for a value.

    Raises:
        Untranslatable: If the pattern has no counterpart in CEL.
    """
    if len(scope.taken) > _DEEPEST or value.text.count(".") > _DEEPEST * 2:
        raise Untranslatable("the pattern is nested too deeply")
    if value is scope.subject and not isinstance(pattern, Mapping):
        raise Untranslatable("the pattern is not a map")
    if isinstance(pattern, Mapping):
        return _map_steps(value, pattern, scope)
    if isinstance(pattern, list):
        return _list_steps(value, pattern, scope)
    return [Step(holds=_leaf(value, pattern, scope))]


def _leaf(value: CelTerm, pattern: Json, scope: ExpressionScope) -> str:
    if not isinstance(pattern, str) or "{{" not in pattern:
        return matches(value, pattern)
    operator = next((o for o in (">=", "<=", ">", "<", "!") if pattern.startswith(o)), "")
    wanted = scope.value(pattern[len(operator) :].strip())
    if "|" in pattern.split("{{")[0] or "|" in pattern.rpartition("}}")[2]:
        raise Untranslatable(f"the pattern `{pattern}` has alternatives with variables")
    compared = {"": "==", "!": "!="}.get(operator, operator)
    shown = wanted.otherwise("''") if wanted.kind == "string" else wanted.text
    if compared in ("==", "!="):
        condition = f"{known(value).text} {compared} {shown}"
    else:
        condition = (
            f"quantity(string({known(value).text})).compareTo(quantity(string({shown})))"
            f" {compared} 0"
        )
    return all_of([*filter(None, [value.present()]), condition])


def _map_steps(value: CelTerm, pattern: Mapping[str, Json], scope: ExpressionScope) -> list[Step]:
    if value.needs and any(ANCHOR.fullmatch(key) for key in pattern):
        return [*_guarded(value, pattern, scope)]
    anchors = {key: part for key, part in pattern.items() if ANCHOR.fullmatch(key)}
    plain = {key: part for key, part in pattern.items() if key not in anchors}
    if not pattern and value.needs:
        return [Step(holds=value.present())]
    steps = [step for key, part in anchors.items() for step in _anchored(value, key, part, scope)]
    for key in _in_order(plain):
        steps += _field_steps(value, key, plain[key], scope)
    return [step for step in steps if step != Step()]


def _guarded(value: CelTerm, pattern: Json, scope: ExpressionScope) -> Iterator[Step]:
    """Yield the steps for a value that must be there."""
    yield Step(holds=value.present())
    yield from pattern_steps(known(value), pattern, scope)


def _in_order(pattern: Mapping[str, Json]) -> list[str]:
    """Return the keys as Kyverno looks at them: those with anchors in them first, backwards."""
    names = sorted(pattern)
    first = [name for name in names if _has_anchors(pattern[name])]
    return [*reversed(first), *(name for name in pattern if name not in first)]


def _has_anchors(pattern: Json) -> bool:
    if isinstance(pattern, Mapping):
        return any(ANCHOR.fullmatch(key) or _has_anchors(part) for key, part in pattern.items())
    return isinstance(pattern, list) and any(map(_has_anchors, pattern))


def _field_steps(value: CelTerm, key: str, pattern: Json, scope: ExpressionScope) -> list[Step]:
    if _is_entry_pattern(value, key):
        return [Step(holds=_any_key(value, key, pattern))]
    found = member(value, key)
    if pattern == "*":
        return [Step(holds=found.present())]
    return pattern_steps(found, pattern, scope)


def _is_entry_pattern(value: CelTerm, key: str) -> bool:
    """Tell whether a key with wildcards is one of labels or annotations, which Kyverno expands."""
    return has_wildcards(key) and value.text.rpartition(".")[2] in ("labels", "annotations")


def _anchored_keys(value: CelTerm, kind: str, key: str, pattern: Json) -> list[Step]:
    """Return the steps for all keys that are like one with wildcards."""
    named = wildcard("key", key)
    inside = matches(CelTerm(text=f"{value.tight}[key]", kind="string"), pattern)
    if kind == "X":
        return [Step(holds=f"!{value.tight}.exists(key, {named})")]
    if kind == "=":
        return [Step(holds=f"{value.tight}.all(key, {negated(named)} || {grouped(inside)})")]
    if kind in ("", "<"):
        return [Step(applies=f"{value.tight}.exists(key, {all_of([named, inside])})")]
    raise Untranslatable(f"the anchor `{kind}( )` has no meaning for a key with wildcards")


def _any_key(value: CelTerm, key: str, pattern: Json) -> str:
    named = wildcard("key", key)
    if pattern == "*":
        return f"{value.otherwise('{}')}.exists(key, {named})"
    base = known(value)
    entry = CelTerm(text=f"{base.text}[key]", kind="string")
    condition = f"{base.text}.exists(key, {all_of([named, matches(entry, pattern)])})"
    return all_of([*filter(None, [value.present()]), condition])


def _anchored(value: CelTerm, key: str, pattern: Json, scope: ExpressionScope) -> list[Step]:
    anchor = ANCHOR.fullmatch(key)
    assert anchor is not None, "the caller has matched it"
    if _is_entry_pattern(value, anchor["key"]):
        return _anchored_keys(value, anchor["kind"], anchor["key"], pattern)
    found = member(value, anchor["key"])
    there, inside = found.present(), known(found)
    match anchor["kind"]:
        case "X":
            step = Step(holds=negated(there) if there else "false")
        case "" | "<" if pattern == "*":
            step = Step(applies=there if anchor["kind"] == "" else "")
        case "":
            step = Step(applies=_conditional(found, pattern, scope))
        case "<":
            whole = passes(pattern_steps(inside, pattern, scope))
            step = Step(applies=_unless_absent(found, whole))
        case "^":
            step = Step(holds=_unless_absent(found, _existence(inside, pattern, scope)))
        case "=":
            return [] if pattern == "*" else [*_if_there(found, inside, pattern, scope)]
        case _:
            raise Untranslatable(f"the anchor `{key}` adds a field, which is for `mutate`")
    return [step]


def _conditional(found: CelTerm, pattern: Json, scope: ExpressionScope) -> str:
    """Return the condition that a field is there and is as an anchor `( )` asks."""
    computed = isinstance(pattern, str) and "{{" in pattern
    if found.itself and not isinstance(pattern, dict | list) and not computed:
        return matches(found, pattern)
    whole = passes(pattern_steps(known(found), pattern, scope))
    return _conjunction(filter(None, (found.present(), whole)))


def _unless_absent(found: CelTerm, condition: str) -> str:
    if not condition or not found.needs:
        return condition
    alternatives = "&&" not in outline(condition) and " ? " not in outline(condition)
    return f"{negated(found.present())} || {condition if alternatives else grouped(condition)}"


def _chain(found: CelTerm, pattern: Json) -> str:
    """Return the condition of anchors `=( )` in each other, by a default that the last permits.

    Empty if the pattern is more than that.
    """
    while isinstance(pattern, Mapping) and len(pattern) == 1:
        ((key, pattern),) = pattern.items()
        anchor = ANCHOR.fullmatch(key)
        if anchor is None or anchor["kind"] != "=" or has_wildcards(anchor["key"]):
            return ""
        found = member(found, anchor["key"])
    if not found.itself or found.kind not in ("string", "bool"):
        return ""
    if isinstance(pattern, bool) and found.kind == "bool":
        text = found.otherwise(str(pattern).lower())
        return text if pattern else f"!{text}"
    permitted = plain_alternatives(pattern) if isinstance(pattern, str) else []
    if not permitted or found.kind != "string":
        return ""
    text = found.otherwise(text_literal(permitted[0]))
    if len(permitted) == 1:
        return f"{text} == {text_literal(permitted[0])}"
    return f"{text} in [{', '.join(map(text_literal, permitted))}]"


def grouped(text: str) -> str:
    """Return a condition in parentheses, if it is made of several."""
    return f"({text})" if _LOGICAL.search(outline(text)) else text


def any_of(ways: Iterable[str]) -> str:
    """Return the condition that one of several conditions holds."""
    found = list(dict.fromkeys(ways))
    return found[0] if len(found) == 1 else " || ".join(map(grouped, found))


def _if_there(
    found: CelTerm, inside: CelTerm, pattern: Json, scope: ExpressionScope
) -> Iterator[Step]:
    """Yield the steps for a value that may be absent."""
    chain = _chain(found, pattern)
    if chain:
        yield Step(holds=chain)
        return
    steps = pattern_steps(inside, pattern, scope)
    if all(not step.applies for step in steps):
        yield Step(holds=_unless_absent(found, _conjunction(s.holds for s in steps if s.holds)))
        return
    for step in steps:
        yield Step(
            applies=_unless_absent(found, step.applies),
            holds=_unless_absent(found, step.holds),
            implied=step.implied,
        )


def _existence(value: CelTerm, pattern: Json, scope: ExpressionScope) -> str:
    if not isinstance(pattern, list) or not all(isinstance(each, Mapping) for each in pattern):
        raise Untranslatable("the anchor `^( )` needs a list of maps")
    parts = []
    for wanted in pattern:
        inner, element, name = scope.deeper(value)
        condition = passes(pattern_steps(element, wanted, inner)) or "true"
        parts.append(f"{value.tight}.exists({name}, {condition})")
    return _conjunction(parts)


def _list_steps(value: CelTerm, pattern: list[Json], scope: ExpressionScope) -> list[Step]:
    if not pattern:
        return [Step(holds="false")]
    wanted = pattern[0]
    if isinstance(wanted, list):
        raise Untranslatable("a list directly in a list of a pattern")
    steps = [Step(holds=value.present())] if value.needs else []
    inside = known(value)
    inner, element, name = scope.deeper(inside)
    found = pattern_steps(element, wanted, inner)
    every = verdict(found)
    some = applies(found)
    skipped = f"{inside.tight}.size() == 0 || {inside.tight}.exists({name}, {some})"
    holds = f"{inside.tight}.all({name}, {every})" if every else ""
    return [*steps, Step(applies=skipped if some else "", holds=holds, implied=True)]


def any_pattern(value: CelTerm, patterns: list[Json], scope: ExpressionScope) -> str:
    """Return the condition that one of several patterns holds, or that none applies.

    Raises:
        Untranslatable: If a pattern has no counterpart in CEL.
    """
    found = [pattern_steps(value, pattern, scope) for pattern in patterns]
    ways = [passes(steps) or "true" for steps in found]
    conditions = [applies(steps) for steps in found]
    if found and all(conditions):
        ways.append(_conjunction(map(negated, conditions)))
    return any_of(ways) or "false"

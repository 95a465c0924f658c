"""Write the values of a Kyverno pattern as conditions in CEL: `>1`, `!*:latest`, `a | b`, `1-5`.

Kyverno compares quantities and durations as such, texts by wildcards. A value that is absent
equals 0 where a pattern is a quantity, and matches no other text, whether negated or not.
"""

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from policyd.api.meta import Json
from policyd.cel.syntax.literals import text_literal
from policyd.migrate.cel_values import CelTerm, element_of, has_wildcards, literal, wildcard

_RANGE: Final = re.compile(
    r"(?P<low>[-+]?\d+(?:\.\d+)?[A-Za-z]*)(?P<out>!)?-(?P<high>[-+]?\d+(?:\.\d+)?[A-Za-z]*)"
)
_QUANTITY: Final = re.compile(
    r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[KMGTPE]i|[numkMGTPE]|[eE][-+]?\d+)?"
)
_INTEGER: Final = re.compile(r"[-+]?\d{1,18}")
_DURATION: Final = re.compile(r"[-+]?(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+")
_OPERATORS: Final = (">=", "<=", ">", "<", "!")
_COMPARED: Final = {">": "isGreaterThan", "<": "isLessThan"}
_MOST_PARTS: Final = 1000


@dataclass(frozen=True)
class _Part:
    """One comparison of a pattern: an operator, empty for equality, and what is compared with."""

    operator: str
    operand: str


def is_quantity(text: str) -> bool:
    """Tell whether a text is a quantity of Kubernetes."""
    return _QUANTITY.fullmatch(text) is not None


def is_duration(text: str) -> bool:
    """Tell whether a text is a duration, such as `1h30m`."""
    return _DURATION.fullmatch(text) is not None


def plain_alternatives(pattern: str) -> list[str]:
    """Return the texts of a pattern that is one text, or several with `|`; none if it is more."""
    parts = [_part(each.strip(" ")) for each in pattern.split("|")]
    plain = all(_is_plain([part]) and "&" not in part.operand for part in parts)
    return [part.operand for part in parts] if plain and "{{" not in pattern else []


def matches(value: CelTerm, pattern: Json) -> str:
    """Return the condition that a value matches a scalar of a pattern.

    Args:
        value: The value; where it may be absent, the condition is false or true as in Kyverno.
        pattern: A text, a number, true, false or null.
    """
    if value.kind == "list":
        variable = value.name
        inner = matches(element_of(value, variable), pattern)
        every = f"{value.text}.all({variable}, {inner})"
        return f"{value.present()} && {every}" if value.needs else every
    if isinstance(pattern, bool):
        plain = value.otherwise("false" if pattern else "true") if value.itself else value.tight
        shown = plain if pattern else f"!{plain}"
        return (
            shown if value.kind == "bool" or value.itself else f"{plain} == {str(pattern).lower()}"
        )
    if pattern is None:
        return _nothing(value)
    if isinstance(pattern, int | float):
        return _number(value, pattern)
    return _text(value, pattern)


def _nothing(value: CelTerm) -> str:
    empty = {"string": "''", "number": "0", "bool": "false"}.get(value.kind)
    if empty is None:
        return f"!{_tight(value.present())}" if value.needs else f"{value.text} == null"
    return f"{value.otherwise(empty)} == {empty}"


def _number(value: CelTerm, pattern: float) -> str:
    shown = literal(str(pattern) if value.kind == "string" else pattern).text
    if not value.itself:
        return f"{value.text} == {shown}"
    other = "''" if value.kind == "string" else ("-1" if pattern == 0 else "0")
    return f"{value.otherwise(other)} == {shown}"


def _text(value: CelTerm, pattern: str) -> str:
    alternatives = [
        [_part(text.strip(" ")) for text in each.strip(" ").split("&")]
        for each in pattern.split("|")
    ][:_MOST_PARTS]
    plain = [parts[0].operand for parts in alternatives if _is_plain(parts)]
    if len(plain) == len(alternatives) > 1 and value.kind != "number":
        listed = ", ".join(map(text_literal, plain))
        given = _as_text(value, value.otherwise("''") if value.itself else value.tight)
        return (
            f"{given} in [{listed}]"
            if "" not in plain
            else _there(value, partial(_any, alternatives))
        )
    if len(alternatives) == 1 and len(alternatives[0]) == 1:
        return _single(value, alternatives[0][0])
    return _there(value, partial(_any, alternatives))


def _is_plain(parts: list[_Part]) -> bool:
    (part, *others) = parts
    return not others and not part.operator and not has_wildcards(part.operand)


def _part(text: str) -> _Part:
    operator = next((each for each in _OPERATORS if text.startswith(each)), "")
    if not operator and _RANGE.fullmatch(text):
        return _Part("-", text)
    return _Part(operator, text[len(operator) :].strip())


def _any(alternatives: list[list[_Part]], value: CelTerm) -> str:
    ways = [
        " && ".join(_compared(value, value.tight, part) for part in parts) for parts in alternatives
    ]
    if len(ways) == 1:
        return ways[0]
    return " || ".join(f"({way})" if " && " in way else way for way in ways)


def _there(value: CelTerm, condition: "partial[str]") -> str:
    """Return a condition on a value that must be there."""
    if not value.needs:
        return condition(value)
    known = condition(replace(value, needs=(), itself=False))
    return f"{value.present()} && {_tight(known)}"


def _tight(text: str) -> str:
    return f"({text})" if "||" in text or "&&" in text else text


def _single(value: CelTerm, part: _Part) -> str:
    if not value.itself:
        return _there(value, partial(_any, [[part]]))
    default = _default(value, part)
    if default is None:
        return _there(value, partial(_any, [[part]]))
    return _compared(value, value.otherwise(default), part)


def _default(value: CelTerm, part: _Part) -> str | None:
    """Return a value that stands for an absent one in a comparison, if one does."""
    numeric = part.operator in (">", "<", ">=", "<=", "-")
    if numeric:
        return "0" if value.kind == "number" else "'0'"
    if is_quantity(part.operand):
        return {"number": "0", "string": "'0'"}.get(value.kind)
    if value.kind in ("number", "bool") or part.operand == "":
        return None
    if part.operator == "!":
        return None if has_wildcards(part.operand) else text_literal(part.operand)
    return None if part.operand.strip("*") == "" else "''"


def _as_text(value: CelTerm, text: str) -> str:
    """Return the text of a value that may be a number, too."""
    return f"string({text})" if value.kind != "string" and ("dyn",) in value.shapes else text


def _compared(value: CelTerm, text: str, part: _Part) -> str:
    if part.operator == "-":
        return _in_range(value, text, part.operand)
    if part.operator in (">", "<", ">=", "<="):
        return _ordered(value, text, part)
    negative = part.operator == "!"
    if value.kind == "bool" and part.operand in ("true", "false"):
        return text if (part.operand == "true") != negative else f"!{text}"
    if value.kind == "number" and _INTEGER.fullmatch(part.operand):
        return f"{text} {'!=' if negative else '=='} {int(part.operand)}"
    return _equal(value, text, part.operand, negative=negative)


def _equal(value: CelTerm, text: str, operand: str, *, negative: bool) -> str:
    if ("dyn",) in value.shapes and is_quantity(operand) and not _INTEGER.fullmatch(operand):
        same = f"quantity(string({text})).compareTo(quantity({text_literal(operand)}))"
        return f"{same} {'!=' if negative else '=='} 0"
    scalar = value.kind in ("number", "bool") or operand in ("true", "false")
    given = f"string({text})" if scalar and value.kind != "string" else _as_text(value, text)
    if operand in ("*?", "?*"):
        return f"{given} {'==' if negative else '!='} ''"
    condition = wildcard(given, operand)
    if not negative:
        return condition
    if " == " in condition and not has_wildcards(operand):
        return f"{given} != {text_literal(operand)}"
    return "false" if condition == "true" else f"!{condition}"


def _in_range(value: CelTerm, text: str, operand: str) -> str:
    found = _RANGE.fullmatch(operand)
    assert found is not None, "the caller has matched it"
    low, high = (">=", "<=") if not found["out"] else ("<", ">")
    first = _ordered(value, text, _Part(low, found["low"]))
    second = _ordered(value, text, _Part(high, found["high"]))
    return f"({first} || {second})" if found["out"] else f"{first} && {second}"


def _ordered(value: CelTerm, text: str, part: _Part) -> str:
    operator, operand = part.operator, part.operand
    if value.kind == "number" and _INTEGER.fullmatch(operand):
        return f"{text} {operator} {int(operand)}"
    given = text if value.kind == "string" else f"string({text})"
    if is_quantity(operand):
        amount = f"quantity({text_literal(operand)})"
        asked = f"quantity({given})"
        if operator in _COMPARED:
            compared = f"{asked}.{_COMPARED[operator]}({amount})"
        else:
            compared = f"{asked}.compareTo({amount}) {operator} 0"
        return f"isQuantity({given}) && {compared}"
    if is_duration(operand):
        shape = "'^([0-9.]+(ns|us|ms|s|m|h))+$'"
        limit = f"duration({text_literal(operand)})"
        return f"{given}.matches({shape}) && duration({given}) {operator} {limit}"
    return "false"

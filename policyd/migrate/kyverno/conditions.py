"""Write the conditions of `preconditions` and `deny` in CEL: a key, an operator and a value.

A key or value that is absent is null for Kyverno: an `In` is then false, and a `NotEquals` true.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from policyd.api.meta import Json
from policyd.cel.syntax.literals import text_literal
from policyd.migrate.cel_values import (
    CelTerm,
    Untranslatable,
    all_of,
    has_wildcards,
    literal,
    wildcard,
)
from policyd.migrate.kyverno.leaves import is_duration, is_quantity
from policyd.migrate.kyverno.patterns import grouped, negated
from policyd.migrate.kyverno.scopes import ExpressionScope

_SETS: Final = {
    "in": "AllIn",
    "anyin": "AnyIn",
    "allin": "AllIn",
    "notin": "AllNotIn",
    "anynotin": "AnyNotIn",
    "allnotin": "AllNotIn",
}
_ORDERS: Final = {
    "greaterthan": ">",
    "greaterthanorequals": ">=",
    "lessthan": "<",
    "lessthanorequals": "<=",
}
_EQUALITY: Final = {"equal": "==", "equals": "==", "notequal": "!=", "notequals": "!="}
_MOST: Final = 1000


@dataclass(frozen=True)
class KeyCondition:
    """One condition: its two sides and its operator, in lower case."""

    key: Json
    operator: str
    value: Json


def conditions_in(block: Json) -> tuple[list[KeyCondition], list[KeyCondition]]:
    """Return the conditions of which any must hold, and those that all must.

    Raises:
        Untranslatable: If the block is not one of conditions.
    """
    if block is None:
        return [], []
    if isinstance(block, Mapping):
        return _listed(block.get("any")), _listed(block.get("all"))
    if isinstance(block, list) and any(
        isinstance(each, Mapping) and "key" not in each for each in block
    ):
        if len(block) == 1:
            return conditions_in(block[0])
        raise Untranslatable("several blocks of `any` and `all` in one list")
    return [], _listed(block)


def _listed(given: Json) -> list[KeyCondition]:
    if given is None:
        return []
    if not isinstance(given, list) or len(given) > _MOST:
        raise Untranslatable("the conditions are not a list")
    return [_read(each) for each in given]


def _read(given: Json) -> KeyCondition:
    if not isinstance(given, Mapping) or "key" not in given or "operator" not in given:
        raise Untranslatable("a condition needs `key`, `operator` and `value`")
    return KeyCondition(given["key"], str(given["operator"]).lower(), given.get("value"))


def block_condition(block: Json, scope: ExpressionScope) -> str:
    """Return the condition of a block; empty if there is none.

    Raises:
        Untranslatable: If a part has no counterpart in CEL.
    """
    some, every = conditions_in(block)
    ways = [condition_text(each, scope) for each in some]
    parts = [condition_text(each, scope) for each in every]
    either = " || ".join(map(grouped, ways) if len(ways) > 1 else ways)
    return all_of(filter(None, [*parts, either])) if parts or ways else ""


def refusal(block: Json, scope: ExpressionScope) -> str:
    """Return the condition that is true where a block of `deny` does not refuse.

    Raises:
        Untranslatable: If a part has no counterpart in CEL.
    """
    some, every = conditions_in(block)
    if not some and not every:
        return "false"
    allowed = [_opposite(each, scope) for each in every]
    if some:
        nothing = all_of(_opposite(each, scope) for each in some)
        allowed.append(nothing)
    return " || ".join(map(grouped, allowed) if len(allowed) > 1 else allowed)


def _opposite(condition: KeyCondition, scope: ExpressionScope) -> str:
    opposite = _OPPOSITES.get(condition.operator)
    if opposite is not None:
        return condition_text(KeyCondition(condition.key, opposite, condition.value), scope)
    return negated(condition_text(condition, scope))


_OPPOSITES: Final = {
    "equals": "notequals",
    "equal": "notequals",
    "notequals": "equals",
    "notequal": "equals",
}


def condition_text(condition: KeyCondition, scope: ExpressionScope) -> str:
    """Return one condition in CEL.

    Raises:
        Untranslatable: If it has no counterpart.
    """
    key, value = scope.value(condition.key), scope.value(condition.value)
    operator = condition.operator
    if operator in _EQUALITY:
        return _equality(key, value, _EQUALITY[operator])
    if operator in _SETS:
        return _membership(key, value, _SETS[operator])
    if operator.startswith("duration") and operator[8:] in _ORDERS:
        return _durations(key, value, _ORDERS[operator[8:]])
    if operator in _ORDERS:
        return _order(key, value, _ORDERS[operator])
    raise Untranslatable(f"Kyverno has no operator `{condition.operator}`")


# Equality.


def _equality(key: CelTerm, value: CelTerm, operator: str) -> str:
    if value.is_literal and isinstance(value.literal, bool):
        return _truth(key, wanted=value.literal == (operator == "=="))
    if key.is_literal and isinstance(key.literal, bool):
        return _truth(value, wanted=key.literal == (operator == "=="))
    if value.is_literal and isinstance(value.literal, str) and has_wildcards(value.literal):
        default = "''" if key.itself else None
        text = key.otherwise(default) if default else key.tight
        found = wildcard(text, value.literal)
        return found if operator == "==" else negated(found)
    if _is_from_outside(value) and not key.is_literal:
        given, text = value.otherwise(repr("")), key.otherwise(repr(""))
        found = f"{text}.matches('^' + {given}.replace('.', '[.]').replace('*', '.*') + '$')"
        return found if operator == "==" else f"!{found}"
    return _same(key, _as_number(value, key), operator)


def _truth(key: CelTerm, *, wanted: bool) -> str:
    if key.kind != "bool":
        text = key.otherwise("false") if key.itself else key.tight
        return f"{text} == true" if wanted else f"{text} != true"
    text = key.truth() if key.needs else key.text
    return text if wanted else negated(text)


def _as_number(value: CelTerm, other: CelTerm) -> CelTerm:
    """Return a text as the number that it is, where it is compared with one."""
    if other.kind != "number" or not value.is_literal or not isinstance(value.literal, str):
        return value
    try:
        return literal(int(value.literal))
    except ValueError:
        return value


def _same(key: CelTerm, value: CelTerm, operator: str) -> str:
    default = {"string": "''", "number": "0", "list": "[]", "map": "{}", "bool": "false"}
    left, right = key.text, value.text
    if key.needs:
        left = _defaulted(key, value, default)
    if value.needs:
        right = _defaulted(value, key, default)
    if "double(" in left or "asApproximateFloat" in left:
        right = f"{right}.0" if right.isdigit() else right
    if key.kind != value.kind and "dyn" not in (key.kind, value.kind):
        left = f"dyn({left})"
    return f"{left} {operator} {right}"


def _defaulted(value: CelTerm, other: CelTerm, default: Mapping[str, str]) -> str:
    kind = value.kind if value.kind != "dyn" else other.kind
    empty = default.get(kind, "''")
    if other.is_literal and other.text == empty and kind == "number":
        empty = "-1"
    return value.otherwise(empty)


# Sets.


def _membership(key: CelTerm, value: CelTerm, operator: str) -> str:
    some, negative = operator.startswith("Any"), operator.endswith("NotIn")
    if key.is_literal and isinstance(key.literal, list):
        return _literals_membership(key.literal, value, some=some, negative=negative)
    if key.kind == "list":
        return _set_membership(key, value, some=some, negative=negative)
    text = _one(key)
    found = _within(text, key, value)
    if key.needs and not key.itself:
        found = all_of([key.present(), found])
    return negated(found) if negative else found


def _literals_membership(keys: list[Json], value: CelTerm, *, some: bool, negative: bool) -> str:
    ways = []
    for each in keys:
        key = literal(each)
        found = _within(_one(key), key, value)
        ways.append(negated(found) if negative else found)
    return " || ".join(ways) if some and len(ways) > 1 else all_of(ways)


def _one(key: CelTerm) -> str:
    if key.is_literal:
        return text_literal(_shown(key.literal))
    return key.otherwise("''") if key.itself and key.kind in ("string", "dyn") else _stringed(key)


def _stringed(key: CelTerm) -> str:
    return key.text if key.kind in ("string", "dyn") else f"string({key.otherwise('0')})"


def _shown(given: Json) -> str:
    return str(given).lower() if isinstance(given, bool) else str(given)


def _set_membership(key: CelTerm, value: CelTerm, *, some: bool, negative: bool) -> str:
    name = key.name if key.name not in ("e", "") else "e"
    element = CelTerm(text=name, kind=key.element if key.element != "dyn" else "string")
    text = name if key.element in ("string", "dyn") else f"string({name})"
    inside = _within(text, element, value)
    if any(f".?{field}.orValue" in key.listed() for field in _WILD) and inside != "false":
        inside = f"{name} == '*' || {inside}"
    condition = negated(inside) if negative else inside
    return f"{key.keys_of or key.listed()}.{'exists' if some else 'all'}({name}, {condition})"


def _within(text: str, key: CelTerm, value: CelTerm) -> str:
    """Return the condition that a text is in a list, by wildcards on either side."""
    if value.parts:
        given = [_shown(part.literal) for part in value.parts if part.is_literal]
        ways = [_within_literals(text, given)] if given else []
        ways += [_within(text, key, part) for part in value.parts if not part.is_literal]
        return " || ".join(map(grouped, ways) if len(ways) > 1 else ways)
    if value.is_literal:
        given = value.literal if isinstance(value.literal, list) else [value.literal]
        return _within_literals(text, [_shown(each) for each in given])
    if value.kind == "map":
        raise Untranslatable("the value of `In` is a map")
    pattern = key.literal if key.is_literal and isinstance(key.literal, str) else ""
    if value.keys_of is not None and not has_wildcards(pattern):
        return f"{text} in {value.keys_of}"
    if value.kind in ("list", "dyn"):
        listed = value.listed() if value.kind == "list" else value.otherwise("[]")
        return _within_list(text, key, value, (listed, pattern))
    shown = value.otherwise("''")
    if _is_from_outside(value):
        return f"{text} in ({shown}.startsWith('[') ? json.unmarshal({shown}) : [{shown}])"
    return f"{text} == {shown}"


def _within_list(text: str, key: CelTerm, value: CelTerm, parts: tuple[str, str]) -> str:
    listed, pattern = parts
    if has_wildcards(pattern):
        return f"{listed}.exists({value.name}, {wildcard(value.name, pattern)})"
    if value.kind == "list" and "'*'" in listed:
        return f"{listed}.exists(p, {text}.matches('^' + p.replace('*', '.*') + '$'))"
    if value.kind == "dyn" or value.element in ("string", "dyn"):
        return f"{text} in {listed}"
    if key.is_literal and key.kind == value.element:
        return f"{key.text} in {listed}"
    return f"{listed}.exists({value.name}, string({value.name}) == {text})"


def _is_from_outside(value: CelTerm) -> bool:
    """Tell whether a text is of a ConfigMap or an object: it may be a pattern, or a list."""
    return value.kind == "string" and value.text.startswith("variables.")


_WILD: Final = ("apiGroups", "resources", "verbs", "resourceNames", "nonResourceURLs", "hosts")
"""Fields whose values have wildcards themselves: `*` is like everything."""


def _within_literals(text: str, given: list[str]) -> str:
    plain = [each for each in given if not has_wildcards(each)]
    ways = []
    if len(plain) == 1:
        ways.append(f"{text} == {text_literal(plain[0])}")
    elif plain:
        ways.append(f"{text} in [{', '.join(map(text_literal, plain))}]")
    ways += [wildcard(text, each) for each in given if has_wildcards(each)]
    return " || ".join(ways) or "false"


# Order.


def _order(key: CelTerm, value: CelTerm, operator: str) -> str:
    for each in (key, value):
        if each.kind == "duration":
            return _durations(key, value, operator)
        if each.is_literal and isinstance(each.literal, str) and _only_duration(each.literal):
            return _durations(key, value, operator)
    key, value = _known_number(key), _known_number(value)
    left, right = _amount(key, value), _amount(value, key)
    sides = ((key, left), (value, right))
    if any(_is_quantity_text(text) for side, text in sides if side.kind != "number"):
        known = [f"isQuantity({_text_of(each)})" for each in (key, value) if _may_be_empty(each)]
        left, right = _quantity(key, left), _quantity(value, right)
        return all_of([*known, f"{left}.compareTo({right}) {operator} 0"])
    if "." in right and _is_float(right):
        left = left if key.kind != "number" or _is_float(left) else f"double({left})"
    return f"{left} {operator} {right}"


def _may_be_empty(value: CelTerm) -> bool:
    """Tell whether a value may be an empty text, which is neither more nor less than a number."""
    return not value.is_literal and value.text.endswith((".orValue('')", ".orValue(dyn(''))"))


def _is_quantity_text(text: str) -> bool:
    return text.startswith("quantity(") and not text.endswith(".asApproximateFloat()")


def _known_number(value: CelTerm) -> CelTerm:
    """Return a value whose text computes a number as one."""
    computes = ".asApproximateFloat()" in value.text or value.text.startswith("double(")
    return replace(value, kind="number") if computes else value


def _only_duration(text: str) -> bool:
    return is_duration(text) and not is_quantity(text)


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "." in text


def _amount(value: CelTerm, other: CelTerm) -> str:
    """Return one side of a comparison: a number, or a quantity."""
    if value.is_literal:
        return _literal_amount(value, other)
    if value.kind == "number":
        return value.otherwise("0") if value.needs else value.text
    compared = other.is_literal and isinstance(other.literal, int | float)
    if value.kind == "dyn" and compared and ("dyn",) not in value.shapes:
        return value.otherwise("0") if value.itself else value.text
    return f"quantity({_text_of(value)})"


def _text_of(value: CelTerm) -> str:
    text = value.otherwise("'0'") if value.needs else value.text
    sure = value.kind == "string" and ("dyn",) not in value.shapes
    return text if sure else f"string({text})"


def _literal_amount(value: CelTerm, other: CelTerm) -> str:
    given = value.literal
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise Untranslatable(f"`{given}` is compared by its size, and is not a number")
    if not isinstance(given, str):
        return value.text
    try:
        return literal(int(given)).text if other.kind in ("number", "dyn") else _quoted(given)
    except ValueError:
        return _quoted(given)


def _quoted(given: str) -> str:
    if not is_quantity(given):
        raise Untranslatable(f"`{given}` is compared by its size, and is not a number")
    return f"quantity({text_literal(given)})"


def _quantity(value: CelTerm, text: str) -> str:
    if _is_quantity_text(text) and value.kind != "number":
        return text
    return (
        f"quantity({text_literal(str(value.literal))})"
        if value.is_literal
        else f"quantity(string({text}))"
    )


def _durations(key: CelTerm, value: CelTerm, operator: str) -> str:
    return f"{_duration(key)} {operator} {_duration(value)}"


def _duration(value: CelTerm) -> str:
    if value.is_literal:
        given = value.literal
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise Untranslatable(f"`{given}` is not a duration")
        shown = given if isinstance(given, str) and is_duration(given) else f"{given}s"
        return f"duration({text_literal(shown)})"
    if value.kind == "duration":
        return value.text
    return f"duration({value.otherwise(repr('0s'))})"

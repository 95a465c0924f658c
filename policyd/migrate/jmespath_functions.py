"""The functions of JMESPath, and those that Kyverno adds to it, in CEL."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from policyd.cel.syntax.literals import text_literal
from policyd.migrate.cel_values import (
    EMPTY,
    CelTerm,
    Untranslatable,
    condition,
    literal,
    value_of_optional,
    wildcard,
)

CONCATENATION: Final = "text_with_variables"
"""The function that a literal with variables in it is read as."""


def keys_text(text: str) -> str:
    """Return the CEL text of the keys of a map."""
    return f"{text}.map(k, k)"


def _given(value: CelTerm, kind: str) -> CelTerm:
    """Return an argument that a function needs of a kind, with what it needs to be present."""
    return value if value.kind != "dyn" else replace(value, kind=kind)


def _concatenated(*parts: CelTerm) -> CelTerm:
    if len(parts) == 1 and parts[0].kind == "string" and ("dyn",) not in parts[0].shapes:
        return parts[0]
    texts = (part.tight for part in map(_as_text, parts))
    return replace(called(" + ".join(texts), "string", *parts), loose=True)


def called(text: str, kind: str, *arguments: CelTerm, element: str = "dyn") -> CelTerm:
    """Return what a function gives, which needs all that its arguments need.

    Args:
        text: The CEL text.
        kind: The kind of the result.
        arguments: The arguments.
        element: The kind of the elements of a list.
    """
    needs = tuple(dict.fromkeys(need for each in arguments for need in each.needs))
    return CelTerm(text=text, kind=kind, element=element, needs=needs)


def _contains(of: CelTerm, part: CelTerm) -> CelTerm:
    if of.keys_of is not None:
        return called(f"{part.text} in {of.keys_of}", "bool", part)
    if of.kind == "list":
        of_one_kind = "dyn" in (part.kind, of.element) or part.kind == of.element
        wanted = part.text if of_one_kind else f"dyn({part.text})"
        return replace(called(f"{wanted} in {of.listed()}", "bool", part), loose=True)
    if of.kind == "string":
        return called(f"{of.tight}.contains({part.text})", "bool", of, part)
    # Kubernetes names lists in the plural.
    asked = (
        f"type({of.text}) == list ? {part.text} in {of.tight} : {of.tight}.contains({part.text})"
    )
    return replace(called(asked, "bool", of, part), loose=True)


def _length(of: CelTerm) -> CelTerm:
    needs = () if of.kind == "list" or (of.itself and of.kind in EMPTY) else of.needs
    return CelTerm(text=of.size(), kind="number", needs=needs)


def _keys_of(of: CelTerm) -> CelTerm:
    source = of.otherwise("{}") if of.itself else of.tight
    return CelTerm(
        text=keys_text(source), kind="list", element="string", keys_of=source, name="key"
    )


def _values(of: CelTerm) -> CelTerm:
    source = of.otherwise("{}") if of.itself else of.tight
    return CelTerm(text=f"{source}.map(k, {source}[k])", kind="list", element=of.element)


def _items(of: CelTerm, key: CelTerm, value: CelTerm) -> CelTerm:
    source = of.otherwise("{}") if of.itself else of.tight
    text = f"{source}.map(k, {{{key.text}: dyn(k), {value.text}: dyn({source}[k])}})"
    return CelTerm(text=text, kind="list", element="map", name="item")


def _to_string(of: CelTerm) -> CelTerm:
    if of.kind == "string":
        return of
    if of.kind in ("list", "map"):
        raise Untranslatable("CEL for admission cannot write a list or an object as JSON")
    return called(f"string({of.text})", "string", of)


def _shown(of: CelTerm) -> CelTerm:
    """Return what `to_string` gives: a text for null, too."""
    made = _to_string(of)
    if not made.needs:
        return made
    if made is of:
        return CelTerm(text=of.otherwise("'null'"), kind="string", name=of.name)
    return CelTerm(text=f"{of.optional()}.optMap(v, string(v)).orValue('null')", kind="string")


def _as_text(of: CelTerm) -> CelTerm:
    """Return a value as a text: what is a text or a number by its type is no text yet."""
    either = of.kind == "string" and ("dyn",) in of.shapes
    return _to_string(replace(of, kind="dyn") if either else of)


def _to_number(of: CelTerm) -> CelTerm:
    if of.kind == "number":
        return of
    if of.is_literal:
        try:
            return replace(literal(float(str(of.literal))), text=repr(float(str(of.literal))))
        except ValueError:
            raise Untranslatable(f"{of.text} is not a number") from None
    return called(f"double({of.text})", "number", of)


def _to_array(of: CelTerm) -> CelTerm:
    if of.kind == "list":
        return of
    if of.kind == "dyn":
        text = f"type({of.text}) == list ? {of.text} : [{of.text}]"
        return replace(called(text, "list", of), loose=True, name=of.name)
    return called(f"[{of.text}]", "list", of, element=of.kind)


def _method(name: str, kind: str, of_kind: str = "string") -> Callable[..., CelTerm]:
    def make(of: CelTerm, *others: CelTerm) -> CelTerm:
        arguments = ", ".join(other.text for other in others)
        return called(f"{_given(of, of_kind).tight}.{name}({arguments})", kind, of, *others)

    return make


def _of_list(name: str, kind: str = "dyn") -> Callable[[CelTerm], CelTerm]:
    def make(of: CelTerm) -> CelTerm:
        return CelTerm(
            text=f"{of.listed()}.{name}()",
            kind=kind if kind != "dyn" else of.element,
            element=of.element,
            name=of.name,
        )

    return make


def _join(separator: CelTerm, of: CelTerm) -> CelTerm:
    return called(f"{of.listed()}.join({separator.text})", "string", separator)


def _split(of: CelTerm, separator: CelTerm) -> CelTerm:
    return called(f"{of.tight}.split({separator.text})", "list", of, separator, element="string")


def _regex_match(pattern: CelTerm, of: CelTerm) -> CelTerm:
    return called(f"{_to_text(of)}.matches({pattern.text})", "bool", of, pattern)


def _to_text(of: CelTerm) -> str:
    return f"string({of.text})" if of.kind == "number" else of.tight


def _replace_all(of: CelTerm, old: CelTerm, new: CelTerm) -> CelTerm:
    return called(f"{of.tight}.replace({old.text}, {new.text})", "string", of)


def _replace(of: CelTerm, old: CelTerm, new: CelTerm, count: CelTerm) -> CelTerm:
    return called(f"{of.tight}.replace({old.text}, {new.text}, {count.text})", "string", of)


def _trim(of: CelTerm, cut: CelTerm | None = None) -> CelTerm:
    if cut is None or (cut.is_literal and str(cut.literal).isspace()):
        return called(f"{of.tight}.trim()", "string", of)
    raise Untranslatable("trim() in CEL removes white space only")


def _trim_prefix(of: CelTerm, prefix: CelTerm) -> CelTerm:
    cut = f"{of.tight}.substring({prefix.tight}.size())"
    return replace(
        called(f"{of.tight}.startsWith({prefix.text}) ? {cut} : {of.text}", "string", of),
        loose=True,
    )


def _truncate(of: CelTerm, length: CelTerm) -> CelTerm:
    text = f"{of.tight}.substring(0, [{of.tight}.size(), {length.text}].min())"
    return called(text, "string", of)


def _equal_fold(one: CelTerm, other: CelTerm) -> CelTerm:
    text = f"{one.tight}.lowerAscii() == {other.tight}.lowerAscii()"
    return replace(called(text, "bool", one, other), loose=True)


def _amount(of: CelTerm) -> tuple[str, str]:
    """Return a number, quantity or duration, with which of them it is."""
    if of.kind == "number":
        return of.text if not of.loose else of.tight, "number"
    if of.is_literal and re.search(r"\d(?:ns|us|ms|s|h)$|\dm\d", str(of.literal)):
        return f"duration({of.text})", "duration"
    return f"quantity({_quantity_text(of)})", "quantity"


def _quantity_text(of: CelTerm) -> str:
    return of.text if of.kind == "string" else f"string({of.text})"


def _arithmetic(sign: str) -> Callable[[CelTerm, CelTerm], CelTerm]:
    def make(one: CelTerm, other: CelTerm) -> CelTerm:
        (left, kind), (right, other_kind) = _amount(one), _amount(other)
        if kind == other_kind == "number":
            if sign == "/":
                left = f"double({left})"
                right = f"double({right})"
            return replace(called(f"{left} {sign} {right}", "number", one, other), loose=True)
        if sign in ("+", "-") and kind == other_kind == "quantity":
            name = "add" if sign == "+" else "sub"
            return called(f"{left}.{name}({right})", "quantity", one, other)
        if "duration" in (kind, other_kind):
            if sign in ("+", "-") and kind == other_kind:
                return replace(called(f"{left} {sign} {right}", "duration", one, other), loose=True)
            raise Untranslatable("CEL has no product or quotient of durations")
        if sign == "%":
            raise Untranslatable("CEL has no remainder of quantities")
        numbers = [
            f"{text}.asApproximateFloat()" if asked == "quantity" else f"double({text})"
            for text, asked in ((left, kind), (right, other_kind))
        ]
        return replace(called(f" {sign} ".join(numbers), "number", one, other), loose=True)

    return make


def _label_match(wanted: CelTerm, labels: CelTerm) -> CelTerm:
    given, needed = (
        labels.otherwise("{}"),
        wanted.otherwise("{}") if wanted.itself else wanted.tight,
    )
    return condition(f"{needed}.all(k, k in {given} && {given}[k] == {needed}[k])")


def _not_null(*values: CelTerm) -> CelTerm:
    made = values[0]
    for other in values[1:]:
        made = value_of_optional(f"{made.optional()}.or({other.optional()})", kind=made.kind)
    return made


def _lookup(of: CelTerm, key: CelTerm) -> CelTerm:
    source = of.needs[0] if of.itself else of.tight
    return CelTerm(
        text=f"{of.tight}[{key.text}]",
        kind=of.element,
        needs=(f"{source}[?{key.text}]",),
        itself=True,
    )


def _pattern_match(pattern: CelTerm, of: CelTerm) -> CelTerm:
    if not pattern.is_literal:
        raise Untranslatable("pattern_match() has a pattern that is computed")
    return called(wildcard(_to_text(of), str(pattern.literal)), "bool", of)


_RANGE: Final = re.compile(
    r"\s*(>=|<=|>|<|=|==|!=|!)?\s*v?(\d+)(?:\.(\d+))?(?:\.(\d+))?([-+][\w.+-]+)?\s*"
)


_COMPARED: Final = {">": "> 0", ">=": ">= 0", "<": "< 0", "<=": "<= 0", "": "== 0", "=": "== 0"}


def _semver_compare(version: CelTerm, wanted: CelTerm) -> CelTerm:
    if not wanted.is_literal:
        raise Untranslatable("semver_compare() has a range that is computed")
    either = []
    for alternative in str(wanted.literal).split("||"):
        parts = []
        position = 0
        while position < len(alternative):
            match = _RANGE.match(alternative, position)
            if match is None or match.end() == position:
                raise Untranslatable(f"policyd does not translate the range {wanted.text}")
            position = match.end()
            numbers = ".".join(match[index] or "0" for index in (2, 3, 4)) + (match[5] or "")
            compared = {**_COMPARED, "==": "== 0", "!=": "!= 0", "!": "!= 0"}[match[1] or ""]
            parts.append(f"semver({version.text}).compareTo(semver('{numbers}')) {compared}")
        either.append(" && ".join(parts))
    text = " || ".join(f"({part})" if len(either) > 1 and "&&" in part else part for part in either)
    return replace(called(text, "bool", version), loose=True)


def _regex_replace_all(pattern: CelTerm, of: CelTerm, replacement: CelTerm) -> CelTerm:
    if pattern.is_literal and replacement.is_literal and replacement.literal == "":
        # What follows the first match is cut: the text before it is what is left.
        body = str(pattern.literal)
        if body.endswith(".*") and not re.search(r"[\\()\[\]{}|^$?+*]", body[:-2]):
            return called(f"{of.tight}.split({text_literal(body[:-2])})[0]", "string", of)
    raise Untranslatable("CEL for admission cannot replace what a regular expression matches")


def _type(of: CelTerm) -> CelTerm:
    if of.kind in EMPTY:
        asked = {"list": "array", "map": "object", "bool": "boolean"}.get(of.kind, of.kind)
        return literal(asked)
    raise Untranslatable("type() is of a value whose kind is not known")


def _abs(of: CelTerm) -> CelTerm:
    return replace(called(f"{of.tight} < 0 ? -{of.tight} : {of.text}", "number", of), loose=True)


def _compare(one: CelTerm, other: CelTerm) -> CelTerm:
    text = f"{one.tight} < {other.tight} ? -1 : ({one.tight} > {other.tight} ? 1 : 0)"
    return replace(called(text, "number", one, other), loose=True)


def _average(of: CelTerm) -> CelTerm:
    text = f"double({of.listed()}.sum()) / double({of.listed()}.size())"
    return replace(called(text, "number"), loose=True)


def _from_lists(keys: CelTerm, values: CelTerm) -> CelTerm:
    entry = f"{{string(k): dyn({values.listed()}[i])}}"
    return called(f"{keys.listed()}.transformMapEntry(i, k, {entry})", "map")


def _merge(*parts: CelTerm) -> CelTerm:
    """Return a map with the keys of all; those of a later one count.

    The keys of a map that the expression lists are in its `keys_of`.
    """
    made, *others = parts
    for other in others:
        one, two = made.tight, other.tight
        listed = other.keys_of or two
        keys = f"{one}.filter(k, !(k in {listed})) + {other.keys_of or keys_text(two)}"
        value = f"k in {listed} ? dyn({two}[k]) : dyn({one}[k])"
        text = f"({keys}).transformMapEntry(i, k, {{k: {value}}})"
        made = called(text, "map", made, other)
    return made


def _to_boolean(of: CelTerm) -> CelTerm:
    if of.kind == "bool":
        return of
    text = f"string({of.text}).lowerAscii() == 'true'"
    return replace(called(text, "bool", of), loose=True)


FUNCTIONS: Final[Mapping[str, Callable[..., CelTerm]]] = {
    CONCATENATION: _concatenated,
    "abs": _abs,
    "add": _arithmetic("+"),
    "avg": _average,
    "compare": _compare,
    "contains": _contains,
    "divide": _arithmetic("/"),
    "ends_with": _method("endsWith", "bool"),
    "equal_fold": _equal_fold,
    "items": _items,
    "join": _join,
    "keys": _keys_of,
    "label_match": _label_match,
    "length": _length,
    "lookup": _lookup,
    "max": _of_list("max"),
    "merge": _merge,
    "min": _of_list("min"),
    "modulo": _arithmetic("%"),
    "multiply": _arithmetic("*"),
    "not_null": _not_null,
    "object_from_lists": _from_lists,
    "pattern_match": _pattern_match,
    "regex_match": _regex_match,
    "regex_replace_all": _regex_replace_all,
    "regex_replace_all_literal": _regex_replace_all,
    "replace": _replace,
    "replace_all": _replace_all,
    "reverse": _of_list("reverse", "list"),
    "semver_compare": _semver_compare,
    "sort": _of_list("sort", "list"),
    "split": _split,
    "starts_with": _method("startsWith", "bool"),
    "subtract": _arithmetic("-"),
    "sum": _of_list("sum", "number"),
    "to_array": _to_array,
    "to_boolean": _to_boolean,
    "to_lower": _method("lowerAscii", "string"),
    "to_number": _to_number,
    "to_string": _shown,
    "to_upper": _method("upperAscii", "string"),
    "trim": _trim,
    "trim_prefix": _trim_prefix,
    "truncate": _truncate,
    "type": _type,
    "values": _values,
}
"""How each function is written in CEL, from the values of its arguments."""


KNOWN_TO_KYVERNO: Final = frozenset(
    [
        *("ceil", "floor", "image_normalize", "is_external_url", "path_canonicalize", "round"),
        *("time_cron", "zip"),
    ]
)
"""Functions that Kyverno has, and that have no counterpart."""

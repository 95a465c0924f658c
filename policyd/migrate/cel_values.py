"""Values in CEL: a text, what it needs to be there, and its kind.

A field of an object may be absent. The value of a path therefore has the optionals that it
needs, and where the value is used says what absence means: nothing in a list, a default, or a
condition that is false. Kinds of fields come from Kubernetes' own types, followed from field to
field; where nothing is known, from all types that have a field of the name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from policyd.api.data import tables
from policyd.api.kinds import FieldType, fields
from policyd.api.meta import Json
from policyd.cel.syntax.literals import json_literal, text_literal
from policyd.errors import PolicydError

IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EMPTY: Final = {"string": "''", "list": "[]", "map": "{}", "number": "0", "bool": "false"}
NO_LITERAL: Final = object()


Shape = tuple[Any, ...]
"""A type: a kind of scalar, a struct by its name, or a list or map with the shape in it."""


class Untranslatable(PolicydError):  # noqa: N818 - it says what the expression is
    """An expression has no counterpart in CEL.

    Attributes:
        reason: What has none, for the user.
        position: The character of the expression, from 0; 0 where it is not known.
    """

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


class OutsideError(Untranslatable):
    """A rule needs what only Kyverno's own kinds have: objects of the cluster, a clock."""


@dataclass(frozen=True, kw_only=True)
class CelTerm:
    """A part of an expression in CEL.

    Attributes:
        text: The CEL expression; it fails where one of `needs` has no value.
        kind: `string`, `number`, `bool`, `list`, `map`, `null`, `quantity`, `duration`,
            `timestamp` or `dyn`.
        element: The kind of a list's elements or of a map's values.
        needs: CEL optionals that must have values for `text` to have one.
        itself: Whether `text` is the value of the one optional in `needs`.
        loose: Whether `text` needs parentheses before a dot.
        keys_of: The text of the map whose keys this list is.
        literal: The decoded value of a literal.
        name: A name for an element of the list.
        made: Whether the elements were made by an expression, so that they may be lists.
        shapes: What the value may be in Kubernetes' own types; empty if nothing is known.
        condition: The condition that the value is true, where it is made of conditions.
        parts: The elements of a list that the policy writes out, with variables among them.
        template: Whether this is a pod that may be a template, which may have no metadata.
    """

    text: str
    kind: str = "dyn"
    element: str = "dyn"
    needs: tuple[str, ...] = ()
    itself: bool = False
    loose: bool = False
    keys_of: str | None = None
    literal: Any = NO_LITERAL
    name: str = "e"
    made: bool = False
    shapes: frozenset[Shape] = frozenset()
    condition: str | None = None
    parts: "tuple[CelTerm, ...]" = ()
    template: bool = False

    @property
    def tight(self) -> str:
        """The text as what stands before a dot."""
        return f"({self.text})" if self.loose else self.text

    @property
    def is_literal(self) -> bool:
        """Whether this is a literal."""
        return self.literal is not NO_LITERAL

    def present(self) -> str:
        """Return the CEL condition that the value is not null; empty if that is sure."""
        return " && ".join(has(need) for need in self.needs)

    def optional(self) -> str:
        """Return the CEL text of an optional that has no value for null."""
        if self.itself:
            return self.needs[0]
        if not self.needs:
            return f"optional.of({self.text})"
        return f"({self.present()} ? optional.of({self.text}) : optional.none())"

    def otherwise(self, default: str) -> str:
        """Return the CEL text of the value, or of a default where it is null."""
        if self.itself:
            return f"{self.needs[0]}.orValue({default})"
        if not self.needs:
            return self.text
        return f"({self.present()} ? {self.text} : {default})"

    def listed(self) -> str:
        """Return the text of a list, empty for null, as what stands before a dot."""
        if self.itself:
            return f"{self.needs[0]}.orValue([])"
        return self.tight

    def truth(self) -> str:
        """Return the CEL condition that JMESPath takes for true: neither empty nor null."""
        if self.condition is not None:
            return self.condition
        if self.is_literal or (self.kind == "number" and not self.needs):
            return "false" if _false_like(self.literal) else "true"
        if self.kind == "bool":
            return self.otherwise("false") if self.itself else all_of([*self._there(), self.text])
        if self.kind == "string":
            return f"{self.otherwise(EMPTY['string'])} != ''"
        if self.kind in ("list", "map"):
            return f"{self._sized()}.size() > 0"
        return self.present() if self.kind == "number" else self._true()

    def _true(self) -> str:
        empty = "[dyn(false), dyn(''), dyn([]), dyn({})]"
        return all_of([*self._there(), f"!({self.text} in {empty})"])

    def _there(self) -> list[str]:
        return [has(need) for need in self.needs]

    def _sized(self) -> str:
        """Return what is empty for null and has a size, as what stands before a dot."""
        if self.kind == "list":
            return self.listed()
        return self.otherwise(EMPTY["map"]) if self.needs else self.tight

    def size(self) -> str:
        """Return the CEL text of the number of characters, elements or keys."""
        if self.keys_of is not None:
            return f"{self.keys_of}.size()"
        if self.kind == "list":
            return f"{self.listed()}.size()"
        if self.itself and self.kind in EMPTY:
            return f"{self.otherwise(EMPTY[self.kind])}.size()"
        return f"{self.tight}.size()"


def member(of: CelTerm, name: str) -> CelTerm:
    """Return a field of a value, absent where the value or the field is."""
    if IDENTIFIER.fullmatch(name) and name not in _KEYWORDS:
        strict, absent = f".{name}", f".?{name}"
    else:
        strict, absent = f"[{text_literal(name)}]", f"[?{text_literal(name)}]"
    base = of.needs[0] if of.itself else of.tight
    others = () if of.itself else of.needs
    there = name in _ALWAYS_PRESENT.get(of.text, ()) and not (of.template and name != "spec")
    if there or (name == "spec" and _is_built_in(of)):
        return shaped(
            f"{of.tight}{strict}",
            shapes_of_field(of.shapes, name),
            needs=others,
            name=element_name(name),
        )
    return shaped(
        f"{of.tight}{strict}",
        shapes_of_field(of.shapes, name),
        needs=(*others, f"{base}{absent}"),
        itself=not others,
        name=element_name(name),
    )


_IN_EACH_OBJECT: Final = frozenset(["apiVersion", "kind", "metadata"])
_ALWAYS_PRESENT: Final[Mapping[str, frozenset[str]]] = {
    "object": _IN_EACH_OBJECT,
    "pod": frozenset(["spec"]),
    "pod.spec": frozenset(["containers"]),
    "container": frozenset(["name"]),
}
"""Fields that are there, by the CEL text of what they are in."""


def _is_built_in(of: CelTerm) -> bool:
    """Tell whether a value is an object of one of Kubernetes' own kinds: all have a spec."""
    return (
        of.text == "object"
        and bool(of.shapes)
        and all(
            shape[0] == "struct" and {"metadata", "spec"} <= {*fields(shape[1])}
            for shape in of.shapes
        )
    )


_KEYWORDS: Final = frozenset(["in", "true", "false", "null"])
_IRREGULAR: Final = {"addresses": "address", "ingress": "ingress", "args": "arg"}


def element_name(path: str) -> str:
    """Return a name for an element of the list of a name: `containers` has a `container`."""
    name = re.split(r"[.\[\]'\"]", path.rstrip("]'\""))[-1]
    word = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)[-1:]
    plural = word[0].lower() if word else ""
    if plural in _IRREGULAR:
        return _IRREGULAR[plural]
    if plural.endswith("ies"):
        return plural[:-3] + "y"
    return plural[:-1] if plural.endswith("s") and not plural.endswith("ss") else "e"


@cache
def _shapes_by_field() -> Mapping[str, frozenset[Shape]]:
    """Return what fields of a name are in all of Kubernetes' own types."""
    seen: dict[str, set[Shape]] = {}
    for struct in tables().types:
        for name, of in fields(struct).items():
            seen.setdefault(name, set()).add(shape_of(of))
    return {name: frozenset(found) for name, found in seen.items()}


def shape_of(of: FieldType) -> Shape:
    """Return the shape of a field of Kubernetes' own types."""
    if of.shape == "struct":
        return ("struct", of.struct)
    if of.element is not None:
        return (of.shape, shape_of(of.element))
    scalars = {"bool": "bool", "int32": "number", "int64": "number", "double": "number"}
    if of.scalar in ("any", "intstr", "quantity"):
        return ("dyn",)
    return (scalars.get(str(of.scalar), "string"),)


def shapes_of_field(shapes: frozenset[Shape], name: str) -> frozenset[Shape]:
    """Return what a field may be in a value of some shapes; of any field of the name if unknown."""
    found: set[Shape] = set()
    for shape in shapes:
        if shape[0] == "struct" and name in fields(shape[1]):
            found.add(shape_of(fields(shape[1])[name]))
        elif shape[0] == "map":
            found.add(shape[1])
    return frozenset(found) or _shapes_by_field().get(name) or _OF_IMAGES.get(name, frozenset())


_TEXTS: Final[Shape] = ("list", ("string",))
_OF_IMAGES: Final[Mapping[str, frozenset[Shape]]] = {
    name: frozenset([shape])
    for shape, names in {
        _TEXTS: ("Env", "Cmd", "Entrypoint"),
        ("map", ("string",)): ("Labels",),
        ("map", ("map", ("dyn",))): ("Volumes", "ExposedPorts"),
        ("string",): ("User", "WorkingDir", "StopSignal", "architecture", "mediaType"),
    }.items()
    for name in names
}
"""Fields of the configuration and the manifest of an image."""


def element_shapes(shapes: frozenset[Shape]) -> frozenset[Shape]:
    """Return what elements of lists, and values of maps, of some shapes may be."""
    return frozenset(shape[1] for shape in shapes if shape[0] in ("list", "map"))


def kind_of(shapes: frozenset[Shape]) -> str:
    """Return the kind that all shapes agree on, else `dyn`."""
    kinds = {{"struct": "map"}.get(shape[0], shape[0]) for shape in shapes}
    return str(kinds.pop()) if len(kinds) == 1 else "dyn"


def shaped(text: str, shapes: frozenset[Shape], **others: Any) -> CelTerm:  # noqa: ANN401
    """Return a value of known shapes; `others` are attributes of it."""
    elements = kind_of(element_shapes(shapes))
    return CelTerm(text=text, kind=kind_of(shapes), element=elements, shapes=shapes, **others)


def literal(value: Json) -> CelTerm:
    """Return a JSON value as a CEL literal."""
    kinds = {str: "string", bool: "bool", list: "list", dict: "map", type(None): "null"}
    kind = kinds.get(type(value), "number")
    element = "dyn"
    if isinstance(value, list) and value:
        found = {literal(each).kind for each in value}
        element = found.pop() if len(found) == 1 else "dyn"
    negative = isinstance(value, int | float) and not isinstance(value, bool) and value < 0
    return CelTerm(
        text=json_literal(value), kind=kind, element=element, literal=value, loose=negative
    )


def has_wildcards(text: str) -> bool:
    """Tell whether a text has `*` or `?`."""
    return "*" in text or "?" in text


def wildcard(text: str, pattern: str) -> str:
    """Return the CEL condition that a text matches a pattern with `*` and `?`.

    Args:
        text: The CEL text of the string, as what stands before a dot.
        pattern: The pattern: `*` is any text, `?` one character, be it the end of a line.
    """
    inner = pattern.strip("*")
    if not has_wildcards(inner):
        if not inner and pattern:
            return "true"
        ends = pattern.startswith("*"), pattern.endswith("*")
        names = {(True, True): "contains", (False, True): "startsWith", (True, False): "endsWith"}
        quoted = text_literal(inner)
        return f"{text}.{names[ends]}({quoted})" if any(ends) else f"{text} == {quoted}"
    if pattern in ("?*", "*?"):
        return f"{text} != ''"
    parts = {"*": ".*", "?": "."}
    regex = "".join(parts.get(c) or re.sub(r"[.+^$()\[\]{}|\\]", r"\\\g<0>", c) for c in pattern)
    return f"{text}.matches({text_literal(f'(?s)^{regex}$')})"


def has(optional: str) -> str:
    """Return the condition that an optional has a value, with `has()` where that says it."""
    head, mark, name = optional.rpartition(".?")
    if mark and "?" not in head and IDENTIFIER.fullmatch(name):
        return f"has({head}.{name})"
    head, mark, key = optional.rpartition("[?")
    if mark and "?" not in head and key.endswith("]") and key[:1] == "'" and key.count("'") == 2:
        return f"{key[:-1]} in {head}"
    return f"{optional}.hasValue()"


def all_of(conditions: Iterable[str]) -> str:
    """Return the CEL condition that all conditions hold."""
    parts = list(conditions)
    if len(parts) == 1:
        return parts[0]
    return " && ".join(f"({part})" if _is_looser(outline(part)) else part for part in parts)


_QUOTED: Final = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")


def outline(text: str) -> str:
    """Return a CEL expression with what is in quotes, parentheses, brackets or braces left out."""
    depth, kept = 0, []
    for each in _QUOTED.sub("''", text):
        depth -= each in ")]}"
        if depth == 0:
            kept.append(each)
        depth += each in "([{"
    return "".join(kept)


def _is_looser(shown: str) -> bool:
    return "||" in shown or " ? " in shown


def element_of(of: CelTerm, variable: str) -> CelTerm:
    """Return an element of a list under the name of a variable."""
    if of.keys_of is not None:
        return CelTerm(text=variable, kind="string")
    if of.shapes:
        return shaped(variable, element_shapes(of.shapes), name=variable)
    return CelTerm(text=variable, kind=of.element, name=variable)


def as_json_value(of: CelTerm) -> CelTerm:
    """Return a value as one of JSON: moments and durations are texts there.

    Raises:
        Untranslatable: If it is a quantity.
    """
    if of.kind == "quantity":
        raise Untranslatable("CEL cannot write a quantity as a text")
    if of.kind not in ("timestamp", "duration"):
        return of
    return CelTerm(text=f"string({of.text})", kind="string", needs=of.needs)


def value_of_optional(optional: str, *, kind: str = "dyn") -> CelTerm:
    """Return the value of an optional."""
    return CelTerm(text=f"{optional}.value()", kind=kind, needs=(optional,), itself=True)


def condition(text: str, *, loose: bool = False) -> CelTerm:
    """Return a value that is true or false, and always there."""
    return CelTerm(text=text, kind="bool", loose=loose)


def listing(text: str, of: CelTerm, *, element: str | None = None) -> CelTerm:
    """Return a list that is made of another value."""
    needs = () if of.itself else of.needs
    return CelTerm(
        text=text,
        kind="list",
        element=of.element if element is None else element,
        needs=needs,
        name=of.name,
        shapes=of.shapes,
    )


def _false_like(value: Json) -> bool:
    return value is None or value is False or value in ("", [], {})

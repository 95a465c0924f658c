"""Translate JMESPath, with the functions that Kyverno adds to it, to CEL.

JMESPath has null where CEL has an error: a field that is absent, an index out of range. The
translation of a part is therefore a `Value`: its text in CEL, and the optionals that it needs
to have values. Where the part is used says what absence means there: an empty list where
elements are asked for, false where a condition is asked for, else the default of `||`.

Kinds of values (string, list, map) decide between `contains` of a string and of a list, for
instance. They come from literals, from functions, and from the names of the fields: Kubernetes'
own types use one kind for nearly all fields of a name.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import jmespath.exceptions
import jmespath.parser

from policyd.api.data import tables
from policyd.api.kinds import FieldType, fields
from policyd.api.meta import Json
from policyd.errors import PolicydError

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = frozenset(
    "as break const continue else false for function if import in let loop namespace null package "
    "return true var void while object oldObject request variables params images exceptions".split()
)
_LONGEST: Final = 20_000
"""Characters of an expression; Kyverno's own are below 2,000."""
_DEEPEST: Final = 60
_EMPTY: Final = {"string": "''", "list": "[]", "map": "{}", "number": "0", "bool": "false"}
_NO_LITERAL: Final = object()


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


@dataclass(frozen=True, kw_only=True)
class Value:
    """A part of an expression in CEL.

    Attributes:
        text: The CEL expression; it fails where one of `needs` has no value.
        kind: `string`, `number`, `bool`, `list`, `map`, `null` or `dyn`.
        element: The kind of a list's elements or of a map's values.
        needs: CEL optionals that must have values for `text` to have one.
        itself: Whether `text` is the value of the one optional in `needs`.
        loose: Whether `text` needs parentheses before a dot.
        keys_of: The text of the map whose keys this list is.
        literal: The decoded value of a literal.
        name: A name for an element of the list.
        made: Whether the elements were made by an expression, so that they may be lists.
        shapes: What the value may be in Kubernetes' own types; empty if nothing is known.
    """

    text: str
    kind: str = "dyn"
    element: str = "dyn"
    needs: tuple[str, ...] = ()
    itself: bool = False
    loose: bool = False
    keys_of: str | None = None
    literal: Any = _NO_LITERAL
    name: str = "e"
    made: bool = False
    shapes: frozenset[Shape] = frozenset()

    @property
    def tight(self) -> str:
        """The text as what stands before a dot."""
        return f"({self.text})" if self.loose else self.text

    @property
    def is_literal(self) -> bool:
        """Whether this is a literal."""
        return self.literal is not _NO_LITERAL

    def present(self) -> str:
        """Return the CEL condition that the value is not null; empty if that is sure."""
        return " && ".join(_has(need) for need in self.needs)

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
        if self.is_literal:
            return "false" if _false_like(self.literal) else "true"
        if self.kind == "bool":
            if self.itself:
                return f"{self.needs[0]}.orValue(false)"
            return _both([*map(_has, self.needs), self.text])
        if self.kind in ("string", "list", "map"):
            empty = _EMPTY[self.kind]
            if self.kind == "list":
                return f"{self.listed()}.size() > 0"
            if self.kind == "map":
                return f"{_parenthesized(self.otherwise(empty), self)}.size() > 0"
            return f"{self.otherwise(empty)} != {empty}"
        if self.kind == "number":
            return self.present() or "true"
        if self.kind == "null":
            return "false"
        told = f"!({self.text} in [dyn(false), dyn(''), dyn([]), dyn({{}})])"
        return _both([*map(_has, self.needs), told])

    def size(self) -> str:
        """Return the CEL text of the number of characters, elements or keys."""
        if self.keys_of is not None:
            return f"{self.keys_of}.size()"
        if self.kind == "list":
            return f"{self.listed()}.size()"
        if self.itself and self.kind in _EMPTY:
            return f"{self.otherwise(_EMPTY[self.kind])}.size()"
        return f"{self.tight}.size()"


def translate(
    expression: str, roots: Mapping[str, str | Value], *, scope: str | Value | None = None
) -> str:
    """Return a JMESPath expression in CEL; where it is null, the CEL is null or fails.

    Args:
        expression: JMESPath; `{{ }}` in its literals are variables of their own.
        roots: CEL texts of the variables by their dotted paths: `request.object` is `object`.
        scope: The CEL text of the value that the expression is asked of, if it is of a value.

    Raises:
        Untranslatable: If a part has no counterpart in CEL, or is no JMESPath.
    """
    found = value_of(expression, roots, scope=scope)
    if not found.needs or found.kind == "bool":
        return found.truth() if found.needs else found.text
    return found.listed() if found.kind == "list" and found.itself else found.text


def value_of(
    expression: str, roots: Mapping[str, str | Value], *, scope: str | Value | None = None
) -> Value:
    """Return the value of a JMESPath expression in CEL. See `translate`.

    Raises:
        Untranslatable: If a part has no counterpart in CEL, or is no JMESPath.
    """
    if len(expression) > _LONGEST:
        raise Untranslatable(f"the expression has over {_LONGEST:,} characters")
    known = {path: _root(path, text) for path, text in roots.items()}
    text, nested = _without_variables(expression)
    try:
        tree: Any = jmespath.parser.Parser().parse(text).parsed
    except jmespath.exceptions.JMESPathError as error:
        at = getattr(error, "lex_position", None) or 0
        raise Untranslatable(f"{_quoted(expression)} is no JMESPath", at) from error
    except RecursionError as error:
        raise Untranslatable("the expression is nested too deeply") from error
    if _depth_of(tree) > _DEEPEST:
        raise Untranslatable("the expression is nested too deeply")
    for name, inner in nested.items():
        known[name] = value_of(inner, roots, scope=scope)
    root = scope if scope is None or isinstance(scope, Value) else Value(text=scope)
    return _Translation(known)(tree, root)


def _root(path: str, text: str | Value) -> Value:
    if isinstance(text, Value):
        return text
    return shaped(
        text, shapes_of_field(frozenset(), path.rpartition(".")[2]), name=element_name(path)
    )


_QUOTED: Final = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`(?:\\.|[^`\\])*`", re.DOTALL)
_PLACE: Final = re.compile("(\ue000\\d+\ue001)")
"""What stands for a variable while the expression around it is read; no JMESPath has it."""


def split_variables(text: str) -> Iterator[str]:
    """Split a text at its outermost `{{ }}`: text, expression, text, and so on.

    Raises:
        Untranslatable: If a `{{` has no end.
    """
    start = position = depth = 0
    while position < len(text):
        pair = text[position : position + 2]
        if pair == "{{":
            if not depth:
                yield text[start:position]
                start = position + 2
            depth += 1
            position += 2
        elif pair == "}}" and depth:
            depth -= 1
            position += 2
            if not depth:
                yield text[start : position - 2].strip()
                start = position
        else:
            position += 1
    if depth:
        raise Untranslatable("a `{{` has no `}}`", start)
    yield text[start:]


def _without_variables(expression: str) -> tuple[str, dict[str, str]]:
    """Replace `{{ }}` by variables of their own, in literals and names, too."""
    parts = list(split_variables(expression))
    nested = {f"nested_{index // 2}": part for index, part in enumerate(parts) if index % 2}
    marked = "".join(
        f"\ue000{index // 2}\ue001" if index % 2 else part for index, part in enumerate(parts)
    )

    def in_literal(match: re.Match[str]) -> str:
        whole, quote = match.group(), match.group()[0]
        pieces = [piece for piece in _PLACE.split(whole[1:-1]) if piece]
        places = [bool(_PLACE.fullmatch(piece)) for piece in pieces]
        if not any(places):
            return whole
        if quote == '"' and len(pieces) == 1:
            return f'"{{{{{_name(pieces[0])}}}}}"'
        if quote != '"' and len([piece for piece in pieces if piece.strip()]) == 1:
            return _name(pieces[places.index(True)])
        if quote != "'":
            shown = _PLACE.sub("{{ }}", whole)
            raise Untranslatable(f"{shown} is made of text and a variable")
        texts = (
            f"to_string({_name(piece)})" if place else f"'{piece}'"
            for piece, place in zip(pieces, places, strict=True)
        )
        return f"join('', [{', '.join(texts)}])"

    literals = _QUOTED.sub(in_literal, marked)
    return _PLACE.sub(lambda match: _name(match.group()), literals), nested


def _name(place: str) -> str:
    return f"nested_{place[1:-1]}"


_NESTED_NAME: Final = re.compile(r"\{\{(nested_\d+)\}\}")


def _depth_of(tree: Any) -> int:  # noqa: ANN401 - a node of the parser
    deepest, waiting = 0, [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting.extend((child, depth + 1) for child in node["children"] if isinstance(child, dict))
    return deepest


@dataclass(frozen=True)
class _Partial:
    """A path that leads to variables and is none itself, as `request` does."""

    path: str


@dataclass
class _Translation:
    """The translation of one expression.

    Attributes:
        roots: The variables by their dotted paths.
        taken: The names that comprehensions around have.
    """

    roots: Mapping[str, Value]
    taken: list[str] = field(default_factory=list)

    def __call__(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401 - a node
        """Return the value of a node; `scope` is `@`, None at the root of all variables."""
        found = self.part(node, scope)
        if isinstance(found, _Partial):
            raise Untranslatable(f"the variable {found.path} is not known here")
        return found

    def part(self, node: Any, scope: Value | None) -> "Value | _Partial":  # noqa: ANN401 - a node
        """Return the value of a node, or the path that may become one."""
        method = getattr(self, f"_{node['type']}", None)
        if method is None:
            raise Untranslatable(f"policyd does not translate {node['type'].replace('_', ' ')}")
        found: Value | _Partial = method(node, scope)
        return found

    # Paths.

    def _field(self, node: Any, scope: "Value | _Partial | None") -> "Value | _Partial":  # noqa: ANN401
        name = node["value"]
        if scope is None or isinstance(scope, _Partial):
            path = f"{scope.path}.{name}" if scope else name
            if path in self.roots:
                return self.roots[path]
            if any(root.startswith(f"{path}.") for root in self.roots):
                return _Partial(path)
            raise Untranslatable(f"the variable {path} is not known here")
        if name.startswith("nested_") and name in self.roots:
            return self.roots[name]
        if match := _NESTED_NAME.fullmatch(name):
            return self._chosen(scope, self.roots[match[1]].text)
        return member(scope, name)

    def _chosen(self, of: Value, key: str) -> Value:
        """Return the value of a map under a computed key."""
        optional = f"{of.needs[0] if of.itself else of.tight}[?{key}]"
        return shaped(f"{of.tight}[{key}]", _elements(of.shapes), needs=(optional,), itself=True)

    def _current(self, _node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        if scope is None:
            raise Untranslatable("`@` is all variables here")
        return scope

    _identity = _current

    def _subexpression(self, node: Any, scope: Value | None) -> "Value | _Partial":  # noqa: ANN401
        first, *others = node["children"]
        base = self.part(first, scope)
        for each in others:
            if each["type"] == "field":
                base = self._field(each, base)
            elif isinstance(base, _Partial):
                raise Untranslatable(f"the variable {base.path} is not known here")
            else:
                base = self(each, base)
        return base

    def _pipe(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        for each in node["children"]:
            scope = self(each, scope)
        return self._current(node, scope)

    _index_expression = _pipe

    def _index(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        of, number = self._current(node, scope), node["value"]
        kept = shaped("", _elements(of.shapes))
        if not of.shapes:
            kept = replace(kept, kind=of.element)
        if of.keys_of is not None:
            of = replace(of, text=_keys(of.keys_of), keys_of=None)
        if number >= 0:
            optional = f"{of.needs[0] if of.itself else of.tight}[?{number}]"
            return replace(kept, text=f"{of.tight}[{number}]", needs=(optional,), itself=True)
        if number == -1:
            optional = f"{of.listed()}.last()"
        else:
            optional = f"{of.listed()}[?{of.listed()}.size() - {-number}]"
        return replace(
            kept, text=f"{optional}.value()", needs=(optional,), itself=True, loose=False
        )

    def _slice(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        of = self._current(node, scope)
        start, stop, step = node["children"]
        if step not in (None, 1) or (start or 0) < 0 or (stop is not None and stop < 0):
            raise Untranslatable("policyd translates slices from the start on only: `[0:2]`")
        size = f"{of.listed()}.size()"
        last = size if stop is None else f"[{size}, {stop}].min()"
        bounded = f"[{size}, {start}].min()" if start else "0"
        return _list(f"{of.listed()}.slice({bounded}, {last})", of)

    # Projections.

    def _flatten(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        of = self(node["children"][0], scope)
        if of.kind == "dyn":
            of = replace(of, kind="list", element="dyn")
        if of.keys_of is not None or of.element in ("string", "number", "bool", "map"):
            return of
        if of.element == "list" or of.made:
            return _list(f"{of.listed()}.flatten()", of, element="dyn")
        return of

    def _projection(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        left, right = node["children"]
        return self._mapped(self(left, scope), right)

    def _value_projection(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        left, right = node["children"]
        of = self(left, scope)
        variable = self._variable(of)
        source = of.otherwise("{}") if of.itself else of.tight
        element = Value(text=f"{source}[{variable}]", kind=of.element)
        values = _list(f"{source}.map({variable}, {element.text})", of, element=of.element)
        return values if right["type"] == "identity" else self._mapped(values, right)

    def _filter_projection(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        left, right, condition = node["children"]
        return self._mapped(self(left, scope), right, condition)

    def _mapped(self, of: Value, right: Any, condition: Any = None) -> Value:  # noqa: ANN401
        """Return what `right` is for each element for which a condition holds, less nulls."""
        if condition is None and right["type"] == "identity":
            return replace(of, kind="list") if of.kind == "dyn" else of
        source = of.keys_of if of.keys_of is not None else of.listed()
        variable = self._variable(of)
        element = _one_of(of, variable)
        self.taken.append(variable)
        try:
            kept = "" if condition is None else self(condition, element).truth()
            made = self(right, element)
        finally:
            self.taken.pop()
        if made.text == variable:
            return _list(f"{source}.filter({variable}, {kept})", of, element=element.kind)
        if made.kind == "list":
            made = replace(made, text=made.listed(), needs=(), itself=False)
        present = (
            _both([part for part in (kept, made.present()) if part]) if kept else made.present()
        )
        arguments = [variable, *([present] if present else []), made.text]
        return replace(
            _list(f"{source}.map({', '.join(arguments)})", of, element=made.kind),
            name=made.name,
            made=made.kind == "dyn",
            shapes=frozenset(("list", shape) for shape in made.shapes),
        )

    def _variable(self, of: Value) -> str:
        """Return a name for an element that nothing around has."""
        wanted = of.name if _IDENTIFIER.fullmatch(of.name) else "e"
        if wanted in _RESERVED or wanted in self.roots:
            wanted = "e"
        chosen, number = wanted, 2
        while chosen in self.taken:
            chosen, number = f"{wanted}{number}", number + 1
        return chosen

    # Literals and what is made of several.

    def _literal(self, node: Any, _scope: Value | None) -> Value:  # noqa: ANN401
        return literal(node["value"])

    def _multi_select_list(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        parts = [self(child, scope) for child in node["children"]]
        if parts and all(part.kind == "list" for part in parts):
            joined = " + ".join(part.listed() for part in parts)
            # One level less than JMESPath has: its `[]` follows, and has nothing left to do.
            return Value(
                text=joined,
                kind="list",
                element=parts[0].element,
                loose=len(parts) > 1,
                name=parts[0].name,
                shapes=frozenset().union(*(part.shapes for part in parts)),
            )
        same = {part.kind for part in parts}
        shown = [
            f"?{part.optional()}" if part.needs else _in_list(part, mixed=len(same) > 1)
            for part in parts
        ]
        return Value(
            text=f"[{', '.join(shown)}]",
            kind="list",
            element=same.pop() if len(same) == 1 else "dyn",
            made=True,
        )

    def _multi_select_dict(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        pairs = []
        for pair in node["children"]:
            part = self(pair["children"][0], scope)
            key = text_literal(pair["value"])
            pairs.append(f"?{key}: {part.optional()}" if part.needs else f"{key}: dyn({part.text})")
        return Value(text=f"{{{', '.join(pairs)}}}", kind="map")

    # Conditions.

    def _or_expression(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        left, right = (self(child, scope) for child in node["children"])
        if left.kind == "bool" and (right.kind == "bool" or not right.is_literal):
            return _bool(f"{_operand(left)} || {_operand(right)}", loose=True)
        if right.is_literal:
            return _with_default(left, right)
        kind = left.kind if left.kind == right.kind else "dyn"
        if not right.needs:
            if left.itself:
                return replace(right, text=left.otherwise(right.text), kind=kind, loose=False)
            return replace(
                right, text=f"{left.truth()} ? {left.text} : {right.text}", kind=kind, loose=True
            )
        optional = f"{left.optional()}.or({right.optional()})"
        return Value(
            text=f"{optional}.value()", kind=kind, needs=(optional,), itself=True, name=left.name
        )

    def _and_expression(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        left, right = (self(child, scope) for child in node["children"])
        if right.kind == "bool":
            return _bool(f"{_operand(left)} && {_operand(right)}", loose=True)
        return replace(
            right,
            text=f"{left.truth()} && {_has_all(right)} ? dyn({right.text}) : dyn(false)"
            if right.needs
            else f"{left.truth()} ? dyn({right.text}) : dyn(false)",
            kind="dyn",
            needs=(),
            itself=False,
            loose=True,
        )

    def _not_expression(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        of = self(node["children"][0], scope)
        return _bool(_negated(of.truth()))

    def _comparator(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        left, right = (self(child, scope) for child in node["children"])
        relation = {"eq": "==", "ne": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}[
            node["value"]
        ]
        if left.is_literal and not right.is_literal:
            left, right = right, left
            relation = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(relation, relation)
        if relation in ("==", "!="):
            return _bool(_equality(left, right, relation), loose=True)
        numbers = [*map(_has, left.needs), *map(_has, right.needs)]
        return _bool(_both([*numbers, f"{left.text} {relation} {right.text}"]), loose=True)

    # Functions.

    def _function_expression(self, node: Any, scope: Value | None) -> Value:  # noqa: ANN401
        name = node["value"]
        if name in ("map", "sort_by", "max_by", "min_by"):
            return self._by_reference(name, node["children"], scope)
        make = FUNCTIONS.get(name)
        if make is None:
            known = "" if name in _KNOWN_TO_KYVERNO else ", and Kyverno has none of that name"
            raise Untranslatable(f"CEL for admission has no function such as {name}(){known}")
        arguments = [self(child, scope) for child in node["children"]]
        try:
            made: Value = make(*arguments)
        except TypeError as error:
            raise Untranslatable(f"{name}() does not take {len(arguments)} arguments") from error
        return made

    def _by_reference(self, name: str, children: Any, scope: Value | None) -> Value:  # noqa: ANN401
        listed, reference = children if name != "map" else reversed(children)
        if reference["type"] != "expref":
            raise Untranslatable(f"{name}() takes an expression such as `&name`")
        of = self(listed, scope)
        variable = self._variable(of)
        self.taken.append(variable)
        try:
            made = self(reference["children"][0], _one_of(of, variable))
        finally:
            self.taken.pop()
        if name == "map":
            text = f"{of.listed()}.map({variable}, {made.otherwise('null')})"
            return _list(text, of, element=made.kind)
        ordered = f"{of.listed()}.sortBy({variable}, {made.text})"
        if name == "sort_by":
            return _list(ordered, of, element=of.element)
        optional = f"{ordered}.{'last' if name == 'max_by' else 'first'}()"
        return Value(text=f"{optional}.value()", kind=of.element, needs=(optional,), itself=True)


def member(of: Value, name: str) -> Value:
    """Return a field of a value, absent where the value or the field is."""
    if _IDENTIFIER.fullmatch(name) and name not in _KEYWORDS:
        strict, absent = f".{name}", f".?{name}"
    else:
        strict, absent = f"[{text_literal(name)}]", f"[?{text_literal(name)}]"
    base = of.needs[0] if of.itself else of.tight
    others = () if of.itself else of.needs
    return shaped(
        f"{of.tight}{strict}",
        shapes_of_field(of.shapes, name),
        needs=(*others, f"{base}{absent}"),
        itself=not others,
        name=element_name(name),
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
    return frozenset(found) or _shapes_by_field().get(name, frozenset())


def _elements(shapes: frozenset[Shape]) -> frozenset[Shape]:
    return frozenset(shape[1] for shape in shapes if shape[0] in ("list", "map"))


def kind_of(shapes: frozenset[Shape]) -> str:
    """Return the kind that all shapes agree on, else `dyn`."""
    kinds = {{"struct": "map"}.get(shape[0], shape[0]) for shape in shapes}
    return kinds.pop() if len(kinds) == 1 else "dyn"


def shaped(text: str, shapes: frozenset[Shape], **others: Any) -> Value:  # noqa: ANN401
    """Return a value of known shapes; `others` are attributes of it."""
    elements = kind_of(_elements(shapes))
    return Value(text=text, kind=kind_of(shapes), element=elements, shapes=shapes, **others)


def literal(value: Json) -> Value:
    """Return a JSON value as a CEL literal."""
    kinds = {str: "string", bool: "bool", list: "list", dict: "map", type(None): "null"}
    kind = kinds.get(type(value), "number")
    element = "dyn"
    if isinstance(value, list) and value:
        found = {literal(each).kind for each in value}
        element = found.pop() if len(found) == 1 else "dyn"
    negative = isinstance(value, int | float) and not isinstance(value, bool) and value < 0
    return Value(
        text=json_literal(value), kind=kind, element=element, literal=value, loose=negative
    )


def json_literal(value: Json) -> str:
    """Return a JSON value in CEL's syntax; values of several kinds in a list are `dyn`."""
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            return text_literal(value)
        case int() | float():
            return repr(int(value)) if value == int(value) else repr(value)
        case list():
            mixed = len({type(each) for each in value}) > 1
            return f"[{', '.join(_element(each, mixed=mixed) for each in value)}]"
        case dict():
            mixed = len({type(each) for each in value.values()}) > 1
            pairs = (f"{text_literal(k)}: {_element(v, mixed=mixed)}" for k, v in value.items())
            return f"{{{', '.join(pairs)}}}"
    raise AssertionError(type(value))


def _element(value: Json, *, mixed: bool) -> str:
    text = json_literal(value)
    return f"dyn({text})" if mixed else text


def text_literal(text: str) -> str:
    """Return a string literal of CEL; regular expressions keep their backslashes in a raw one."""
    plain = text.isprintable()
    if plain and "\\" not in text:
        if "'" not in text:
            return f"'{text}'"
        if '"' not in text:
            return f'"{text}"'
    if plain and "'" not in text and not text.endswith("\\"):
        return f"r'{text}'"
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return (
        "'"
        + "".join(
            each
            if each.isprintable()
            else {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(each)
            or (f"\\u{ord(each):04x}" if ord(each) <= _LAST_SHORT else f"\\U{ord(each):08x}")
            for each in escaped
        )
        + "'"
    )


_LAST_SHORT: Final = 0xFFFF


def _has(optional: str) -> str:
    """Return the condition that an optional has a value, with `has()` where that says it."""
    head, mark, name = optional.rpartition(".?")
    if mark and "?" not in head and _IDENTIFIER.fullmatch(name):
        return f"has({head}.{name})"
    head, mark, key = optional.rpartition("[?")
    if mark and "?" not in head and key.endswith("]") and key[:1] == "'" and key.count("'") == 2:  # noqa: PLR2004
        return f"{key[:-1]} in {head}"
    return f"{optional}.hasValue()"


def _has_all(value: Value) -> str:
    return value.present()


def _both(conditions: Iterable[str]) -> str:
    parts = list(conditions)
    if len(parts) == 1:
        return parts[0]
    return " && ".join(f"({part})" if "||" in part or " ? " in part else part for part in parts)


def _operand(value: Value) -> str:
    text = value.truth()
    return f"({text})" if "&&" in text or "||" in text or " ? " in text else text


def _negated(condition: str) -> str:
    simple = re.fullmatch(r"!?[\w.?]+(\([^()]*\))?", condition)
    if condition.startswith("!") and simple:
        return condition[1:]
    return f"!{condition}" if simple else f"!({condition})"


def _parenthesized(text: str, value: Value) -> str:
    return f"({text})" if value.loose and not value.needs else text


def _one_of(of: Value, variable: str) -> Value:
    """Return an element of a list under the name of a variable."""
    if of.keys_of is not None:
        return Value(text=variable, kind="string")
    if of.shapes:
        return shaped(variable, _elements(of.shapes), name=variable)
    return Value(text=variable, kind=of.element, name=variable)


def _bool(text: str, *, loose: bool = False) -> Value:
    return Value(text=text, kind="bool", loose=loose)


def _list(text: str, of: Value, *, element: str | None = None) -> Value:
    needs = () if of.itself else of.needs
    return Value(
        text=text,
        kind="list",
        element=of.element if element is None else element,
        needs=needs,
        name=of.name,
        shapes=of.shapes,
    )


def _keys(text: str) -> str:
    return f"{text}.map(k, k)"


def _in_list(value: Value, *, mixed: bool) -> str:
    return f"dyn({value.text})" if mixed or value.kind == "dyn" else value.text


def _false_like(value: Json) -> bool:
    return value is None or value is False or value in ("", [], {})


def _with_default(left: Value, right: Value) -> Value:
    """Return a value, or a literal where JMESPath takes the value for false."""
    if right.kind == "null":
        return left
    if left.kind == "list" and right.literal in ("", []):
        return replace(left, text=left.listed(), needs=(), itself=False)
    kind = left.kind if left.kind != "dyn" else right.kind
    element = left.element if left.kind == "list" else right.element
    if left.keys_of is not None:
        return left
    text = left.otherwise(right.text)
    return Value(text=text, kind=kind, element=element, name=left.name)


def _equality(left: Value, right: Value, relation: str) -> str:
    if right.kind == "null":
        if not left.needs:
            return f"{left.text} {relation} null"
        present = left.present()
        return present if relation == "!=" else _negated(present)
    if not left.needs and not right.needs:
        return f"{left.tight if left.kind == 'bool' else left.text} {relation} {right.tight}"
    if right.is_literal and right.kind in ("string", "number", "bool"):
        empty = _EMPTY[right.kind]
        if right.kind == left.kind == "bool":
            if right.literal == (relation == "=="):
                return left.truth() if right.literal else _negated(f"{left.otherwise('true')}")
            return (
                _negated(left.truth())
                if right.literal or not left.itself
                else (f"{left.otherwise('true')}")
            )
        if right.literal not in ("", 0):
            return f"{left.otherwise(empty)} {relation} {right.text}"
    if not right.needs:
        return f"{left.optional()} {relation} optional.of({right.text})"
    return f"{left.optional()} {relation} {right.optional()}"


# Functions of JMESPath and of Kyverno.


def _given(value: Value, kind: str) -> Value:
    """Return an argument that a function needs of a kind, with what it needs to be present."""
    return value if value.kind != "dyn" else replace(value, kind=kind)


def _call(text: str, kind: str, *arguments: Value, element: str = "dyn") -> Value:
    needs = tuple(dict.fromkeys(need for each in arguments for need in each.needs))
    return Value(text=text, kind=kind, element=element, needs=needs)


def _contains(of: Value, part: Value) -> Value:
    if of.keys_of is not None:
        return _call(f"{part.text} in {of.keys_of}", "bool", part)
    if of.kind == "list":
        return replace(_call(f"{part.text} in {of.listed()}", "bool", part), loose=True)
    if of.kind == "string":
        return _call(f"{of.tight}.contains({part.text})", "bool", of, part)
    # Kubernetes names lists in the plural.
    told = f"type({of.text}) == list ? {part.text} in {of.tight} : {of.tight}.contains({part.text})"
    return replace(_call(told, "bool", of, part), loose=True)


def _length(of: Value) -> Value:
    needs = () if of.kind == "list" or (of.itself and of.kind in _EMPTY) else of.needs
    return Value(text=of.size(), kind="number", needs=needs)


def _keys_of(of: Value) -> Value:
    source = of.otherwise("{}") if of.itself else of.tight
    return Value(text=_keys(source), kind="list", element="string", keys_of=source, name="key")


def _values(of: Value) -> Value:
    source = of.otherwise("{}") if of.itself else of.tight
    return Value(text=f"{source}.map(k, {source}[k])", kind="list", element=of.element)


def _items(of: Value, key: Value, value: Value) -> Value:
    source = of.otherwise("{}") if of.itself else of.tight
    text = f"{source}.map(k, {{{key.text}: dyn(k), {value.text}: dyn({source}[k])}})"
    return Value(text=text, kind="list", element="map", name="item")


def _to_string(of: Value) -> Value:
    if of.kind == "string":
        return of
    if of.kind in ("list", "map"):
        raise Untranslatable("CEL for admission cannot write a list or an object as JSON")
    return _call(f"string({of.text})", "string", of)


def _to_number(of: Value) -> Value:
    if of.kind == "number":
        return of
    if of.is_literal:
        try:
            return replace(literal(float(str(of.literal))), text=repr(float(str(of.literal))))
        except ValueError:
            raise Untranslatable(f"{of.text} is no number") from None
    return _call(f"double({of.text})", "number", of)


def _to_array(of: Value) -> Value:
    if of.kind == "list":
        return of
    if of.kind == "dyn":
        text = f"type({of.text}) == list ? {of.text} : [{of.text}]"
        return replace(_call(text, "list", of), loose=True, name=of.name)
    return _call(f"[{of.text}]", "list", of, element=of.kind)


def _method(name: str, kind: str, of_kind: str = "string") -> Callable[..., Value]:
    def make(of: Value, *others: Value) -> Value:
        arguments = ", ".join(other.text for other in others)
        return _call(f"{_given(of, of_kind).tight}.{name}({arguments})", kind, of, *others)

    return make


def _of_list(name: str, kind: str = "dyn") -> Callable[[Value], Value]:
    def make(of: Value) -> Value:
        return Value(
            text=f"{of.listed()}.{name}()",
            kind=kind if kind != "dyn" else of.element,
            element=of.element,
            name=of.name,
        )

    return make


def _join(separator: Value, of: Value) -> Value:
    return _call(f"{of.listed()}.join({separator.text})", "string", separator)


def _split(of: Value, separator: Value) -> Value:
    return _call(f"{of.tight}.split({separator.text})", "list", of, separator, element="string")


def _regex_match(pattern: Value, of: Value) -> Value:
    return _call(f"{_to_text(of)}.matches({pattern.text})", "bool", of, pattern)


def _to_text(of: Value) -> str:
    return f"string({of.text})" if of.kind == "number" else of.tight


def _replace_all(of: Value, old: Value, new: Value) -> Value:
    return _call(f"{of.tight}.replace({old.text}, {new.text})", "string", of)


def _replace(of: Value, old: Value, new: Value, count: Value) -> Value:
    return _call(f"{of.tight}.replace({old.text}, {new.text}, {count.text})", "string", of)


def _trim(of: Value, cut: Value | None = None) -> Value:
    if cut is None or (cut.is_literal and str(cut.literal).isspace()):
        return _call(f"{of.tight}.trim()", "string", of)
    raise Untranslatable("trim() in CEL removes white space only")


def _trim_prefix(of: Value, prefix: Value) -> Value:
    cut = f"{of.tight}.substring({prefix.tight}.size())"
    return replace(
        _call(f"{of.tight}.startsWith({prefix.text}) ? {cut} : {of.text}", "string", of), loose=True
    )


def _truncate(of: Value, length: Value) -> Value:
    text = f"{of.tight}.substring(0, [{of.tight}.size(), {length.text}].min())"
    return _call(text, "string", of)


def _equal_fold(one: Value, other: Value) -> Value:
    text = f"{one.tight}.lowerAscii() == {other.tight}.lowerAscii()"
    return replace(_call(text, "bool", one, other), loose=True)


def _amount(of: Value) -> tuple[str, str]:
    """Return a number, quantity or duration, with which of them it is."""
    if of.kind == "number":
        return of.text if not of.loose else of.tight, "number"
    if of.is_literal and re.search(r"\d(?:ns|us|ms|s|h)$|\dm\d", str(of.literal)):
        return f"duration({of.text})", "duration"
    return f"quantity({_quantity_text(of)})", "quantity"


def _quantity_text(of: Value) -> str:
    return of.text if of.kind == "string" else f"string({of.text})"


def _arithmetic(sign: str) -> Callable[[Value, Value], Value]:
    def make(one: Value, other: Value) -> Value:
        (left, kind), (right, other_kind) = _amount(one), _amount(other)
        if kind == other_kind == "number":
            if sign == "/":
                left = f"double({left})"
                right = f"double({right})"
            return replace(_call(f"{left} {sign} {right}", "number", one, other), loose=True)
        if sign in ("+", "-") and kind == other_kind == "quantity":
            name = "add" if sign == "+" else "sub"
            return _call(f"{left}.{name}({right})", "quantity", one, other)
        if "duration" in (kind, other_kind):
            if sign in ("+", "-") and kind == other_kind:
                return replace(_call(f"{left} {sign} {right}", "duration", one, other), loose=True)
            raise Untranslatable("CEL has no product or quotient of durations")
        if sign == "%":
            raise Untranslatable("CEL has no remainder of quantities")
        numbers = [
            f"{text}.asApproximateFloat()" if told == "quantity" else f"double({text})"
            for text, told in ((left, kind), (right, other_kind))
        ]
        return replace(_call(f" {sign} ".join(numbers), "number", one, other), loose=True)

    return make


def _label_match(wanted: Value, labels: Value) -> Value:
    given, needed = (
        labels.otherwise("{}"),
        wanted.otherwise("{}") if wanted.itself else wanted.tight,
    )
    return _bool(f"{needed}.all(k, k in {given} && {given}[k] == {needed}[k])")


def _not_null(*values: Value) -> Value:
    made = values[0]
    for other in values[1:]:
        optional = f"{made.optional()}.or({other.optional()})"
        made = Value(text=f"{optional}.value()", kind=made.kind, needs=(optional,), itself=True)
    return made


def _lookup(of: Value, key: Value) -> Value:
    source = of.needs[0] if of.itself else of.tight
    return Value(
        text=f"{of.tight}[{key.text}]",
        kind=of.element,
        needs=(f"{source}[?{key.text}]",),
        itself=True,
    )


def _pattern_match(pattern: Value, of: Value) -> Value:
    if not pattern.is_literal:
        raise Untranslatable("pattern_match() has a pattern that is computed")
    return _call(wildcard(_to_text(of), str(pattern.literal)), "bool", of)


def wildcard(subject: str, pattern: str) -> str:
    """Return the CEL condition that a string matches a pattern with `*` and `?`.

    Args:
        subject: The CEL text of the string, as what stands before a dot.
        pattern: The pattern: `*` is any text, `?` one character.
    """
    if not set(pattern) & set("*?"):
        return f"{subject} == {text_literal(pattern)}"
    inner = pattern.strip("*")
    if not inner and "*" in pattern:
        return "true"
    if not set(inner) & set("*?"):
        starts, ends = pattern.endswith("*"), pattern.startswith("*")
        if starts and ends:
            return f"{subject}.contains({text_literal(inner)})"
        if starts:
            return f"{subject}.startsWith({text_literal(inner)})"
        return f"{subject}.endsWith({text_literal(inner)})"
    if pattern == "?*":
        return f"{subject} != ''"
    parts = re.split(r"([*?])", pattern)
    quoted = "".join(
        {"*": ".*", "?": "."}.get(part, re.sub(r"([.+^$()\[\]{}|\\])", r"\\\1", part))
        for part in parts
    )
    return f"{subject}.matches({text_literal(f'(?s)^{quoted}$')})"


_RANGE: Final = re.compile(
    r"\s*(>=|<=|>|<|=|==|!=|!)?\s*v?(\d+)(?:\.(\d+))?(?:\.(\d+))?([-+][\w.+-]+)?\s*"
)
_COMPARED: Final = {">": "> 0", ">=": ">= 0", "<": "< 0", "<=": "<= 0", "": "== 0", "=": "== 0"}


def _semver_compare(version: Value, wanted: Value) -> Value:
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
    return replace(_call(text, "bool", version), loose=True)


def _regex_replace_all(pattern: Value, of: Value, replacement: Value) -> Value:
    if pattern.is_literal and replacement.is_literal and replacement.literal == "":
        # What follows the first match is cut: the text before it is what is left.
        body = str(pattern.literal)
        if body.endswith(".*") and not re.search(r"[\\()\[\]{}|^$?+*]", body[:-2]):
            return _call(f"{of.tight}.split({text_literal(body[:-2])})[0]", "string", of)
    raise Untranslatable("CEL for admission cannot replace what a regular expression matches")


def _type(of: Value) -> Value:
    if of.kind in _EMPTY:
        told = {"list": "array", "map": "object", "bool": "boolean"}.get(of.kind, of.kind)
        return literal(told)
    raise Untranslatable("type() is of a value whose kind is not known")


def _abs(of: Value) -> Value:
    return replace(_call(f"{of.tight} < 0 ? -{of.tight} : {of.text}", "number", of), loose=True)


def _to_boolean(of: Value) -> Value:
    if of.kind == "bool":
        return of
    text = f"string({of.text}).lowerAscii() == 'true'"
    return replace(_call(text, "bool", of), loose=True)


FUNCTIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "abs": _abs,
    "add": _arithmetic("+"),
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
    "min": _of_list("min"),
    "modulo": _arithmetic("%"),
    "multiply": _arithmetic("*"),
    "not_null": _not_null,
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
    "to_string": _to_string,
    "to_upper": _method("upperAscii", "string"),
    "trim": _trim,
    "trim_prefix": _trim_prefix,
    "truncate": _truncate,
    "type": _type,
    "values": _values,
}
"""How each function is written in CEL, from the values of its arguments."""

_KNOWN_TO_KYVERNO: Final = frozenset(
    "avg base64_decode base64_encode ceil compare floor image_normalize is_external_url md5 merge "
    "object_from_lists parse_json parse_yaml path_canonicalize random round sha1 sha256 time_add "
    "time_after time_before time_between time_cron time_diff time_now time_now_utc time_parse "
    "time_since time_to_cron time_truncate time_utc x509_decode zip".split()
)


def _quoted(expression: str) -> str:
    shown = expression if len(expression) <= _SHOWN else f"{expression[:_SHOWN]}…"
    return f"`{shown}`"


_SHOWN: Final = 80

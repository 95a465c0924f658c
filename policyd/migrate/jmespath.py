"""Translate JMESPath, with the functions that Kyverno adds to it, to CEL.

JMESPath has null where CEL has an error: a field that is absent, an index out of range. The
translation of a part is therefore a `CelTerm`: its text in CEL, and the optionals that it needs
to have values. Where the part is used says what absence means there: an empty list where
elements are asked for, false where a condition is asked for, else the default of `||`.
`||` also passes over what is there and empty; for a field of which that is no use, such as a
name, the translation only asks whether it is there, as a person would write it.

Kinds of values (string, list, map) decide between `contains` of a string and of a list, for
instance. They come from literals, from functions, and from the names of the fields: Kubernetes'
own types use one kind for nearly all fields of a name.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import jmespath.exceptions
import jmespath.parser

from policyd.cel.syntax.literals import text_literal
from policyd.migrate.cel_values import (
    EMPTY,
    IDENTIFIER,
    CelTerm,
    OutsideError,
    Untranslatable,
    all_of,
    condition,
    element_name,
    element_of,
    element_shapes,
    has,
    listing,
    literal,
    member,
    shaped,
    shapes_of_field,
    value_of_optional,
)
from policyd.migrate.jmespath_functions import CONCATENATION, FUNCTIONS, KNOWN_TO_KYVERNO, keys_text
from policyd.migrate.jmespath_functions_of_kyverno import KYVERNO_FUNCTIONS, MOMENTS

_RESERVED: Final = frozenset(
    [
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import"),
        *("in", "let", "loop", "namespace", "null", "package", "return", "true", "var", "void"),
        *("while", "object", "oldObject", "request", "variables", "params", "images"),
        "exceptions",
    ]
)


_LONGEST: Final = 20_000
"""Characters of an expression; Kyverno's own are below 2,000."""


_DEEPEST: Final = 60


def translate(
    expression: str, roots: Mapping[str, str | CelTerm], *, scope: str | CelTerm | None = None
) -> str:
    """Return a JMESPath expression in CEL; where it is null, the CEL is null or fails.

    Args:
        expression: JMESPath; `{{ }}` in its literals are variables of their own.
        roots: CEL texts of the variables by their dotted paths: `request.object` is `object`.
        scope: The CEL text of the value that the expression is asked of, if it is of a value.

    Raises:
        Untranslatable: If a part has no counterpart in CEL, or is not JMESPath.
    """
    found = value_of(expression, roots, scope=scope)
    if not found.needs or found.kind == "bool":
        return found.truth() if found.needs else found.text
    return found.listed() if found.kind == "list" and found.itself else found.text


def value_of(
    expression: str,
    roots: Mapping[str, str | CelTerm],
    *,
    scope: str | CelTerm | None = None,
    kyverno: bool = False,
) -> CelTerm:
    """Return the value of a JMESPath expression in CEL. See `translate`.

    Args:
        expression: JMESPath.
        roots: CEL of the variables by their dotted paths.
        scope: The value that the expression is asked of, if it is of a value.
        kyverno: Whether the functions that Kyverno adds to CEL may be used.

    Raises:
        OutsideError: If a part has a counterpart in the CEL of Kyverno's own kinds only.
        Untranslatable: If a part has no counterpart in CEL, or is not JMESPath.
    """
    if len(expression) > _LONGEST:
        raise Untranslatable(f"the expression has over {_LONGEST:,} characters")
    known = {path: _root(path, text) for path, text in roots.items()}
    text, nested = _without_variables(expression)
    try:
        tree: Any = jmespath.parser.Parser().parse(text).parsed
    except jmespath.exceptions.JMESPathError as error:
        at = getattr(error, "lex_position", None) or 0
        raise Untranslatable(f"{_quoted(expression)} is not JMESPath", at) from error
    except RecursionError as error:
        raise Untranslatable("the expression is nested too deeply") from error
    if _depth_of(tree) > _DEEPEST:
        raise Untranslatable("the expression is nested too deeply")
    for name, inner in nested.items():
        known[name] = value_of(inner, roots, kyverno=kyverno)  # Kyverno replaces these first
    root = scope if scope is None or isinstance(scope, CelTerm) else CelTerm(text=scope)
    return _Translation(known, kyverno)(tree, root)


def _root(path: str, text: str | CelTerm) -> CelTerm:
    if isinstance(text, CelTerm):
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
    """Replace `{{ }}` by variables of their own, in literals and names, too.

    Kyverno puts their texts in: in quotes they are values, outside of them a part of the expression
    itself, of which only a name after a dot has a counterpart.
    """
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
        if quote == "`" and len([piece for piece in pieces if piece.strip()]) == 1:
            return _name(pieces[places.index(True)])
        if quote != "'":
            shown = _PLACE.sub("{{ }}", whole)
            raise Untranslatable(f"{shown} is made of text and a variable")
        texts = (
            _name(piece) if place else f"'{piece}'"
            for piece, place in zip(pieces, places, strict=True)
        )
        return f"{CONCATENATION}({', '.join(texts)})"

    literals = _QUOTED.sub(in_literal, marked)
    return _PLACE.sub(lambda match: f"{_PART}{_name(match.group())}", literals), nested


def _name(place: str) -> str:
    return f"nested_{place[1:-1]}"


_PART: Final = "part_"
"""What begins the name of a variable that stands for a part of the expression."""
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
        kyverno: Whether the functions that Kyverno adds to CEL may be used.
        taken: The names that comprehensions around have.
    """

    roots: Mapping[str, CelTerm]
    kyverno: bool
    taken: list[str] = field(default_factory=list)

    def __call__(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401 - a node
        """Return the value of a node; `scope` is `@`, None at the root of all variables."""
        return self._value_at(self.part(node, scope))

    def _value_at(self, found: "CelTerm | _Partial") -> CelTerm:
        """Return the value at a path: a variable, or one of all variables below it."""
        if not isinstance(found, _Partial):
            return found
        if f"{found.path}.*" in self.roots:
            return self.roots[f"{found.path}.*"]
        raise Untranslatable(f"the variable {found.path} is not known here")

    def part(self, node: Any, scope: CelTerm | None) -> "CelTerm | _Partial":  # noqa: ANN401 - a node
        """Return the value of a node, or the path that may become one."""
        method = getattr(self, f"_{node['type']}", None)
        if method is None:
            raise Untranslatable(f"policyd does not translate {node['type'].replace('_', ' ')}")
        found: CelTerm | _Partial = method(node, scope)
        return found

    # Paths.

    def _field(self, node: Any, scope: "CelTerm | _Partial | None") -> "CelTerm | _Partial":  # noqa: ANN401
        name = node["value"]
        if self._part_name(node):
            raise Untranslatable("a `{{ }}` without quotes stands for a part of an expression")
        if not name:
            return literal(None)  # no field has the empty name: `x || ""` is meant as a default
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

    def _part_name(self, node: Any) -> CelTerm | None:  # noqa: ANN401
        """Return the variable whose text stands in the expression instead of a node."""
        name = str(node.get("value"))
        part = name.startswith(f"{_PART}nested_")
        return self.roots.get(name.removeprefix(_PART)) if part else None

    def _chosen(self, of: CelTerm, key: str) -> CelTerm:
        """Return the value of a map under a computed key."""
        optional = f"{of.needs[0] if of.itself else of.tight}[?{key}]"
        return shaped(
            f"{of.tight}[{key}]", element_shapes(of.shapes), needs=(optional,), itself=True
        )

    def _current(self, _node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        if scope is None:
            raise Untranslatable("`@` is all variables here")
        return scope

    _identity = _current

    def _subexpression(self, node: Any, scope: CelTerm | None) -> "CelTerm | _Partial":  # noqa: ANN401
        first, *others = node["children"]
        base = self.part(first, scope)
        for each in others:
            key = self._part_name(each)
            if key is not None and isinstance(base, CelTerm):
                base = self._chosen(base, key.text)
            elif each["type"] == "field":
                base = self._field(each, base)
            else:
                base = self(each, self._value_at(base))
        return base

    def _pipe(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        for each in node["children"]:
            scope = self(each, scope)
        return self._current(node, scope)

    _index_expression = _pipe

    def _index(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        of, number = self._current(node, scope), node["value"]
        kept = shaped("", element_shapes(of.shapes))
        if not of.shapes:
            kept = replace(kept, kind=of.element)
        if of.keys_of is not None:
            of = replace(of, text=keys_text(of.keys_of), keys_of=None)
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

    def _slice(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        of = self._current(node, scope)
        start, stop, step = node["children"]
        if step not in (None, 1) or (start or 0) < 0 or (stop is not None and stop < 0):
            raise Untranslatable("policyd translates slices from the start on only: `[0:2]`")
        size = f"{of.listed()}.size()"
        last = size if stop is None else f"[{size}, {stop}].min()"
        bounded = f"[{size}, {start}].min()" if start else "0"
        return listing(f"{of.listed()}.slice({bounded}, {last})", of)

    # Projections.

    def _flatten(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        of = self(node["children"][0], scope)
        if of.kind == "dyn":
            of = replace(of, kind="list", element="dyn")
        if of.keys_of is not None or of.element in ("string", "number", "bool", "map"):
            return of
        if of.element == "list" or of.made:
            return listing(f"{of.listed()}.flatten()", of, element="dyn")
        return of

    def _projection(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        left, right = node["children"]
        return self._mapped(self(left, scope), right)

    def _value_projection(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        left, right = node["children"]
        of = self(left, scope)
        variable = self._variable(of)
        source = of.otherwise("{}") if of.itself else of.tight
        element = CelTerm(text=f"{source}[{variable}]", kind=of.element)
        values = listing(f"{source}.map({variable}, {element.text})", of, element=of.element)
        return values if right["type"] == "identity" else self._mapped(values, right)

    def _filter_projection(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        left, right, condition = node["children"]
        return self._mapped(self(left, scope), right, condition)

    def _mapped(self, of: CelTerm, right: Any, condition: Any = None) -> CelTerm:  # noqa: ANN401
        """Return what `right` is for each element for which a condition holds, less nulls."""
        if condition is None and right["type"] == "identity":
            return replace(of, kind="list") if of.kind == "dyn" else of
        source = of.keys_of if of.keys_of is not None else of.listed()
        variable = self._variable(of)
        element = element_of(of, variable)
        self.taken.append(variable)
        try:
            kept = "" if condition is None else self(condition, element).truth()
            made = self(right, element)
        finally:
            self.taken.pop()
        if made.text == variable:
            return listing(f"{source}.filter({variable}, {kept})", of, element=element.kind)
        if made.kind == "list":
            made = replace(made, text=made.listed(), needs=(), itself=False)
        present = (
            all_of([part for part in (kept, made.present()) if part]) if kept else made.present()
        )
        arguments = [variable, *([present] if present else []), made.text]
        return replace(
            listing(f"{source}.map({', '.join(arguments)})", of, element=made.kind),
            name=made.name,
            made=made.kind == "dyn",
            shapes=frozenset(("list", shape) for shape in made.shapes),
        )

    def _variable(self, of: CelTerm) -> str:
        """Return a name for an element that nothing around has."""
        wanted = of.name if IDENTIFIER.fullmatch(of.name) else "e"
        if wanted in _RESERVED or wanted in self.roots:
            wanted = "e"
        chosen, number = wanted, 2
        while chosen in self.taken:
            chosen, number = f"{wanted}{number}", number + 1
        return chosen

    # Literals and what is made of several.

    def _literal(self, node: Any, _scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        return literal(node["value"])

    def _multi_select_list(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        parts = [self(child, scope) for child in node["children"]]
        if parts and all(part.kind == "list" for part in parts):
            joined = " + ".join(part.listed() for part in parts)
            # One level less than JMESPath has: its `[]` follows, and has nothing left to do.
            return CelTerm(
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
        return CelTerm(
            text=f"[{', '.join(shown)}]",
            kind="list",
            element=same.pop() if len(same) == 1 else "dyn",
            made=True,
        )

    def _multi_select_dict(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        pairs = []
        for pair in node["children"]:
            part = self(pair["children"][0], scope)
            key = text_literal(pair["value"])
            pairs.append(f"?{key}: {part.optional()}" if part.needs else f"{key}: dyn({part.text})")
        return CelTerm(text=f"{{{', '.join(pairs)}}}", kind="map")

    def _with_nulls(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        """Return an object whose absent values are null: merged, they take the place of others.

        `{a: null}` is a field of the name null in JMESPath, and is meant to be null itself.
        """
        pairs, keys = [], [pair["value"] for pair in node["children"]]
        for pair in node["children"]:
            given = pair["children"][0]
            if given["type"] == "field" and given["value"] == "null":
                shown = "null" if len(keys) == 1 else "dyn(null)"
            else:
                part = self(given, scope)
                shown = f"{part.optional()}.optMap(v, dyn(v)).orValue(dyn(null))"
                shown = shown if part.needs else f"dyn({part.text})"
            pairs.append(f"{text_literal(pair['value'])}: {shown}")
        return CelTerm(
            text=f"{{{', '.join(pairs)}}}", kind="map", keys_of=literal(keys).text, name="key"
        )

    # Conditions.

    def _or_expression(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        left, right = (self(child, scope) for child in node["children"])
        either = f"{_operand(left)} || {_operand(right)}"
        if "bool" in (left.kind, right.kind) and not right.is_literal:
            return condition(either, loose=True)
        if right.is_literal:
            return _with_default(left, right)
        kind = left.kind if left.kind == right.kind else "dyn"
        if right.needs:
            optional = f"{left.optional()}.or({right.optional()})"
            if left.kind == "string":
                optional = f"({left.truth()} ? {left.optional()} : {right.optional()})"
            made = value_of_optional(optional, kind=kind)
        elif left.itself and left.kind != "string":
            made = CelTerm(text=left.otherwise(right.text), kind=kind)
        else:
            text = f"{left.truth()} ? {left.text} : {right.text}"
            made = CelTerm(text=text, kind=kind, loose=True)
        return replace(made, element=left.element, name=left.name, condition=either)

    def _and_expression(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        left, right = (self(child, scope) for child in node["children"])
        both = f"{_operand(left)} && {_operand(right)}"
        if right.kind == "bool":
            return condition(both, loose=True)
        sure = " && ".join(part for part in (left.truth(), right.present()) if part)
        text = f"{sure} ? dyn({right.text}) : dyn(false)"
        return CelTerm(text=text, condition=both, loose=True)

    def _not_expression(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        of = self(node["children"][0], scope)
        return condition(_negated(of.truth()))

    def _comparator(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        left, right = (self(child, scope) for child in node["children"])
        relation = {"eq": "==", "ne": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}[
            node["value"]
        ]
        if left.is_literal and not right.is_literal:
            left, right = right, left
            relation = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(relation, relation)
        if relation in ("==", "!="):
            return condition(_equality(left, right, relation), loose=True)
        numbers = [*map(has, left.needs), *map(has, right.needs)]
        return condition(all_of([*numbers, f"{left.text} {relation} {right.text}"]), loose=True)

    # Functions.

    def _function_expression(self, node: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        name = node["value"]
        if name in ("map", "sort_by", "max_by", "min_by"):
            return self._by_reference(name, node["children"], scope)
        merging = name == "merge"
        arguments = [
            self._with_nulls(child, scope)
            if merging and child["type"] == "multi_select_dict"
            else self(child, scope)
            for child in node["children"]
        ]
        try:
            return self._called(name, arguments)
        except TypeError as error:
            raise Untranslatable(f"{name}() does not take {len(arguments)} arguments") from error

    def _called(self, name: str, arguments: list[CelTerm]) -> CelTerm:
        make, of_kyverno = FUNCTIONS.get(name) or MOMENTS.get(name), KYVERNO_FUNCTIONS.get(name)
        if make is None and of_kyverno is None:
            known = "" if name in KNOWN_TO_KYVERNO else ", and Kyverno has none of that name"
            raise Untranslatable(f"CEL for admission has no function such as {name}(){known}")
        if make is not None:
            try:
                return make(*arguments)
            except Untranslatable:
                if of_kyverno is None:
                    raise
        assert of_kyverno is not None, "one of both is there"
        if not self.kyverno:
            raise OutsideError(f"{name}() is a function of Kyverno's own kinds")
        return of_kyverno(*arguments)

    def _by_reference(self, name: str, children: Any, scope: CelTerm | None) -> CelTerm:  # noqa: ANN401
        listed, reference = children if name != "map" else reversed(children)
        if reference["type"] != "expref":
            raise Untranslatable(f"{name}() takes an expression such as `&name`")
        of = self(listed, scope)
        variable = self._variable(of)
        self.taken.append(variable)
        try:
            made = self(reference["children"][0], element_of(of, variable))
        finally:
            self.taken.pop()
        if name == "map":
            text = f"{of.listed()}.map({variable}, {made.otherwise('null')})"
            return listing(text, of, element=made.kind)
        ordered = f"{of.listed()}.sortBy({variable}, {made.text})"
        if name == "sort_by":
            return listing(ordered, of, element=of.element)
        optional = f"{ordered}.{'last' if name == 'max_by' else 'first'}()"
        return value_of_optional(optional, kind=of.element)


def _operand(value: CelTerm) -> str:
    text = value.truth()
    return f"({text})" if "&&" in text or "||" in text or " ? " in text else text


def _negated(condition: str) -> str:
    simple = re.fullmatch(r"!?[\w.?]+(\([^()]*\))?", condition)
    if condition.startswith("!") and simple:
        return condition[1:]
    return f"!{condition}" if simple else f"!({condition})"


def _in_list(value: CelTerm, *, mixed: bool) -> str:
    return f"dyn({value.text})" if mixed or value.kind == "dyn" else value.text


def _with_default(left: CelTerm, right: CelTerm) -> CelTerm:
    """Return a value, or a literal where JMESPath takes the value for false."""
    if right.kind == "null":
        return left
    if left.kind == "list" and right.literal in ("", []):
        return replace(left, text=left.listed(), needs=(), itself=False)
    kind = left.kind if left.kind != "dyn" else right.kind
    element = left.element if left.kind == "list" else right.element
    if left.keys_of is not None:
        return left
    # A quantity is a text or a number, and the default must not decide which.
    either = ("dyn",) in left.shapes and right.kind == "string"
    text = left.otherwise(f"dyn({right.text})" if either else right.text)
    return CelTerm(text=text, kind=kind, element=element, name=left.name, shapes=left.shapes)


def _equality(left: CelTerm, right: CelTerm, relation: str) -> str:
    if right.kind == "null":
        present = left.present()
        if not present:
            return f"{left.text} {relation} null"
        return present if relation == "!=" else _negated(present)
    if left.kind != right.kind and "dyn" not in (left.kind, right.kind):
        left = replace(left, text=f"dyn({left.text})", kind="dyn", itself=False, loose=False)
    if not left.needs and not right.needs:
        return f"{left.tight if left.kind == 'bool' else left.text} {relation} {right.tight}"
    if right.is_literal and right.kind in ("string", "number", "bool"):
        return _equality_to_literal(left, right, relation)
    return f"{left.optional()} {relation} {right.optional()}"


def _equality_to_literal(left: CelTerm, right: CelTerm, relation: str) -> str:
    """Compare what may be absent with a text, number or bool; absent, it equals none."""
    if right.kind == left.kind == "bool":
        if right.literal:
            return left.truth() if relation == "==" else _negated(left.truth())
        present_and_true = left.otherwise("true")
        return _negated(present_and_true) if relation == "==" else present_and_true
    if right.literal in ("", 0, False):
        return f"{left.optional()} {relation} optional.of({right.text})"
    return f"{left.otherwise(EMPTY[right.kind])} {relation} {right.text}"


def _quoted(expression: str) -> str:
    shown = expression if len(expression) <= _SHOWN else f"{expression[:_SHOWN]}…"
    return f"`{shown}`"


_SHOWN: Final = 80

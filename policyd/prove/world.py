"""The unknown objects of a proof: what JSON may be where, created as expressions ask for it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import z3

from policyd.api.meta import Json
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.prove.schemas import ANY, KINDS, PRESENT, Kind, ValueSchema, perhaps
from policyd.prove.values import (
    FALSE,
    TRUE,
    Alternative,
    Bool,
    Double,
    Int,
    Listing,
    Null,
    Outcome,
    Text,
    UnencodableError,
    any_of,
    is_false,
    sure,
    text_of_term,
    text_term,
)

_MOST_WORK: Final = 400_000
"""Nodes and values, for one question and kind."""


@dataclass(eq=False)
class UnknownValue:
    """A value of JSON that is not known: its kind, and a constant for each kind.

    Attributes:
        world: Where it is.
        path: Its path, which names the constants.
        schema: What it may be.
        children: Its fields, as far as they were asked for.
    """

    world: "World"
    path: str
    schema: ValueSchema
    children: dict[str, "UnknownValue"] = field(default_factory=dict)
    _items: list["UnknownValue"] | None = None
    _extras: list[tuple[Any, "UnknownValue"]] | None = None
    _seen: int = -1
    _conditions: dict[tuple[Kind, ...], Any] = field(default_factory=dict)
    _alternatives: Outcome | None = None
    _missing: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.kind = z3.Int(f"{self.path}#kind")
        self.world.nodes.append(self)

    def is_a(self, *kinds: Kind) -> Any:  # noqa: ANN401 - a term of z3
        """Return the condition that it is of one of some kinds."""
        if kinds not in self._conditions:
            # In one order whatever sets are in: how long the solver takes depends on it.
            possible = [kind for kind in KINDS if kind in kinds and kind in self.schema.kinds]
            whole = len(possible) == len(self.schema.kinds)
            each = (self.kind == KINDS.index(kind) for kind in possible)
            self._conditions[kinds] = TRUE if whole else any_of(each)
        return self._conditions[kinds]

    @property
    def present(self) -> Any:  # noqa: ANN401 - a term of z3
        """The condition that it is there."""
        return self.is_a(*PRESENT)

    def of(self, sort: str) -> Any:  # noqa: ANN401 - a constant of z3
        """Return the constant of a kind: bool, int, double, string or length."""
        if sort == "string" and len(self.schema.values) == 1:
            return text_term(self.schema.values[0])
        make = {"bool": z3.Bool, "int": z3.Int, "double": z3.Real, "string": z3.String}
        return make.get(sort, z3.Int)(f"{self.path}#{sort}")

    def alternatives(self) -> Outcome:
        """Return what it may be, a map as this node itself."""
        if self._alternatives is None:
            self._alternatives = self._possible()
        return self._alternatives

    def _possible(self) -> Outcome:
        kinds = self.schema.kinds
        made = [
            Alternative(self.is_a("bool"), Bool(self.of("bool"))),
            Alternative(self.is_a("int"), Int(self.of("int"))),
            Alternative(self.is_a("double"), Double(self.of("double"))),
            Alternative(self.is_a("string"), Text(self.of("string"))),
            Alternative(self.is_a("null"), Null()),
        ]
        if "list" in kinds:
            made.append(Alternative(self.is_a("list"), self.listing()))
        if "map" in kinds:
            made.append(Alternative(self.is_a("map"), self))
        return tuple(each for each in made if not is_false(each.when))

    def listing(self) -> Listing:
        """Return its elements, as a list."""
        if self._items is None:
            element = self.schema.element or ANY
            self._items = [
                UnknownValue(self.world, f"{self.path}[{index}]", element)
                for index in range(self.world.bound)
            ]
        length = self.of("length")
        return Listing(
            tuple((length > index, sure(item)) for index, item in enumerate(self._items))
        )

    def field(self, name: str) -> "UnknownValue | None":
        """Return a field of the map that it is; None if it cannot have such a field."""
        if name not in self.children:
            schema = self._schema_of_field(name)
            if schema is None:
                self._missing.add(name)
                return None
            self.children[name] = UnknownValue(self.world, f"{self.path}.{name}", schema)
        return self.children[name]

    def _schema_of_field(self, name: str) -> ValueSchema | None:
        known = self.schema.fields or {}
        if name in known or (self.schema.fields is not None and self.schema.element is None):
            return known.get(name)
        return perhaps(self.schema.element or ANY)

    def entries(self) -> list[tuple[Any, Any, "UnknownValue"]]:
        """Return what the map may have: conditions, keys and values."""
        for name in self.schema.fields or ():
            self.field(name)
        whole = self.schema.fields is not None and self.schema.element is None
        if self._extras is None and not whole:
            element = self.schema.element or ANY
            self._extras = [
                (
                    z3.String(f"{self.path}#key{index}"),
                    UnknownValue(self.world, f"{self.path}#value{index}", element),
                )
                for index in range(self.world.bound)
            ]
        known = len(self.children)
        self._seen = known if self._seen < 0 else min(self._seen, known)
        size = self.of("size")
        return [
            *((node.present, text_term(name), node) for name, node in self.children.items()),
            *((size > index, key, node) for index, (key, node) in enumerate(self._extras or ())),
        ]

    def alike(self, other: "UnknownValue") -> bool:
        """Whether all that was asked of it so far would be the same of another."""
        mine, its = self.schema, other.schema
        if not (
            mine.same_apart_from_parts(its)
            and other.children.keys() <= self.children.keys()
            and (self._seen < 0 or {*(mine.fields or ())} == {*(its.fields or ())})
            and all(other.field(name) is None for name in self._missing)
        ):
            return False
        parts = [(child, other.field(name)) for name, child in self.children.items()]
        if self._items is not None:
            elements = other.listing().elements
            parts += zip(self._items, (each[0].value for _, each in elements), strict=True)
        if self._extras is not None:
            values = [node for _, _, node in other.entries()][-len(self._extras) :]
            parts += zip((node for _, node in self._extras), values, strict=True)
        return all(its is not None and mine.alike(its) for mine, its in parts)

    @property
    def grown(self) -> bool:
        """Whether fields were asked for after its entries were."""
        return self._seen not in (-1, len(self.children))

    def axioms(self) -> Iterator[Any]:
        """Yield what holds of its constants whatever the object."""
        yield z3.Or(*(self.kind == KINDS.index(k) for k in KINDS if k in self.schema.kinds))
        if "int" in self.schema.kinds:
            least, greatest = self.schema.bounds
            yield z3.And(self.of("int") >= least, self.of("int") <= greatest)
        if len(self.schema.values) > 1:
            yield z3.Or(*(self.of("string") == value for value in self.schema.values))
        if self.world.typed and not self.schema.empty:
            yield from self._filled()
        if self.world.typed and self.schema.quantity:
            text = self.of("string")
            yield self.kind != KINDS.index("int")
            yield z3.Or(self.kind != KINDS.index("string"), reading("quantity", text)[0])
        if self.world.typed and self.schema.always:
            yield self.kind != KINDS.index("absent")
        if self._items is not None:
            yield z3.And(self.of("length") >= 0, self.of("length") <= self.world.bound)
        if self._extras is not None:
            yield z3.And(self.of("size") >= 0, self.of("size") <= self.world.bound)
            keys = [key for key, _ in self._extras]
            yield z3.Distinct(*keys, *(text_term(name) for name in self.children))

    def _filled(self) -> Iterator[Any]:
        """Yield that it is not what the API server omits."""
        for kind, empty in (("int", 0), ("double", 0), ("string", text_term("")), ("bool", FALSE)):
            if kind in self.schema.kinds:
                yield z3.Or(self.kind != KINDS.index(kind), self.of(kind) != empty)
        if self._items is not None:
            yield z3.Or(self.kind != KINDS.index("list"), self.of("length") > 0)
        if self._extras is not None:
            some = any_of([self.of("size") > 0, *(node.present for node in self.children.values())])
            yield z3.Or(self.kind != KINDS.index("map"), some)

    def json(self, model: z3.ModelRef) -> Json:
        """Return what it is in a model of the solver.

        Raises:
            KeyError: If it is absent.
        """
        kind = KINDS[model.eval(self.kind, model_completion=True).as_long()]
        if kind not in self.schema.kinds:
            kind = next(each for each in KINDS if each in self.schema.kinds)
        match kind:
            case "absent":
                raise KeyError(self.path)
            case "null":
                return None
            case "list":
                if self._items is None:
                    return [] if self.schema.empty or not self.world.typed else [_any(self.schema)]
                length = _number(model, self.of("length"))
                return [item.json(model) for item in self._items[:length]]
            case "map":
                return self._map(model)
            case _:
                term = self.of(kind)
                found = self.world.chosen.get(term.sexpr()) or _scalar(model, kind, term)
                return _canonical(found) if self.schema.quantity else found

    def _map(self, model: z3.ModelRef) -> Json:
        made: dict[str, Json] = {}
        for name, node in self.children.items():
            if is_present(model, node):
                made[name] = node.json(model)
        if self._extras is not None:
            for key, node in self._extras[: _number(model, self.of("size"))]:
                made[text_of(model, key)] = node.json(model)
        return made


def _any(schema: ValueSchema) -> Json:
    """Return an element of a list of which nothing is asked but that it is not empty."""
    kinds = ANY.kinds if schema.element is None else schema.element.kinds
    found: dict[str, Json] = {"string": "a", "int": 1, "bool": True, "list": [], "map": {}}
    return next((value for kind, value in found.items() if kind in kinds), None)


def reading(kind: str, text: Any) -> tuple[Any, Any]:  # noqa: ANN401 - terms of z3
    """Return whether a string is a quantity, duration or timestamp, and which."""
    fine = z3.Function(f"{kind}#fine", z3.StringSort(), z3.BoolSort())
    value = z3.Function(kind, z3.StringSort(), z3.RealSort())
    return fine(text), value(text)


def _canonical(found: Json) -> Json:
    """Return a quantity as the API server writes it; any one for a text that is none."""
    try:
        return str(parse_quantity(str(found)))
    except QuantityError:
        return "1"


def is_present(model: z3.ModelRef, node: UnknownValue) -> bool:
    """Whether a node is there in a model."""
    return bool(z3.is_true(model.eval(node.present, model_completion=True)))


def text_of(model: z3.ModelRef, term: Any) -> str:  # noqa: ANN401 - a term of z3
    """Return the text of a string in a model."""
    return text_of_term(model.eval(term, model_completion=True))


def _number(model: z3.ModelRef, term: Any) -> int:  # noqa: ANN401 - a term of z3
    return int(model.eval(term, model_completion=True).as_long())


def _scalar(model: z3.ModelRef, kind: str, term: Any) -> Json:  # noqa: ANN401 - a term of z3
    if kind == "string":
        return text_of(model, term)
    found = model.eval(term, model_completion=True)
    if kind == "bool":
        return bool(z3.is_true(found))
    if kind == "int":
        return int(found.as_long())
    return float(found.numerator_as_long()) / float(found.denominator_as_long())


@dataclass
class World:
    """All unknown values of a proof.

    Attributes:
        bound: The greatest number of elements of a list or map.
        typed: Whether objects are as the API server's own types write them.
        nodes: The values.
        facts: What else holds.
        measured: The strings that are read as quantities, durations or times.
        spent: The work done so far: nodes that were visited, with loops unrolled, and values there.
        chosen: The texts of an example that are read as quantities or durations, by their terms.
        encoded: The outcomes of expressions by all that they depend on, with what their keys name.
    """

    bound: int
    typed: bool = False
    nodes: list[UnknownValue] = field(default_factory=list)
    facts: list[Any] = field(default_factory=list)
    measured: dict[str, tuple[str, Any, Any]] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    spent: int = 0
    encoded: dict[Any, tuple[Outcome, Any]] = field(default_factory=dict)

    def spend(self, work: int) -> None:
        """Count the work of an expression.

        Raises:
            UnencodableError: If it is too much.
        """
        self.spent += work
        if self.spent > _MOST_WORK:
            raise UnencodableError("expressions of this size: their loops unroll too often")

    def choose(self, model: z3.ModelRef) -> None:
        """Choose texts for the quantities and durations of a model, which knows only values."""
        self.chosen.clear()
        for name, (kind, text, value) in self.measured.items():
            fine, _ = reading(kind, text)
            if kind != "timestamp" and z3.is_true(model.eval(fine, model_completion=True)):
                found = model.eval(value, model_completion=True)
                number = Fraction(found.numerator_as_long(), found.denominator_as_long())
                whole = number.denominator == 1
                written = str(number.numerator) if whole else f"{float(number):f}"
                self.chosen[name] = written + ("s" if kind == "duration" else "")

    def begin(self) -> None:
        """Forget the facts, and how much the entries of maps were, for another encoding."""
        self.facts.clear()
        self.encoded.clear()
        for node in self.nodes:
            node._seen = -1  # noqa: SLF001 - of the same file

    @property
    def grown(self) -> bool:
        """Whether expressions have to be encoded again, since fields were found later."""
        return any(node.grown for node in self.nodes)

    def axioms(self) -> list[Any]:
        """Return all that holds whatever the objects."""
        return [axiom for node in self.nodes for axiom in node.axioms()] + self.facts

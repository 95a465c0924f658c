"""Quantities, durations and timestamps, and the strings that are read as these, as formulas."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import z3

from policyd.api.quantity import QuantityError, parse_quantity
from policyd.cel import Budget, CelError, base_environment, compile_expression
from policyd.cel.types import STRING
from policyd.prove import values as v
from policyd.prove.outcomes import real
from policyd.prove.values import FALSE, TRUE, Outcome, only_if, sure, text_of_term
from policyd.prove.world import World, reading


def measure(kind: str) -> Callable[..., Outcome]:
    """Return a function that reads a string as a quantity, duration or timestamp."""

    def make(world: World, of: Any) -> Outcome:  # noqa: ANN401
        if isinstance(of, v.Measure) and of.kind == kind:
            return sure(of)
        if not isinstance(of, v.Text):
            return ()
        fine, value = _reading(world, kind, of.term)
        return only_if(fine, sure(v.Measure(kind, value)))

    return make


def _reading(world: World, kind: str, text: Any) -> tuple[Any, Any]:  # noqa: ANN401 - terms of z3
    """Return whether a string is a quantity, say, and which; known for constants."""
    fine, value = reading(kind, text)
    if not z3.is_string_value(text):
        world.measured[text.sexpr()] = (kind, text, value)
        return fine, value
    known = _READERS[kind](text_of_term(text))
    if known is None:
        world.facts.append(z3.Not(fine))
        return FALSE, z3.RealVal(0)
    term = z3.Q(known.numerator, known.denominator)
    world.facts += [fine, value == term]
    return TRUE, term


def _read_quantity(text: str) -> Fraction | None:
    try:
        return Fraction(parse_quantity(text).nano, 10**9)
    except QuantityError:
        return None


def _read_by(name: str) -> Callable[[str], Fraction | None]:
    """Return a reader of durations or timestamps, as CEL reads them, in seconds."""
    source = (
        f"{name}(text)" if name == "duration" else f"{name}(text) - {name}('1970-01-01T00:00:00Z')"
    )
    environment = base_environment().extend(variables={"text": STRING})
    program = compile_expression(f"[{source}].map(d, string(d))[0]", environment)

    def read(text: str) -> Fraction | None:
        try:
            return Fraction(str(program.evaluate({"text": text}, Budget())).removesuffix("s"))
        except CelError:
            return None

    return read


_READERS: Final[dict[str, Callable[[str], Fraction | None]]] = {
    "quantity": _read_quantity,
    "duration": _read_by("duration"),
    "timestamp": _read_by("timestamp"),
}


def is_quantity(world: World, of: Any) -> Outcome:  # noqa: ANN401
    """Return whether a string is a quantity."""
    return sure(v.Bool(_reading(world, "quantity", of.term)[0])) if isinstance(of, v.Text) else ()


def whole_amount(world: World, of: Any) -> Outcome:  # noqa: ANN401
    """Return an amount of devices as a pod's methods count it: rounded up, and at least none."""
    if isinstance(of, v.Int):
        return sure(v.Int(z3.If(of.term > 0, of.term, z3.IntVal(0))))
    if not isinstance(of, v.Text):
        return ()
    fine, value = _reading(world, "quantity", of.term)
    return only_if(fine, sure(v.Int(z3.If(value > 0, -z3.ToInt(-value), z3.IntVal(0)))))


def of_quantities(compute: Callable[[Any, Any], Any]) -> Callable[..., Outcome]:
    """Return a function of two quantities."""

    def make(_world: World, one: Any, other: Any) -> Outcome:  # noqa: ANN401
        if not isinstance(one, v.Measure) or one.kind != "quantity":
            return ()
        if isinstance(other, v.Int):
            return sure(compute(one.term, real(other)))
        if isinstance(other, v.Measure) and other.kind == "quantity":
            return sure(compute(one.term, other.term))
        return ()

    return make


def compare(one: Any, other: Any) -> v.Int:  # noqa: ANN401 - terms of z3
    """Return -1, 0 or 1 by how two numbers compare."""
    minus, none, plus = z3.IntVal(-1), z3.IntVal(0), z3.IntVal(1)
    return v.Int(z3.If(one < other, minus, z3.If(one > other, plus, none)))

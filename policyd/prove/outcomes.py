"""What outcomes with unknown values may be: conditions, numbers, and parts of lists and maps."""

from collections.abc import Iterable
from typing import Any

import z3

from policyd.prove.schemas import GREATEST, LEAST
from policyd.prove.values import (
    Alternative,
    Bool,
    Int,
    Listing,
    OptionalValue,
    Outcome,
    all_of,
    any_of,
    is_false,
    joined,
    negation,
    only_if,
    sure,
)
from policyd.prove.values import Mapping as MapValue
from policyd.prove.world import UnknownValue


def opened(outcome: Outcome) -> Outcome:
    """Return an outcome with what unknown values may be in place of them."""
    made: list[Alternative] = []
    for when, value in outcome:
        if isinstance(value, UnknownValue):
            made.extend(
                Alternative(all_of([when, each.when]), each.value) for each in value.alternatives()
            )
        else:
            made.append(Alternative(when, value))
    return joined(made)


def truth(outcome: Outcome) -> tuple[Any, Any]:
    """Return the conditions that an outcome is true, and that it is false."""
    found = [(when, each.term) for when, each in opened(outcome) if isinstance(each, Bool)]
    return (
        any_of(all_of([when, term]) for when, term in found),
        any_of(all_of([when, negation(term)]) for when, term in found),
    )


def decided(true: Any, false: Any) -> Outcome:  # noqa: ANN401 - terms of z3
    """Return the outcome that is true or false under conditions, and fails otherwise."""
    when = any_of([true, false])
    return () if is_false(when) else (Alternative(when, Bool(true)),)


def unwrapped(outcome: Outcome) -> tuple[Any, Outcome]:
    """Return whether an optional has a value, and which."""
    made: list[Alternative] = []
    there = []
    for when, value in outcome:
        if isinstance(value, OptionalValue):
            there.append(all_of([when, value.present]))
            made.extend(only_if(there[-1], value.value))
    return any_of(there), joined(made)


def entries_of(value: UnknownValue | MapValue) -> Iterable[tuple[Any, Any, Outcome]]:
    """Return the entries of a map: conditions, keys and values."""
    if isinstance(value, UnknownValue):
        return [(there, key, sure(node)) for there, key, node in value.entries()]
    return value.entries


def placed(value: Listing) -> Iterable[tuple[Any, Any, Outcome]]:
    """Return the elements of a list with their indices."""
    if value.dense:
        return [
            (z3.IntVal(index), there, outcome)
            for index, (there, outcome) in enumerate(value.elements)
        ]
    made = []
    before: Any = z3.IntVal(0)
    for there, outcome in value.elements:
        made.append((before, there, outcome))
        before = before + z3.If(there, z3.IntVal(1), z3.IntVal(0))
    return made


def real(value: Any) -> Any:  # noqa: ANN401 - a number, a term of z3
    """Return a number as a real one."""
    if isinstance(value, Int):
        if z3.is_int_value(value.term):
            return z3.RealVal(value.term.as_long())
        return z3.ToReal(value.term)
    return value.term


def in_range(term: Any) -> Outcome:  # noqa: ANN401 - a term of z3
    """Return an int, which fails where it has more than 64 bits."""
    term = z3.simplify(term)
    fits = z3.simplify(z3.And(term >= LEAST, term <= GREATEST))
    return only_if(fits, sure(Int(term)))


def size_of(value: Any) -> Any:  # noqa: ANN401 - a list or map, a term of z3
    """Return how many elements or entries a list or map has."""
    entries = value.elements if isinstance(value, Listing) else entries_of(value)
    one, none = z3.IntVal(1), z3.IntVal(0)
    return z3.simplify(z3.Sum(none, *(z3.If(each[0], one, none) for each in entries)))

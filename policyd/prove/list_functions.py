"""The functions of lists and sets as formulas."""

import itertools
from collections.abc import Callable
from typing import Any

import z3

from policyd.prove import values as v
from policyd.prove.equality import equal_outcomes
from policyd.prove.outcomes import in_range, opened
from policyd.prove.values import (
    TRUE,
    Alternative,
    Outcome,
    UnencodableError,
    all_of,
    any_of,
    joined,
    negation,
    only_if,
    succeeds,
    sure,
)
from policyd.prove.world import World


def _contains_all(one: v.Listing, other: v.Listing) -> Any:  # noqa: ANN401 - a term of z3
    """Return the condition that a list has all elements of another."""
    return all_of(
        any_of(
            [
                negation(there),
                *(all_of([has, equal_outcomes(part, each)]) for has, each in one.elements),
            ]
        )
        for there, part in other.elements
    )


def of_sets(name: str) -> Callable[..., Outcome]:
    """Return a function of two lists as sets: contains, equivalent or intersects."""

    def make(_world: World, one: Any, other: Any) -> Outcome:  # noqa: ANN401
        if not (isinstance(one, v.Listing) and isinstance(other, v.Listing)):
            return ()
        if name == "contains":
            return sure(v.Bool(_contains_all(one, other)))
        if name == "equivalent":
            both = [_contains_all(one, other), _contains_all(other, one)]
            return sure(v.Bool(all_of(both)))
        pairs = itertools.product(one.elements, other.elements)
        common = any_of(all_of([a, b, equal_outcomes(x, y)]) for (a, x), (b, y) in pairs)
        return sure(v.Bool(common))

    return make


def flattened(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    """Return a list with the elements of the lists in it."""
    if not isinstance(of, v.Listing):
        return ()
    elements: list[tuple[Any, Outcome]] = []
    for there, outcome in of.elements:
        for when, value in opened(outcome):
            here = all_of([there, when])
            if isinstance(value, v.Listing):
                elements += [(all_of([here, each]), inner) for each, inner in value.elements]
            else:
                elements.append((here, sure(value)))
    return sure(v.Listing(tuple(elements), dense=False))


def distinct(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    """Return a list without what is in it again."""
    if not isinstance(of, v.Listing):
        return ()
    kept: list[tuple[Any, Outcome]] = []
    for index, (there, outcome) in enumerate(of.elements):
        before = any_of(
            all_of([has, equal_outcomes(each, outcome)]) for has, each in of.elements[:index]
        )
        kept.append((all_of([there, negation(before)]), outcome))
    return sure(v.Listing(tuple(kept), dense=False))


def first_or_last(*, last: bool) -> Callable[..., Outcome]:
    """Return a function that gives the first or last element, as an optional."""

    def make(_world: World, of: Any) -> Outcome:  # noqa: ANN401
        if not isinstance(of, v.Listing):
            return ()
        elements = of.elements[::-1] if last else of.elements
        made: list[Alternative] = []
        missing = TRUE
        for there, outcome in elements:
            made.extend(only_if(all_of([missing, there]), outcome))
            missing = all_of([missing, negation(there)])
        return sure(v.OptionalValue(negation(missing), joined(made)))

    return make


def sum_of(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    """Return the sum of a list of ints."""
    if not isinstance(of, v.Listing):
        return ()
    terms, fine = [], []
    for there, outcome in of.elements:
        numbers = [each for each in opened(outcome) if isinstance(each.value, v.Int)]
        fine.append(any_of([negation(there), *(each.when for each in numbers)]))
        terms += [
            z3.If(all_of([there, each.when]), each.value.term, z3.IntVal(0)) for each in numbers
        ]
        if any(isinstance(each.value, v.Double | v.Measure) for each in opened(outcome)):
            raise UnencodableError("sum() of what is not int")
    return only_if(all_of(fine), in_range(z3.Sum(z3.IntVal(0), *terms)))


def max_of(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    """Return the greatest of a list of ints."""
    if not isinstance(of, v.Listing):
        return ()
    most: Any = None
    some: list[Any] = []
    fine = []
    for there, outcome in of.elements:
        for when, value in opened(outcome):
            if not isinstance(value, v.Int):
                raise UnencodableError("max() of what is not int")
            here, before = all_of([there, when]), any_of(some)
            more = any_of([negation(before), value.term > most]) if some else TRUE
            most = z3.If(all_of([here, more]), value.term, most) if some else value.term
            some.append(here)
        fine.append(any_of([negation(there), succeeds(outcome)]))
    return only_if(all_of([any_of(some), *fine]), sure(v.Int(most))) if some else ()


def slice_of(_world: World, of: Any, start: Any, end: Any) -> Outcome:  # noqa: ANN401
    """Return a part of a list."""
    if not (isinstance(of, v.Listing) and isinstance(start, v.Int) and isinstance(end, v.Int)):
        return ()
    if not (of.dense and z3.is_int_value(start.term) and z3.is_int_value(end.term)):
        raise UnencodableError("slice() of a list that is filtered, or by computed numbers")
    first, last = start.term.as_long(), end.term.as_long()
    if not 0 <= first <= last <= len(of.elements):
        return ()
    fits = of.elements[last - 1][0] if last else TRUE
    return only_if(fits, sure(v.Listing(of.elements[first:last])))

"""The equality of values of CEL as formulas."""

import itertools
from collections.abc import Callable
from typing import Any, Final

import z3

from policyd.prove import values as v
from policyd.prove.outcomes import entries_of, opened, real, size_of
from policyd.prove.values import FALSE, TRUE, Outcome, UnencodableError, all_of, any_of, negation
from policyd.prove.world import UnknownValue


def equal(one: Any, other: Any) -> Any:  # noqa: ANN401 - values, a term of z3
    """Return the condition that two values are equal.

    Raises:
        UnencodableError: If they are maps, or lists that were filtered.
    """
    if isinstance(one, v.Double | v.Int) and isinstance(other, v.Double | v.Int):
        same = type(one) is type(other)
        return one.term == other.term if same else real(one) == real(other)
    kinds = (v.Mapping, UnknownValue)
    if isinstance(one, kinds) and isinstance(other, kinds):
        return _equal_maps(one, other)
    compare = _EQUAL.get(type(one)) if type(one) is type(other) else None
    return FALSE if compare is None else compare(one, other)


def _equal_optionals(one: v.OptionalValue, other: v.OptionalValue) -> Any:  # noqa: ANN401 - a term of z3
    both = all_of([one.present, other.present, equal_outcomes(one.value, other.value)])
    return any_of([all_of([negation(one.present), negation(other.present)]), both])


def _equal_terms(one: Any, other: Any) -> Any:  # noqa: ANN401 - values, a term of z3
    same = one.term == other.term
    known = z3.is_string_value(one.term) and z3.is_string_value(other.term)
    return z3.simplify(same) if known else same


def equal_outcomes(one: Outcome, other: Outcome) -> Any:  # noqa: ANN401 - a term of z3
    """Return the condition that two outcomes are equal values."""
    pairs = itertools.product(opened(one), opened(other))
    return any_of(all_of([a.when, b.when, equal(a.value, b.value)]) for a, b in pairs)


def _equal_lists(one: v.Listing, other: v.Listing) -> Any:  # noqa: ANN401 - a term of z3
    for each, empty in ((one, other), (other, one)):
        if not empty.elements:
            return all_of(negation(there) for there, _ in each.elements)
    if not (one.dense and other.dense):
        raise UnencodableError("the equality of lists that are filtered")
    pairs = itertools.zip_longest(one.elements, other.elements, fillvalue=(FALSE, ()))
    return all_of(
        any_of([all_of([negation(a), negation(b)]), all_of([a, b, equal_outcomes(x, y)])])
        for (a, x), (b, y) in pairs
    )


_EQUAL: Final[dict[type, Callable[[Any, Any], Any]]] = {
    v.Bool: _equal_terms,
    v.Text: _equal_terms,
    v.Measure: lambda one, other: _equal_terms(one, other) if one.kind == other.kind else FALSE,
    v.Null: lambda _one, _other: TRUE,
    v.TypeName: lambda one, other: z3.BoolVal(one.name == other.name),
    v.OptionalValue: _equal_optionals,
    v.Listing: _equal_lists,
}


def _equal_maps(one: Any, other: Any) -> Any:  # noqa: ANN401 - maps, a term of z3
    if one is other:
        return TRUE
    if isinstance(one, UnknownValue) and isinstance(other, UnknownValue):
        raise UnencodableError("the equality of two objects")
    parts = [negation(size_of(one) != size_of(other))]
    for fixed, whole in ((one, other), (other, one)):
        if isinstance(fixed, v.Mapping):
            for there, key, outcome in fixed.entries:
                same = any_of(
                    all_of([found, name == key, equal_outcomes(value, outcome)])
                    for found, name, value in entries_of(whole)
                )
                parts.append(any_of([negation(there), same]))
            break
    return all_of(parts)

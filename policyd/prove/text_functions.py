"""The functions of strings, and conversions to and from them, as formulas."""

from collections.abc import Callable
from typing import Any

import z3

from policyd.prove import values as v
from policyd.prove.outcomes import in_range, opened, real
from policyd.prove.patterns import matching
from policyd.prove.values import (
    FALSE,
    TRUE,
    Outcome,
    UnencodableError,
    all_of,
    any_of,
    negation,
    only_if,
    sure,
    text_of_term,
    text_term,
)
from policyd.prove.world import UnknownValue, World


def test_of_texts(compute: Callable[..., Any]) -> Callable[..., Outcome]:
    """Return a predicate of strings."""

    def make(_world: World, *parts: Any) -> Outcome:  # noqa: ANN401
        if not all(isinstance(part, v.Text) for part in parts):
            return ()
        return sure(v.Bool(compute(*(part.term for part in parts))))

    return make


def matches(_world: World, of: Any, pattern: Any) -> Outcome:  # noqa: ANN401
    """Return whether a string matches a regular expression."""
    if not (isinstance(of, v.Text) and isinstance(pattern, v.Text)):
        return ()
    if not z3.is_string_value(pattern.term):
        raise UnencodableError("a regular expression that is computed")
    return sure(v.Bool(matching(of.term, text_of_term(pattern.term))))


def to_string(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    """Return a value as a string."""
    match of:
        case v.Double():
            written = z3.Function("string", z3.RealSort(), z3.StringSort())
            return sure(v.Text(written(of.term)))
        case v.Text():
            return sure(of)
        case v.Bool():
            yes, no = text_term("true"), text_term("false")
            return sure(v.Text(z3.If(of.term, yes, no)))
        case v.Int():
            minus = z3.Concat(text_term("-"), z3.IntToStr(-of.term))
            return sure(v.Text(z3.If(of.term < 0, minus, z3.IntToStr(of.term))))
        case (
            v.Listing() | v.Mapping() | UnknownValue() | v.Null() | v.OptionalValue() | v.TypeName()
        ):
            return ()
        case _:
            raise UnencodableError("string() of a quantity or time")


def to_int(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    """Return a value as an int."""
    match of:
        case v.Int():
            return sure(of)
        case v.Text():
            number = z3.StrToInt(z3.SubString(of.term, 1, z3.Length(of.term)))
            signed = z3.If(z3.PrefixOf(text_term("-"), of.term), -number, number)
            digits = matching(of.term, "^[0-9]+$")
            whole = z3.If(digits, z3.StrToInt(of.term), signed)
            return only_if(matching(of.term, "^[-+]?[0-9]+$"), in_range(whole))
        case v.Bool() | v.Listing() | v.Mapping() | UnknownValue() | v.Null() | v.OptionalValue():
            return ()
        case _:
            pass
    if isinstance(of, v.Double):
        return in_range(z3.Function("int", z3.RealSort(), z3.IntSort())(of.term))
    raise UnencodableError("int() of a quantity or time")


def to_double(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    """Return a value as a double."""
    if isinstance(of, v.Double):
        return sure(of)
    if isinstance(of, v.Int):
        return sure(v.Double(real(of)))
    if isinstance(of, v.Text):
        fine = z3.Function("double#fine", z3.StringSort(), z3.BoolSort())(of.term)
        value = z3.Function("double", z3.StringSort(), z3.RealSort())(of.term)
        return only_if(fine, sure(v.Double(value)))
    return ()


def to_bool(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    """Return a bool as it is."""
    if isinstance(of, v.Text):
        raise UnencodableError("bool() of a string")
    return sure(of) if isinstance(of, v.Bool) else ()


def join(_world: World, of: Any, separator: Any = None) -> Outcome:  # noqa: ANN401
    """Return the strings of a list as one."""
    if not isinstance(of, v.Listing) or not isinstance(separator, v.Text | None):
        return ()
    text, fine, begun = text_term(""), [], FALSE
    between = text_term("") if separator is None else separator.term
    for there, outcome in of.elements:
        parts = [each for each in opened(outcome) if isinstance(each.value, v.Text)]
        fine.append(any_of([negation(there), *(each.when for each in parts)]))
        for each in parts:
            added = z3.If(begun, z3.Concat(text, between, each.value.term), each.value.term)
            text = z3.If(all_of([there, each.when]), added, text)
        begun = any_of([begun, there])
    return only_if(all_of(fine), sure(v.Text(text)))


def split(world: World, of: Any, separator: Any, *limit: Any) -> Outcome:  # noqa: ANN401
    """Return the parts of a text, at most as many as a list has elements at the bound."""
    if not (isinstance(of, v.Text) and isinstance(separator, v.Text)):
        return ()
    known = z3.is_string_value(separator.term) and not limit
    between = text_of_term(separator.term) if known else ""
    if not between or any(between.endswith(between[:n]) for n in range(1, len(between))):
        raise UnencodableError("split() with a limit, or by a separator that may overlap itself")
    name = f"split({of.term.sexpr()},{between})"
    parts = [z3.String(f"{name}#{index}") for index in range(world.bound)]
    count, text = z3.Int(f"{name}#count"), parts[0]
    cases = []
    for index, part in enumerate(parts):
        text = text if index == 0 else z3.Concat(text, separator.term, part)
        whole = [negation(z3.Contains(each, separator.term)) for each in parts[: index + 1]]
        cases.append(all_of([count == index + 1, of.term == text, *whole]))
    world.facts.append(any_of(cases))
    elements = ((count > index, sure(v.Text(part))) for index, part in enumerate(parts))
    return sure(v.Listing(tuple(elements)))


def of_unknown_result(name: str, result: str, *, fails: bool) -> Callable[..., Outcome]:
    """Return a function of which only equal results for equal strings are known."""
    sorts = {"bool": z3.BoolSort, "string": z3.StringSort}
    make_value = {"bool": v.Bool, "string": v.Text}[result]

    def make(_world: World, *parts: Any) -> Outcome:  # noqa: ANN401
        if not all(isinstance(part, v.Text) for part in parts):
            return ()
        of = [z3.StringSort()] * len(parts)
        terms = [part.term for part in parts]
        fine = z3.Function(f"{name}#{len(parts)}#fine", *of, z3.BoolSort())
        value = z3.Function(f"{name}#{len(parts)}", *of, sorts[result]())
        when = fine(*terms) if fails else TRUE
        return only_if(when, sure(make_value(value(*terms))))

    return make

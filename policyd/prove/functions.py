"""The functions of CEL as formulas."""

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

import z3

from policyd.api.quantity import QuantityError, parse_quantity
from policyd.cel import Budget, CelError, base_environment, compile_expression
from policyd.cel.types import STRING
from policyd.prove import values as v
from policyd.prove.patterns import matching
from policyd.prove.values import (
    FALSE,
    TRUE,
    Alternative,
    Outcome,
    UnencodableError,
    all_of,
    any_of,
    is_false,
    is_true,
    joined,
    negation,
    only_if,
    succeeds,
    sure,
    text_of_term,
    text_term,
)
from policyd.prove.world import GREATEST, LEAST, UnknownValue, World, entries_of, opened, reading

WHOLE_AMOUNT: Final = "wholeAmount(q)"
"""How the methods of pods read an amount of devices; expressions cannot call it."""
_MOST: Final = 300
"""Combinations of what the arguments of one call may be."""


def constant(value: Any) -> Any:  # noqa: ANN401 - a value of CEL, and one of formulas
    """Return a literal as a value.

    Raises:
        UnencodableError: If literals of its kind have no formula.
    """
    match value:
        case None:
            return v.Null()
        case bool():
            return v.Bool(z3.BoolVal(value))
        case int() if type(value) is int:
            return v.Int(z3.IntVal(value))
        case float():
            return v.Double(z3.RealVal(repr(value)))
        case str():
            return v.Text(text_term(value))
        case _:
            raise UnencodableError(f"the literal {value!r}")


def call(world: World, name: str, arguments: Sequence[Outcome]) -> Outcome:
    """Return what a call may be.

    Args:
        world: Where facts about unknown results go.
        name: The function, with `_` for the operands of an operator.
        arguments: What its arguments may be, the receiver first.

    Raises:
        UnencodableError: If the function has no formula for these arguments.
    """
    if name in ("_==_", "_!=_"):
        return _equality(arguments, same=name == "_==_")
    if name in _WHOLE:
        return _WHOLE[name](*arguments)
    function = _FUNCTIONS.get(name)
    if function is None:
        raise UnencodableError(f"the function {name}()")
    choices = [opened(argument) for argument in arguments]
    count = 1
    for choice in choices:
        count *= max(len(choice), 1)
    if count > _MOST:
        raise UnencodableError(f"{name}() of arguments of so many kinds")
    made: list[Alternative] = []
    for combination in itertools.product(*choices):
        when = all_of(each.when for each in combination)
        if not is_false(when):
            made.extend(only_if(when, function(world, *(each.value for each in combination))))
    return joined(made)


def equal(one: Any, other: Any) -> Any:  # noqa: ANN401 - values, a term of z3
    """Return the condition that two values are equal.

    Raises:
        UnencodableError: If they are maps, or lists that were filtered.
    """
    if isinstance(one, v.Double | v.Int) and isinstance(other, v.Double | v.Int):
        same = type(one) is type(other)
        return one.term == other.term if same else _real(one) == _real(other)
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
    parts = [negation(_size_of(one) != _size_of(other))]
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


def _equality(arguments: Sequence[Outcome], *, same: bool) -> Outcome:
    one, other = arguments
    when = all_of([succeeds(one), succeeds(other)])
    found = equal_outcomes(one, other)
    return only_if(when, sure(v.Bool(found if same else negation(found))))


def _real(value: Any) -> Any:  # noqa: ANN401 - a number, a term of z3
    if isinstance(value, v.Int):
        if z3.is_int_value(value.term):
            return z3.RealVal(value.term.as_long())
        return z3.ToReal(value.term)
    return value.term


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[..., Outcome]:
    def make(_world: World, one: Any, other: Any) -> Outcome:  # noqa: ANN401
        match one, other:
            case v.Int(), v.Int():
                return sure(v.Bool(compare(one.term, other.term)))
            case (v.Int() | v.Double(), v.Int() | v.Double()):
                return sure(v.Bool(compare(_real(one), _real(other))))
            case v.Text(), v.Text():
                return sure(v.Bool(compare(one.term, other.term)))
            case v.Measure(), v.Measure() if one.kind == other.kind != "quantity":
                return sure(v.Bool(compare(one.term, other.term)))
            case v.Bool(), v.Bool():
                raise UnencodableError("the order of bools")
            case _:
                return ()

    return make


def _in_range(term: Any) -> Outcome:  # noqa: ANN401 - a term of z3
    term = z3.simplify(term)
    fits = z3.simplify(z3.And(term >= LEAST, term <= GREATEST))
    return only_if(fits, sure(v.Int(term)))


def _arithmetic(compute: Callable[[Any, Any], Any], sign: str) -> Callable[..., Outcome]:
    def make(_world: World, one: Any, other: Any) -> Outcome:  # noqa: ANN401
        match one, other:
            case v.Int(), v.Int():
                return _in_range(compute(one.term, other.term))
            case v.Double(), v.Double():
                return _rounded(sign, one, other)
            case v.Text(), v.Text() if sign == "+":
                return sure(v.Text(z3.Concat(one.term, other.term)))
            case v.Listing(), v.Listing() if sign == "+":
                dense = all(is_true(there) for there, _ in one.elements) and other.dense
                return sure(v.Listing(one.elements + other.elements, dense))
            case v.Measure(), v.Measure() if sign in "+-" and "quantity" not in (
                one.kind,
                other.kind,
            ):
                raise UnencodableError("arithmetic of times")
            case _:
                return ()

    return make


def _rounded(sign: str, one: v.Double, other: v.Double) -> Outcome:
    """Return a result of doubles, of which only equal results for equal operands are known."""
    real = z3.RealSort()
    return sure(v.Double(z3.Function(f"double{sign}", real, real, real)(one.term, other.term)))


def _divided(_world: World, one: Any, other: Any) -> Outcome:  # noqa: ANN401
    if not (isinstance(one, v.Int) and isinstance(other, v.Int)):
        if isinstance(one, v.Double) and isinstance(other, v.Double):
            return _rounded("/", one, other)
        return ()
    size = z3.If(one.term < 0, -one.term, one.term) / z3.If(other.term < 0, -other.term, other.term)
    negative = (one.term < 0) != (other.term < 0)
    return only_if(other.term != 0, _in_range(z3.If(negative, -size, size)))


def _remainder(_world: World, one: Any, other: Any) -> Outcome:  # noqa: ANN401
    if not (isinstance(one, v.Int) and isinstance(other, v.Int)):
        return ()
    size = z3.If(one.term < 0, -one.term, one.term) % z3.If(other.term < 0, -other.term, other.term)
    return only_if(other.term != 0, _in_range(z3.If(one.term < 0, -size, size)))


def _negative(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    if isinstance(of, v.Int):
        return _in_range(-of.term)
    return sure(v.Double(-of.term)) if isinstance(of, v.Double) else ()


def _not(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    return sure(v.Bool(negation(of.term))) if isinstance(of, v.Bool) else ()


def _in(part: Outcome, of: Outcome) -> Outcome:
    made: list[Alternative] = []
    for when, value in opened(of):
        if isinstance(value, v.Listing):
            found = any_of(
                all_of([there, equal_outcomes(part, each)]) for there, each in value.elements
            )
        elif isinstance(value, UnknownValue | v.Mapping):
            found = any_of(
                all_of([there, equal_outcomes(part, sure(v.Text(key)))])
                for there, key, _ in entries_of(value)
            )
        else:
            continue
        made.append(Alternative(all_of([when, succeeds(part)]), v.Bool(found)))
    return joined(made)


def _size_of(value: Any) -> Any:  # noqa: ANN401 - a list or map, a term of z3
    entries = value.elements if isinstance(value, v.Listing) else entries_of(value)
    one, none = z3.IntVal(1), z3.IntVal(0)
    return z3.simplify(z3.Sum(none, *(z3.If(each[0], one, none) for each in entries)))


def _size(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    if isinstance(of, v.Text):
        return sure(v.Int(z3.Length(of.term)))
    if isinstance(of, v.Listing | v.Mapping | UnknownValue):
        return sure(v.Int(_size_of(of)))
    return ()


def _texts(compute: Callable[..., Any]) -> Callable[..., Outcome]:
    """Return a predicate of strings."""

    def make(_world: World, *parts: Any) -> Outcome:  # noqa: ANN401
        if not all(isinstance(part, v.Text) for part in parts):
            return ()
        return sure(v.Bool(compute(*(part.term for part in parts))))

    return make


def _matches(_world: World, of: Any, pattern: Any) -> Outcome:  # noqa: ANN401
    if not (isinstance(of, v.Text) and isinstance(pattern, v.Text)):
        return ()
    if not z3.is_string_value(pattern.term):
        raise UnencodableError("a regular expression that is computed")
    return sure(v.Bool(matching(of.term, text_of_term(pattern.term))))


def _string(_world: World, of: Any) -> Outcome:  # noqa: ANN401
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


def _int(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    match of:
        case v.Int():
            return sure(of)
        case v.Text():
            number = z3.StrToInt(z3.SubString(of.term, 1, z3.Length(of.term)))
            signed = z3.If(z3.PrefixOf(text_term("-"), of.term), -number, number)
            digits = matching(of.term, "^[0-9]+$")
            whole = z3.If(digits, z3.StrToInt(of.term), signed)
            return only_if(matching(of.term, "^[-+]?[0-9]+$"), _in_range(whole))
        case v.Bool() | v.Listing() | v.Mapping() | UnknownValue() | v.Null() | v.OptionalValue():
            return ()
        case _:
            pass
    if isinstance(of, v.Double):
        return _in_range(z3.Function("int", z3.RealSort(), z3.IntSort())(of.term))
    raise UnencodableError("int() of a quantity or time")


def _double(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    if isinstance(of, v.Double):
        return sure(of)
    if isinstance(of, v.Int):
        return sure(v.Double(_real(of)))
    if isinstance(of, v.Text):
        fine = z3.Function("double#fine", z3.StringSort(), z3.BoolSort())(of.term)
        value = z3.Function("double", z3.StringSort(), z3.RealSort())(of.term)
        return only_if(fine, sure(v.Double(value)))
    return ()


def _bool(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    if isinstance(of, v.Text):
        raise UnencodableError("bool() of a string")
    return sure(of) if isinstance(of, v.Bool) else ()


_TYPES: Final[dict[type, str]] = {
    v.Bool: "bool",
    v.Int: "int",
    v.Double: "double",
    v.Text: "string",
    v.Null: "null_type",
    v.Listing: "list",
    v.Mapping: "map",
    UnknownValue: "map",
}


def _type(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    name = _TYPES.get(type(of))
    if name is None:
        raise UnencodableError("type() of a value of this kind")
    return sure(v.TypeName(name))


def _same(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    return sure(of)


def _optional_of(value: Outcome) -> Outcome:
    return only_if(succeeds(value), sure(v.OptionalValue(TRUE, value)))


def _none() -> Outcome:
    return sure(v.OptionalValue(FALSE, ()))


def _has_value(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    return sure(v.Bool(of.present)) if isinstance(of, v.OptionalValue) else ()


def _value(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    return only_if(of.present, of.value) if isinstance(of, v.OptionalValue) else ()


def _or(of: Outcome, other: Outcome) -> Outcome:
    made: list[Alternative] = []
    for when, value in of:
        if isinstance(value, v.OptionalValue):
            made.append(Alternative(all_of([when, value.present]), value))
            made.extend(only_if(all_of([when, negation(value.present)]), other))
        else:
            made.append(Alternative(when, value))  # as cel-go has it
    return joined(made)


def _or_value(of: Outcome, other: Outcome) -> Outcome:
    made: list[Alternative] = []
    for when, value in of:
        if isinstance(value, v.OptionalValue):
            made.extend(only_if(all_of([when, value.present]), value.value))
            made.extend(only_if(all_of([when, negation(value.present)]), other))
        else:
            made.append(Alternative(when, value))
    return joined(made)


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


def _sets(name: str) -> Callable[..., Outcome]:
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


def _flatten(_world: World, of: Any) -> Outcome:  # noqa: ANN401
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


def _distinct(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    if not isinstance(of, v.Listing):
        return ()
    kept: list[tuple[Any, Outcome]] = []
    for index, (there, outcome) in enumerate(of.elements):
        before = any_of(
            all_of([has, equal_outcomes(each, outcome)]) for has, each in of.elements[:index]
        )
        kept.append((all_of([there, negation(before)]), outcome))
    return sure(v.Listing(tuple(kept), dense=False))


def _end(*, last: bool) -> Callable[..., Outcome]:
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


def _sum(_world: World, of: Any) -> Outcome:  # noqa: ANN401
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
    return only_if(all_of(fine), _in_range(z3.Sum(z3.IntVal(0), *terms)))


def _max(_world: World, of: Any) -> Outcome:  # noqa: ANN401
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


def _slice(_world: World, of: Any, start: Any, end: Any) -> Outcome:  # noqa: ANN401
    if not (isinstance(of, v.Listing) and isinstance(start, v.Int) and isinstance(end, v.Int)):
        return ()
    if not (of.dense and z3.is_int_value(start.term) and z3.is_int_value(end.term)):
        raise UnencodableError("slice() of a list that is filtered, or by computed numbers")
    first, last = start.term.as_long(), end.term.as_long()
    if not 0 <= first <= last <= len(of.elements):
        return ()
    fits = of.elements[last - 1][0] if last else TRUE
    return only_if(fits, sure(v.Listing(of.elements[first:last])))


def _join(_world: World, of: Any, separator: Any = None) -> Outcome:  # noqa: ANN401
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


def _split(world: World, of: Any, separator: Any, *limit: Any) -> Outcome:  # noqa: ANN401
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


def _measure(kind: str) -> Callable[..., Outcome]:
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


def _is_quantity(world: World, of: Any) -> Outcome:  # noqa: ANN401
    return sure(v.Bool(_reading(world, "quantity", of.term)[0])) if isinstance(of, v.Text) else ()


def _whole_amount(world: World, of: Any) -> Outcome:  # noqa: ANN401
    """Return an amount of devices as a pod's methods count it: rounded up, and at least none."""
    if isinstance(of, v.Int):
        return sure(v.Int(z3.If(of.term > 0, of.term, z3.IntVal(0))))
    if not isinstance(of, v.Text):
        return ()
    fine, value = _reading(world, "quantity", of.term)
    return only_if(fine, sure(v.Int(z3.If(value > 0, -z3.ToInt(-value), z3.IntVal(0)))))


def _of_quantities(compute: Callable[[Any, Any], Any]) -> Callable[..., Outcome]:
    def make(_world: World, one: Any, other: Any) -> Outcome:  # noqa: ANN401
        if not isinstance(one, v.Measure) or one.kind != "quantity":
            return ()
        if isinstance(other, v.Int):
            return sure(compute(one.term, _real(other)))
        if isinstance(other, v.Measure) and other.kind == "quantity":
            return sure(compute(one.term, other.term))
        return ()

    return make


def _compare(one: Any, other: Any) -> v.Int:  # noqa: ANN401 - terms of z3
    minus, none, plus = z3.IntVal(-1), z3.IntVal(0), z3.IntVal(1)
    return v.Int(z3.If(one < other, minus, z3.If(one > other, plus, none)))


def _unknown(name: str, result: str, *, fails: bool) -> Callable[..., Outcome]:
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


_FUNCTIONS: Final[dict[str, Callable[..., Outcome]]] = {
    "!_": _not,
    "-_": _negative,
    "_+_": _arithmetic(lambda a, b: a + b, "+"),
    "_-_": _arithmetic(lambda a, b: a - b, "-"),
    "_*_": _arithmetic(lambda a, b: a * b, "*"),
    "_/_": _divided,
    "_%_": _remainder,
    "_<_": _ordered(lambda a, b: a < b),
    "_<=_": _ordered(lambda a, b: a <= b),
    "_>_": _ordered(lambda a, b: b < a),
    "_>=_": _ordered(lambda a, b: b <= a),
    "bool": _bool,
    "contains": _texts(z3.Contains),
    "distinct": _distinct,
    "double": _double,
    "dyn": _same,
    "endsWith": _texts(lambda text, end: z3.SuffixOf(end, text)),
    "first": _end(last=False),
    "flatten": _flatten,
    "hasValue": _has_value,
    "int": _int,
    "join": _join,
    "last": _end(last=True),
    "matches": _matches,
    "max": _max,
    "sets.contains": _sets("contains"),
    "sets.equivalent": _sets("equivalent"),
    "sets.intersects": _sets("intersects"),
    "size": _size,
    "slice": _slice,
    "split": _split,
    "startsWith": _texts(lambda text, start: z3.PrefixOf(start, text)),
    "string": _string,
    "sum": _sum,
    "type": _type,
    "value": _value,
    "quantity": _measure("quantity"),
    "duration": _measure("duration"),
    "timestamp": _measure("timestamp"),
    "isQuantity": _is_quantity,
    "add": _of_quantities(lambda a, b: v.Measure("quantity", a + b)),
    "sub": _of_quantities(lambda a, b: v.Measure("quantity", a - b)),
    "compareTo": _of_quantities(_compare),
    "isGreaterThan": _of_quantities(lambda a, b: v.Bool(a > b)),
    "isLessThan": _of_quantities(lambda a, b: v.Bool(a < b)),
    "lowerAscii": _unknown("lowerAscii", "string", fails=False),
    "wholeAmount": _whole_amount,
    "upperAscii": _unknown("upperAscii", "string", fails=False),
    "trim": _unknown("trim", "string", fails=False),
    "isIP": _unknown("isIP", "bool", fails=False),
    "isCIDR": _unknown("isCIDR", "bool", fails=False),
    "isURL": _unknown("isURL", "bool", fails=False),
    "isSemver": _unknown("isSemver", "bool", fails=False),
    "find": _unknown("find", "string", fails=False),
}

_WHOLE: Final[dict[str, Callable[..., Outcome]]] = {
    "@in": _in,
    "optional.of": _optional_of,
    "optional.none": _none,
    "or": _or,
    "orValue": _or_value,
}
"""Functions that get outcomes rather than each value that they may be."""

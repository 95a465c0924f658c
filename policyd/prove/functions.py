"""The functions of CEL as formulas."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import z3

from policyd.prove import values as v
from policyd.prove.equality import equal_outcomes
from policyd.prove.list_functions import (
    distinct,
    first_or_last,
    flattened,
    max_of,
    of_sets,
    slice_of,
    sum_of,
)
from policyd.prove.measures import compare, is_quantity, measure, of_quantities, whole_amount
from policyd.prove.outcomes import entries_of, in_range, opened, real, size_of
from policyd.prove.text_functions import (
    join,
    matches,
    of_unknown_result,
    split,
    test_of_texts,
    to_bool,
    to_double,
    to_int,
    to_string,
)
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
    text_term,
)
from policyd.prove.world import UnknownValue, World

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


def _equality(arguments: Sequence[Outcome], *, same: bool) -> Outcome:
    one, other = arguments
    when = all_of([succeeds(one), succeeds(other)])
    found = equal_outcomes(one, other)
    return only_if(when, sure(v.Bool(found if same else negation(found))))


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[..., Outcome]:
    def make(_world: World, one: Any, other: Any) -> Outcome:  # noqa: ANN401
        match one, other:
            case v.Int(), v.Int():
                return sure(v.Bool(compare(one.term, other.term)))
            case (v.Int() | v.Double(), v.Int() | v.Double()):
                return sure(v.Bool(compare(real(one), real(other))))
            case v.Text(), v.Text():
                return sure(v.Bool(compare(one.term, other.term)))
            case v.Measure(), v.Measure() if one.kind == other.kind != "quantity":
                return sure(v.Bool(compare(one.term, other.term)))
            case v.Bool(), v.Bool():
                raise UnencodableError("the order of bools")
            case _:
                return ()

    return make


def _arithmetic(compute: Callable[[Any, Any], Any], sign: str) -> Callable[..., Outcome]:
    def make(_world: World, one: Any, other: Any) -> Outcome:  # noqa: ANN401
        match one, other:
            case v.Int(), v.Int():
                return in_range(compute(one.term, other.term))
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
    return only_if(other.term != 0, in_range(z3.If(negative, -size, size)))


def _remainder(_world: World, one: Any, other: Any) -> Outcome:  # noqa: ANN401
    if not (isinstance(one, v.Int) and isinstance(other, v.Int)):
        return ()
    size = z3.If(one.term < 0, -one.term, one.term) % z3.If(other.term < 0, -other.term, other.term)
    return only_if(other.term != 0, in_range(z3.If(one.term < 0, -size, size)))


def _negative(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    if isinstance(of, v.Int):
        return in_range(-of.term)
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


def _size(_world: World, of: Any) -> Outcome:  # noqa: ANN401
    if isinstance(of, v.Text):
        return sure(v.Int(z3.Length(of.term)))
    if isinstance(of, v.Listing | v.Mapping | UnknownValue):
        return sure(v.Int(size_of(of)))
    return ()


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
    "bool": to_bool,
    "contains": test_of_texts(z3.Contains),
    "distinct": distinct,
    "double": to_double,
    "dyn": _same,
    "endsWith": test_of_texts(lambda text, end: z3.SuffixOf(end, text)),
    "first": first_or_last(last=False),
    "flatten": flattened,
    "hasValue": _has_value,
    "int": to_int,
    "join": join,
    "last": first_or_last(last=True),
    "matches": matches,
    "max": max_of,
    "sets.contains": of_sets("contains"),
    "sets.equivalent": of_sets("equivalent"),
    "sets.intersects": of_sets("intersects"),
    "size": _size,
    "slice": slice_of,
    "split": split,
    "startsWith": test_of_texts(lambda text, start: z3.PrefixOf(start, text)),
    "string": to_string,
    "sum": sum_of,
    "type": _type,
    "value": _value,
    "quantity": measure("quantity"),
    "duration": measure("duration"),
    "timestamp": measure("timestamp"),
    "isQuantity": is_quantity,
    "add": of_quantities(lambda a, b: v.Measure("quantity", a + b)),
    "sub": of_quantities(lambda a, b: v.Measure("quantity", a - b)),
    "compareTo": of_quantities(compare),
    "isGreaterThan": of_quantities(lambda a, b: v.Bool(a > b)),
    "isLessThan": of_quantities(lambda a, b: v.Bool(a < b)),
    "lowerAscii": of_unknown_result("lowerAscii", "string", fails=False),
    "wholeAmount": whole_amount,
    "upperAscii": of_unknown_result("upperAscii", "string", fails=False),
    "trim": of_unknown_result("trim", "string", fails=False),
    "isIP": of_unknown_result("isIP", "bool", fails=False),
    "isCIDR": of_unknown_result("isCIDR", "bool", fails=False),
    "isURL": of_unknown_result("isURL", "bool", fails=False),
    "isSemver": of_unknown_result("isSemver", "bool", fails=False),
    "find": of_unknown_result("find", "string", fails=False),
}

_WHOLE: Final[dict[str, Callable[..., Outcome]]] = {
    "@in": _in,
    "optional.of": _optional_of,
    "optional.none": _none,
    "or": _or,
    "orValue": _or_value,
}
"""Functions that get outcomes rather than each value that they may be."""

"""Mathematics: cel-go's extension, version 2."""

import math
from collections.abc import Callable
from typing import Final

from policyd.cel.arithmetic import checked_int
from policyd.cel.comparison import NUMBERS, greater, less
from policyd.cel.cost import elements
from policyd.cel.errors import CelError
from policyd.cel.functions import Overload, Size, function
from policyd.cel.types import BOOL, DOUBLE, DYN, INT, UINT, Type, list_of
from policyd.cel.values import UINT_MAX, UInt, Value, no_such_overload

_NUMBERS: Final = (INT, UINT, DOUBLE)
_MOST_ARGUMENTS: Final = 12
_BITS: Final = 64


def _extreme(name: str, better: Callable[[Value, Value], bool]) -> Callable[..., object]:
    def choose(*arguments: Value) -> object:
        numbers = arguments
        if len(arguments) == 1 and type(arguments[0]) is list:
            numbers = tuple(arguments[0])
        if not numbers:
            raise CelError(f"{name}(list) argument must not be empty")
        for number in numbers:
            if type(number) not in NUMBERS:
                raise no_such_overload(name, *arguments)
        best = numbers[0]
        for number in numbers[1:]:
            best = number if better(number, best) else best
        return best

    return choose


_FEW: Final = Size(work=5)
_MANY: Final = Size(cost=elements, work=lambda numbers: len(numbers) // 2)


def _extreme_overloads(name: str, better: Callable[[Value, Value], bool]) -> tuple[Overload, ...]:
    run = _extreme(name, better)
    pairs = ((a, b) for a in _NUMBERS for b in _NUMBERS)
    many = ((DYN,) * count for count in range(3, _MOST_ARGUMENTS + 1))
    return (
        *(function(name, kind, returns=kind, run=run, size=_FEW) for kind in _NUMBERS),
        *(function(name, a, b, returns=a if a == b else DYN, run=run, size=_FEW) for a, b in pairs),
        *(function(name, *kinds, returns=DYN, run=run, size=_FEW) for kinds in many),
        *(function(name, list_of(kind), returns=kind, run=run, size=_MANY) for kind in _NUMBERS),
    )


def _finite(run: Callable[[float], float]) -> Callable[[float], float]:
    return lambda number: float(run(number)) if math.isfinite(number) else number


def _round(number: float) -> float:
    return math.copysign(math.floor(abs(number) + 0.5), number)


def _absolute(number: float) -> object:
    if type(number) is UInt:
        return number
    return checked_int(abs(number)) if type(number) is int else abs(number)


def _sign(number: float) -> object:
    if math.isnan(number):
        return number
    sign = (number > 0) - (number < 0)
    return type(number)(sign)


def _square_root(number: float) -> float:
    return math.nan if number < 0 else math.sqrt(number)


def _bitwise(combine: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda a, b: type(a)(combine(int(a), int(b)))


def _bit_not(number: int) -> int:
    return UInt(UINT_MAX ^ int(number)) if type(number) is UInt else ~number


def _wrapped(number: int, like: int) -> int:
    bits = number & UINT_MAX
    if type(like) is UInt:
        return UInt(bits)
    return bits - 2**_BITS if bits >> (_BITS - 1) else bits


def _shift_left(number: int, places: int) -> int:
    _need_offset("math.bitShiftLeft", places)
    return _wrapped(int(number) << places if places < _BITS else 0, number)


def _shift_right(number: int, places: int) -> int:
    _need_offset("math.bitShiftRight", places)
    return _wrapped((int(number) & UINT_MAX) >> min(places, _BITS), number)


def _need_offset(name: str, places: int) -> None:
    if places < 0:
        raise CelError(f"{name}() negative offset: {places}")


def _each(name: str, run: Callable[..., object], *kinds: Type) -> tuple[Overload, ...]:
    return tuple(function(name, kind, returns=kind, run=run) for kind in kinds)


def _both(name: str, run: Callable[[int, int], int]) -> tuple[Overload, ...]:
    bits = _bitwise(run)
    return tuple(function(name, kind, kind, returns=kind, run=bits) for kind in (INT, UINT))


def _test(name: str, run: Callable[[float], bool]) -> Overload:
    return function(name, DOUBLE, returns=BOOL, run=run)


MATH: tuple[Overload, ...] = (
    *_extreme_overloads("math.greatest", greater),
    *_extreme_overloads("math.least", less),
    *_each("math.ceil", _finite(math.ceil), DOUBLE),
    *_each("math.floor", _finite(math.floor), DOUBLE),
    *_each("math.trunc", _finite(math.trunc), DOUBLE),
    *_each("math.round", _finite(_round), DOUBLE),
    *_each("math.abs", _absolute, *_NUMBERS),
    *_each("math.sign", _sign, *_NUMBERS),
    *(function("math.sqrt", kind, returns=DOUBLE, run=_square_root) for kind in _NUMBERS),
    _test("math.isInf", math.isinf),
    _test("math.isNaN", math.isnan),
    _test("math.isFinite", math.isfinite),
    *_both("math.bitAnd", lambda a, b: a & b),
    *_both("math.bitOr", lambda a, b: a | b),
    *_both("math.bitXor", lambda a, b: a ^ b),
    *_each("math.bitNot", _bit_not, INT, UINT),
    *(
        function("math.bitShiftLeft", kind, INT, returns=kind, run=_shift_left)
        for kind in (INT, UINT)
    ),
    *(
        function("math.bitShiftRight", kind, INT, returns=kind, run=_shift_right)
        for kind in (INT, UINT)
    ),
)

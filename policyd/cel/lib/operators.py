"""The operators, for the checker; the compiler writes them itself."""

from policyd.cel import arithmetic, comparison
from policyd.cel.functions import Overload, function
from policyd.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    B,
    Type,
    list_of,
    map_of,
)

_NUMBERS = (INT, UINT, DOUBLE)
_SIGNED = (INT, DOUBLE, DURATION)


def _same(name: str, run: object, *kinds: Type) -> tuple[Overload, ...]:
    assert callable(run), "an operator has code"
    return tuple(function(name, kind, kind, returns=kind, run=run) for kind in kinds)


def _ordering(name: str, run: object) -> tuple[Overload, ...]:
    assert callable(run), "an operator has code"
    pairs = [(a, b) for a in _NUMBERS for b in _NUMBERS]
    pairs += [(kind, kind) for kind in (BOOL, STRING, BYTES, TIMESTAMP, DURATION)]
    return tuple(function(name, a, b, returns=BOOL, run=run) for a, b in pairs)


def _with_time(name: str, run: object) -> tuple[Overload, ...]:
    assert callable(run), "an operator has code"
    shifted = function(name, TIMESTAMP, DURATION, returns=TIMESTAMP, run=run)
    if name == "_+_":
        other = function(name, DURATION, TIMESTAMP, returns=TIMESTAMP, run=run)
    else:
        other = function(name, TIMESTAMP, TIMESTAMP, returns=DURATION, run=run)
    return shifted, other


def _not(value: bool) -> bool:  # noqa: FBT001 - the operator's operand
    return not value


OPERATORS: tuple[Overload, ...] = (
    function("_==_", A, A, returns=BOOL, run=comparison.equal),
    function("_!=_", A, A, returns=BOOL, run=lambda a, b: not comparison.equal(a, b)),
    function("!_", BOOL, returns=BOOL, run=_not),
    *(
        function("-_", kind, returns=kind, run=arithmetic.negate)
        for kind in (INT, DOUBLE, DURATION)
    ),
    *_same("_+_", arithmetic.add, *_NUMBERS, STRING, BYTES, DURATION, list_of(A)),
    *_with_time("_+_", arithmetic.add),
    *_same("_-_", arithmetic.subtract, *_NUMBERS, DURATION),
    *_with_time("_-_", arithmetic.subtract),
    *_same("_*_", arithmetic.multiply, *_NUMBERS),
    *_same("_/_", arithmetic.divide, *_NUMBERS),
    *_same("_%_", arithmetic.modulo, INT, UINT),
    *_ordering("_<_", comparison.less),
    *_ordering("_<=_", comparison.less_or_equal),
    *_ordering("_>_", comparison.greater),
    *_ordering("_>=_", comparison.greater_or_equal),
    function("@in", A, list_of(A), returns=BOOL, run=comparison.contains),
    function("@in", A, map_of(A, B), returns=BOOL, run=comparison.contains),
)

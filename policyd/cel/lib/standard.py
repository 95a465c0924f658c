"""The standard library: operators, conversions between types, `size`, and tests of strings.

The operators are declared for the checker; the compiler writes them itself.
"""

import math
import re
from typing import Final

from policyd.cel import arithmetic, comparison
from policyd.cel.cost import LengthWork, search, traverse
from policyd.cel.errors import CelError
from policyd.cel.estimate import estimates
from policyd.cel.functions import Code, Overload, Size, function, method
from policyd.cel.lib.regex import MATCHES
from policyd.cel.lib.time import (
    duration_text,
    duration_work,
    parse_duration,
    parse_timestamp,
    timestamp_text,
)
from policyd.cel.syntax.patterns import lazy_pattern
from policyd.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    B,
    Type,
    list_of,
    map_of,
    type_of,
)
from policyd.cel.values import INT_MAX, Duration, Timestamp, TypeValue, UInt, type_name

_NUMBERS = (INT, UINT, DOUBLE)
_SIGNED = (INT, DOUBLE, DURATION)


def _homogeneous(name: str, run: object, *kinds: Type) -> tuple[Overload, ...]:
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


_OPERATORS: tuple[Overload, ...] = (
    function("_==_", A, A, returns=BOOL, run=comparison.equal),
    function("_!=_", A, A, returns=BOOL, run=lambda a, b: not comparison.equal(a, b)),
    function("!_", BOOL, returns=BOOL, run=_not),
    *(function("-_", kind, returns=kind, run=arithmetic.negate) for kind in _SIGNED),
    *_homogeneous("_+_", arithmetic.add, *_NUMBERS, STRING, BYTES, DURATION, list_of(A)),
    *_with_time("_+_", arithmetic.add),
    *_homogeneous("_-_", arithmetic.subtract, *_NUMBERS, DURATION),
    *_with_time("_-_", arithmetic.subtract),
    *_homogeneous("_*_", arithmetic.multiply, *_NUMBERS),
    *_homogeneous("_/_", arithmetic.divide, *_NUMBERS),
    *_homogeneous("_%_", arithmetic.modulo, INT, UINT),
    *_ordering("_<_", comparison.less),
    *_ordering("_<=_", comparison.less_or_equal),
    *_ordering("_>_", comparison.greater),
    *_ordering("_>=_", comparison.greater_or_equal),
    function("@in", A, list_of(A), returns=BOOL, run=comparison.contains),
    function("@in", A, map_of(A, B), returns=BOOL, run=comparison.contains),
)


_INTEGER: Final = lazy_pattern(r"[+-]?[0-9]{1,40}", re.ASCII)
_DOUBLE: Final = lazy_pattern(
    r"[+-]?([0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|inf|infinity|nan)",
    re.ASCII | re.IGNORECASE,
)
_TRUE: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "false", "FALSE", "False"))
# So many digits fit an int64, whichever they are.
_INT64_DIGITS: Final = 18
_TWO_63: Final = float(2**63)
_TWO_64: Final = float(2**64)
_PLAIN_DOUBLE: Final = 1e21


def double_text(number: float) -> str:
    """Write a double as Go does: shortest form, no exponent below 10²¹."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if number == int(number) and abs(number) < _PLAIN_DOUBLE:
        return f"{number:.0f}"
    mantissa, mark, exponent = repr(number).partition("e")
    if not mark:
        return mantissa
    return f"{mantissa}e{exponent[0] if exponent[0] == '-' else '+'}{abs(int(exponent)):02}"


def _string_to_int(text: str) -> int:
    if len(text) <= _INT64_DIGITS and text.isdigit() and text.isascii():
        return int(text)
    if not _INTEGER.fullmatch(text):
        raise CelError(f"type conversion error from 'string' to 'int': {text[:64]!r}")
    return arithmetic.checked_int(int(text))


def _string_to_uint(text: str) -> UInt:
    if not _INTEGER.fullmatch(text) or text[0] in "+-":
        raise CelError(f"type conversion error from 'string' to 'uint': {text[:64]!r}")
    return arithmetic.checked_uint(int(text))


def _double_to_int(number: float) -> int:
    if not -_TWO_63 < number < _TWO_63:
        raise CelError("integer overflow")
    return int(number)


def _double_to_uint(number: float) -> UInt:
    if not 0 <= number < _TWO_64:
        raise CelError("unsigned integer overflow")
    return UInt(int(number))


def _uint_to_int(number: UInt) -> int:
    if number > INT_MAX:
        raise CelError("integer overflow")
    return int(number)


def _string_to_double(text: str) -> float:
    number = float(text) if _DOUBLE.fullmatch(text) else None
    # Digits beyond the range of a double are not a number; the word for infinity is.
    if number is None or (math.isinf(number) and not text[-1].isalpha()):
        raise CelError(f"type conversion error from 'string' to 'double': {text[:64]!r}")
    return number


def _int_to_double(number: int) -> float:
    return float(number)


def _string_to_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise CelError(f"type conversion error from 'string' to 'bool': {text[:64]!r}")


def _bytes_to_string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def _string_to_bytes(text: str) -> bytes:
    return text.encode()


def _bool_text(value: bool) -> str:  # noqa: FBT001 - the converted value
    return "true" if value else "false"


def _integer_text(number: int) -> str:
    return str(int(number))


def _epoch_seconds(moment: Timestamp) -> int:
    return moment.nanoseconds // 10**9


def _from_epoch_seconds(seconds: int) -> Timestamp:
    return Timestamp(seconds * 10**9)


def _nanoseconds(length: Duration) -> int:
    return length.nanoseconds


def _same(value: object) -> object:
    return value


def type_value(value: object) -> TypeValue:
    """Return the type of a value."""
    return TypeValue(type_name(value))


def _size(value: str | bytes | list[object] | dict[object, object]) -> int:
    return len(value)


def _starts_with(text: str, part: str) -> bool:
    return text.startswith(part)


def _ends_with(text: str, part: str) -> bool:
    return text.endswith(part)


def _contains(text: str, part: str) -> bool:
    return part in text


def _int_to_duration(_number: int) -> Duration:
    """Fail, as cel-go does: it declares this conversion, and has none."""
    raise CelError("type conversion error from 'int' to 'google.protobuf.Duration'")


def _to(result: Type, *pairs: tuple[Type, Code]) -> tuple[Overload, ...]:
    name = {TIMESTAMP: "timestamp", DURATION: "duration"}.get(result, result.name)
    return tuple(
        function(name, kind, returns=result, run=run, size=_CONVERSION.get((kind, result), Size()))
        for kind, run in pairs
    )


_CONVERSION: Final = {
    (STRING, BYTES): Size(cost=traverse, estimate=estimates.encode),
    (BYTES, STRING): Size(cost=traverse, estimate=estimates.decode),
    (STRING, DURATION): Size(work=duration_work),
    (STRING, TIMESTAMP): Size(work=12),
    (STRING, DOUBLE): Size(work=LengthWork(0, 20)),
    (DOUBLE, STRING): Size(work=5),
    (TIMESTAMP, STRING): Size(work=10),
    (DURATION, STRING): Size(work=10),
}


_CONVERSIONS: tuple[Overload, ...] = (
    *_to(INT, (INT, _same), (UINT, _uint_to_int), (DOUBLE, _double_to_int)),
    *_to(INT, (STRING, _string_to_int), (TIMESTAMP, _epoch_seconds), (DURATION, _nanoseconds)),
    *_to(UINT, (UINT, _same), (INT, arithmetic.checked_uint), (DOUBLE, _double_to_uint)),
    *_to(UINT, (STRING, _string_to_uint)),
    *_to(DOUBLE, (DOUBLE, _same), (INT, _int_to_double), (UINT, _int_to_double)),
    *_to(DOUBLE, (STRING, _string_to_double)),
    *_to(BOOL, (BOOL, _same), (STRING, _string_to_bool)),
    *_to(BYTES, (BYTES, _same), (STRING, _string_to_bytes)),
    *_to(STRING, (STRING, _same), (BOOL, _bool_text), (INT, _integer_text)),
    *_to(STRING, (UINT, _integer_text), (DOUBLE, double_text), (BYTES, _bytes_to_string)),
    *_to(STRING, (TIMESTAMP, timestamp_text), (DURATION, duration_text)),
    *_to(TIMESTAMP, (TIMESTAMP, _same), (STRING, parse_timestamp), (INT, _from_epoch_seconds)),
    *_to(DURATION, (DURATION, _same), (STRING, parse_duration), (INT, _int_to_duration)),
    function("dyn", A, returns=DYN, run=_same),
    function("type", A, returns=type_of(A), run=type_value),
)
_COMPARED: Final = Size(cost=traverse, estimate=estimates.traverse_part)
_SIZED: Final = (STRING, BYTES, list_of(A), map_of(A, B))
STANDARD: tuple[Overload, ...] = (
    *_OPERATORS,
    *_CONVERSIONS,
    *(function("size", kind, returns=INT, run=_size) for kind in _SIZED),
    *(method("size", kind, returns=INT, run=_size) for kind in _SIZED),
    method("startsWith", STRING, STRING, returns=BOOL, run=_starts_with, size=_COMPARED),
    method("endsWith", STRING, STRING, returns=BOOL, run=_ends_with, size=_COMPARED),
    method("contains", STRING, STRING, returns=BOOL, run=_contains, size=Size(cost=search)),
    *MATCHES,
)

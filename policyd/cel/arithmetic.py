"""Compute with numbers, timestamps and durations, with the overflows of 64 bits."""

import math

from policyd.cel.errors import CelError
from policyd.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    Duration,
    Timestamp,
    UInt,
    Value,
    no_such_overload,
)


def checked_int(number: int) -> int:
    """Return `number` if it is a 64-bit integer."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise CelError("integer overflow")


def checked_uint(number: int) -> UInt:
    """Return `number` as an unsigned 64-bit integer if it is one."""
    if 0 <= number <= UINT_MAX:
        return UInt(number)
    raise CelError("unsigned integer overflow")


def add(a: Value, b: Value) -> Value:
    """Add numbers or times; join strings, bytes or lists."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return checked_int(a + b)
        if kind in (str, float, bytes, list):
            return a + b
        if kind is UInt:
            return checked_uint(int(a) + int(b))
        if kind is Duration:
            return Duration(a.nanoseconds + b.nanoseconds)
    elif {kind, type(b)} == {Timestamp, Duration}:
        return Timestamp(a.nanoseconds + b.nanoseconds)
    raise no_such_overload("_+_", a, b)


def subtract(a: Value, b: Value) -> Value:
    """Subtract numbers or times."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return checked_int(a - b)
        if kind is float:
            return a - b
        if kind is UInt:
            return checked_uint(int(a) - int(b))
        if kind is Duration or kind is Timestamp:
            return Duration(a.nanoseconds - b.nanoseconds)
    elif kind is Timestamp and type(b) is Duration:
        return Timestamp(a.nanoseconds - b.nanoseconds)
    raise no_such_overload("_-_", a, b)


def multiply(a: Value, b: Value) -> Value:
    """Multiply numbers."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return checked_int(a * b)
        if kind is float:
            return a * b
        if kind is UInt:
            return checked_uint(int(a) * int(b))
    raise no_such_overload("_*_", a, b)


def divide(a: Value, b: Value) -> Value:
    """Divide numbers; integers towards zero."""
    kind = type(a)
    if kind is type(b):
        if kind is float:
            return _divide_floats(a, b)
        if kind is int or kind is UInt:
            if b == 0:
                raise CelError("division by zero")
            quotient = abs(int(a)) // abs(int(b))
            if kind is UInt:
                return UInt(quotient)
            return checked_int(quotient if (a < 0) == (b < 0) else -quotient)
    raise no_such_overload("_/_", a, b)


def _divide_floats(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def modulo(a: Value, b: Value) -> Value:
    """Return the remainder of a division towards zero."""
    kind = type(a)
    if kind is type(b) and (kind is int or kind is UInt):
        if b == 0:
            raise CelError("modulus by zero")
        if a == INT_MIN and b == -1:
            raise CelError("integer overflow")
        remainder = abs(int(a)) % abs(int(b))
        return kind(-remainder if a < 0 else remainder)
    raise no_such_overload("_%_", a, b)


def negate(a: Value) -> Value:
    """Change the sign of a number or a duration."""
    kind = type(a)
    if kind is int:
        return checked_int(-a)
    if kind is float:
        return -a
    if kind is Duration:
        return Duration(-a.nanoseconds)
    raise no_such_overload("-_", a)

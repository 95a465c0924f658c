"""Format strings as cel-go does: `'%s'.format([...])`."""

import math
import re
from collections.abc import Callable
from typing import Final, NoReturn

from policyd.cel.cost import deep_size, traverse
from policyd.cel.errors import CelError
from policyd.cel.estimate import estimates
from policyd.cel.functions import Overload, Size, method
from policyd.cel.lib.standard import double_text
from policyd.cel.lib.time import duration_text, timestamp_text
from policyd.cel.syntax.patterns import lazy_pattern
from policyd.cel.types import DYN, STRING, list_of
from policyd.cel.values import Duration, Timestamp, TypeValue, UInt, Value, type_name

_CLAUSE: Final = lazy_pattern(r"%(?:%|(?:\.([0-9]*))?(.?))", re.DOTALL)
# More digits than a double has; without a limit, a precision of a gigabyte would be honoured.
_LARGEST_PRECISION: Final = 1_000
_DEFAULT_PRECISION: Final = 6
_DEEPEST: Final = 200
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _wrong(clause: str, wanted: str, value: object) -> CelError:
    return CelError(
        f"error during formatting: {clause} clause can only be used on {wanted}, "
        f"was given {type_name(value)}"
    )


def _text(value: Value, level: int = 0) -> str:
    if level > _DEEPEST:
        raise CelError(f"error during formatting: a value nests more than {_DEEPEST} levels deep")
    if type(value) is list:
        return f"[{', '.join([_text(part, level + 1) for part in value])}]"
    if isinstance(value, dict):
        pairs = sorted((_text(key), _text(part, level + 1)) for key, part in value.items())
        return f"{{{', '.join(f'{key}: {part}' for key, part in pairs)}}}"
    writer = _TEXTS.get(type(value), _no_text)
    return writer(value)


def _no_text(value: Value) -> NoReturn:
    raise CelError(
        "error during formatting: string clause can only be used on strings, bools, bytes, ints, "
        f"doubles, maps, lists, types, durations, and timestamps, was given {type_name(value)}"
    )


def _double_clause(number: float) -> str:
    special = _special_text(number)
    return special or double_text(number)


def _special_text(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return ""


_TEXTS: Final[dict[type, Callable[[Value], str]]] = {
    str: lambda value: value,
    int: str,
    UInt: lambda value: str(int(value)),
    float: _double_clause,
    bool: lambda value: "true" if value else "false",
    bytes: lambda value: value.decode("utf-8", "replace"),
    type(None): lambda _value: "null",
    TypeValue: lambda value: value.name,
    Timestamp: timestamp_text,
    Duration: duration_text,
}


def _number(value: Value, clause: str) -> float:
    if type(value) is str and value in _SPECIAL:
        return _SPECIAL[value]
    if type(value) in (int, UInt, float):
        return float(value)
    raise _wrong(clause, "doubles", value)


def _fixed(value: Value, precision: int) -> str:
    number = _number(value, "fixed-point")
    return _special_text(number) or f"{number:.{precision}f}"


def _scientific(value: Value, precision: int) -> str:
    number = _number(value, "scientific")
    return _special_text(number) or f"{number:.{precision}e}"


def _decimal(value: Value, _precision: int) -> str:
    if type(value) in (int, UInt):
        return str(int(value))
    if type(value) is float and _special_text(value):
        return _special_text(value)
    raise _wrong("decimal", "integers", value)


def _binary(value: Value, _precision: int) -> str:
    if type(value) in (int, UInt, bool):
        return f"{int(value):b}"
    raise CelError(
        "error during formatting: only integers and bools can be formatted as binary, "
        f"was given {type_name(value)}"
    )


def _octal(value: Value, _precision: int) -> str:
    if type(value) in (int, UInt):
        return f"{int(value):o}"
    raise _wrong("octal", "integers", value)


def _hexadecimal(value: Value, _precision: int) -> str:
    if type(value) in (int, UInt):
        return f"{int(value):x}"
    if type(value) is str:
        return value.encode().hex()
    if type(value) is bytes:
        return value.hex()
    raise CelError(
        "error during formatting: only integers, byte buffers, and strings can be formatted as "
        f"hex, was given {type_name(value)}"
    )


_CLAUSES: Final[dict[str, Callable[[Value, int], str]]] = {
    "s": lambda value, _precision: _text(value),
    "f": _fixed,
    "e": _scientific,
    "d": _decimal,
    "b": _binary,
    "o": _octal,
    "x": _hexadecimal,
    "X": lambda value, precision: _hexadecimal(value, precision).upper(),
}


def _format(template: str, arguments: list[Value]) -> str:
    place = -1

    def write(found: re.Match[str]) -> str:
        nonlocal place
        if found[0] == "%%":
            return "%"
        clause = _CLAUSES.get(found[2])
        if clause is None:
            unknown = f'unrecognized formatting clause "{found[2]}"'
            raise CelError(f"could not parse formatting clause: {unknown}")
        place += 1
        if place >= len(arguments):
            raise CelError(f"index {place} out of range")
        return clause(arguments[place], _precision(found[1]))

    return _CLAUSE.sub(write, template)


def _precision(digits: str | None) -> int:
    if not digits:
        return _DEFAULT_PRECISION if digits is None else 0
    if len(digits) > 4 or int(digits) > _LARGEST_PRECISION:
        raise CelError(f"precision larger than {_LARGEST_PRECISION}")
    return int(digits)


def _format_work(template: str, arguments: list[Value]) -> int:
    """Return how much text is made at most, in tens of characters."""
    clauses = template.count("%")
    size = template.count("%.") * _LARGEST_PRECISION + len(template) + 50 * clauses
    # Every value takes some characters; a hundred of text count as one, and may be escaped.
    return size // 10 + deep_size(arguments, times=10)


FORMAT: tuple[Overload, ...] = (
    method(
        "format",
        STRING,
        list_of(DYN),
        returns=STRING,
        run=_format,
        size=Size(cost=traverse, work=_format_work, estimate=estimates.template),
    ),
)

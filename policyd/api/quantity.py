"""Kubernetes quantities: `500m`, `1.5Gi`, `12e6` as exact numbers that remember their suffix.

A quantity is a whole number of nanos (10⁻⁹) and the kind of suffix it was written with. Finer
values are rounded away from zero when parsed, as the API server does: a request for something gets
something.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, Self

from policyd.errors import PolicydError

Format = Literal["BinarySI", "DecimalSI", "DecimalExponent"]
"""The kinds of suffix: `Ki`, `Mi` …; `m`, `k`, `M` …; `e3`, `E-2` …"""

PATTERN = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
"""The pattern of quantities in the API server's own error message."""

# No digit can be of two groups: else the time for a text that is not a number grows as its square.
_NUMBER = re.compile(
    r"([+-]?)([0-9]*)(?:\.([0-9]*))?((?:[eEinumkKMGTP]+[-+]?[0-9]*|[-+][0-9]*)?)", re.ASCII
)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,9})", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = ["", *_BINARY]

_NANO = 10**9
_INT64_MAX = 2**63 - 1
_INT64_DIGITS = 18
_BINARY_DIGITS = 14
# A longer text, or a larger exponent, is not a real amount; refusing them bounds the work.
_LONGEST_TEXT = 1_000
_LARGEST_EXPONENT = 1_000


class QuantityError(PolicydError):
    """A text is not a quantity."""


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount; compares by value, so that `1000m` equals `1`.

    Attributes:
        nano: The amount in units of 10⁻⁹.
        format: The kind of suffix it is written with.
        scale: Power of ten of the int64 the API server keeps it in; None if it keeps a big decimal.
            It decides whether CEL calls the quantity an integer, and nothing else.
    """

    nano: int
    format: Format = field(default="DecimalSI", compare=False)
    scale: int | None = field(default=0, compare=False)

    def value(self) -> int:
        """Return the amount in whole units, rounded away from zero."""
        return _divide_away_from_zero(self.nano, _NANO)

    def milli(self) -> int:
        """Return the amount in thousandths, rounded away from zero."""
        return _divide_away_from_zero(self.nano, _NANO // 1_000)

    def sign(self) -> int:
        """Return -1, 0 or 1."""
        return (self.nano > 0) - (self.nano < 0)

    def as_int64(self) -> int | None:
        """Return the integer the API server has without conversion, or None if it has none.

        `1000m` has none: the API server keeps it as thousandths.
        """
        if self.scale is None or self.scale < 0:
            return None
        whole = self.nano // _NANO
        return whole if _fits_int64(whole) else None

    def __float__(self) -> float:
        try:
            return self.nano / _NANO
        except OverflowError:
            return float("inf") * self.sign()

    def __add__(self, other: Self) -> "Quantity":
        total = self.nano + other.nano
        return Quantity(total, self._format_with(other), _common_scale(self, other, total))

    def __sub__(self, other: Self) -> "Quantity":
        total = self.nano - other.nano
        return Quantity(total, self._format_with(other), _common_scale(self, other, total))

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nano, self.format, self.scale)

    def __str__(self) -> str:
        """Write the canonical form: no fraction, no loss, the largest suffix that allows both."""
        if self.nano == 0:
            return "0"
        if self.format == "BinarySI" and self.nano % _NANO == 0 and abs(self.nano) >= 1024 * _NANO:
            return _binary(self.nano // _NANO)
        return _decimal(self.nano, exponential=self.format == "DecimalExponent")

    def _format_with(self, other: "Quantity") -> Format:
        return self.format if self.nano else other.format


def parse_quantity(text: object) -> Quantity:
    """Read a quantity, or a JSON number in the place of one.

    Raises:
        QuantityError: If `text` is not a quantity.
    """
    if isinstance(text, str):
        return _parse(text)
    if isinstance(text, int | float) and not isinstance(text, bool):
        return _parse(repr(text))
    raise QuantityError("a quantity is a string or a number")


@lru_cache(maxsize=8192)
def _parse(text: str) -> Quantity:
    # The API server reads a missing number as 0, so that `Mi` is nothing; only "" is an error.
    found = _NUMBER.fullmatch(text) if 0 < len(text) <= _LONGEST_TEXT else None
    if not found:
        raise QuantityError(f"quantities must match the regular expression '{PATTERN}'")
    sign, whole, fraction, suffix = found[1], found[2].lstrip("0"), found[3] or "", found[4]
    if suffix in _BINARY:
        quantity = _binary_quantity(whole, fraction, _BINARY[suffix])
    else:
        quantity = _decimal_quantity(whole, fraction, suffix)
    return -quantity if sign == "-" else quantity


def _decimal_quantity(whole: str, fraction: str, suffix: str) -> Quantity:
    exponent, kind = _read_suffix(suffix)
    digits = int(whole + fraction or "0")
    scale = exponent - len(fraction)
    # A number of up to 18 digits is kept in an int64, as CEL requires.
    fits = max(len(whole), 1) + len(fraction) <= _INT64_DIGITS and scale >= -9
    return Quantity(_scaled(digits, scale + 9), kind, scale if fits else None)


def _read_suffix(suffix: str) -> tuple[int, Format]:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix], "DecimalSI"
    found = _EXPONENT.fullmatch(suffix)
    if not found:
        raise QuantityError(
            "unable to parse quantity's suffix", hint="suffixes are n u m k M G T P E, Ki Mi Gi …"
        )
    exponent = int(found[1])
    if exponent > _LARGEST_EXPONENT:
        raise QuantityError(f"the exponent `{suffix}` is too large")
    return max(exponent, -2 * _LARGEST_EXPONENT), "DecimalExponent"


def _scaled(digits: int, scale: int) -> int:
    if scale >= 0:
        return int(digits * 10**scale)
    return _divide_away_from_zero(digits, 10**-scale)


def _binary_quantity(whole: str, fraction: str, exponent: int) -> Quantity:
    digits = int(whole + fraction or "0")
    nano = _divide_away_from_zero((digits << exponent) * _NANO, 10 ** len(fraction))
    fits = not fraction and max(len(whole), 1) + exponent * 3 // 10 <= _BINARY_DIGITS
    kind: Format = "DecimalSI" if 0 < nano < _NANO else "BinarySI"
    return Quantity(min(nano, _INT64_MAX * _NANO), kind, 0 if fits else None)


def _common_scale(a: Quantity, b: Quantity, total: int) -> int | None:
    """Return the scale of a sum: an int64 at the finer of both scales, if it fits there."""
    if a.scale is None or b.scale is None:
        return None
    if a.nano == 0 or b.nano == 0:
        return b.scale if a.nano == 0 else a.scale
    scale = min(a.scale, b.scale)
    parts = (a.nano, b.nano, total)
    return scale if all(_fits_int64(_scaled(part, -9 - scale)) for part in parts) else None


def _fits_int64(number: int) -> bool:
    return -_INT64_MAX - 1 <= number <= _INT64_MAX


def _divide_away_from_zero(number: int, divisor: int) -> int:
    return -(-number // divisor) if number > 0 else number // divisor


def _decimal(nano: int, *, exponential: bool) -> str:
    exponent = -9
    while nano % 1_000 == 0:
        nano //= 1_000
        exponent += 3
    if not exponential and exponent in _DECIMAL_SUFFIX:
        return f"{nano}{_DECIMAL_SUFFIX[exponent]}"
    return f"{nano}e{exponent}" if exponent else str(nano)


def _binary(whole: int) -> str:
    power = 0
    while whole % 1024 == 0 and power < len(_BINARY):
        whole //= 1024
        power += 1
    return f"{whole}{_BINARY_SUFFIX[power]}"

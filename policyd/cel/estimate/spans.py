"""Compute with spans: the least and the greatest value of a cost or size.

They saturate: an unbounded one stays so in sums and products.
"""

from dataclasses import dataclass
from typing import Final

UNBOUNDED: Final = 2**64 - 1
"""The most a span reaches to; nothing is known beyond."""


@dataclass(frozen=True, slots=True)
class Span:
    """The whole numbers from `least` to `most`."""

    least: int
    most: int

    def __add__(self, other: "Span") -> "Span":
        return Span(_bounded(self.least + other.least), _bounded(self.most + other.most))

    def __mul__(self, other: "Span") -> "Span":
        return Span(_bounded(self.least * other.least), _bounded(self.most * other.most))

    def __or__(self, other: "Span") -> "Span":
        """Return the smallest span around both."""
        return Span(min(self.least, other.least), max(self.most, other.most))

    def over(self, divisor: int) -> "Span":
        """Return the span divided, rounded up; an unbounded end stays so where Go's does."""
        return Span(-(-self.least // divisor), -(-self.most // divisor))

    @property
    def is_bounded(self) -> bool:
        """Whether the greatest value is bounded: a tenth of everything is not."""
        return self.most < UNBOUNDED // 1_000

    def __str__(self) -> str:
        if self.least == self.most:
            return f"{self.least:,}"
        return f"{self.least:,} to {self.most:,}" if self.is_bounded else f"at least {self.least:,}"


def _bounded(number: int) -> int:
    return min(number, UNBOUNDED)


def exactly(number: int) -> Span:
    """Return the span of one number."""
    return Span(number, number)


NOTHING: Final = exactly(0)
ONE: Final = exactly(1)
ANY: Final = Span(0, UNBOUNDED)
"""Nothing is known."""

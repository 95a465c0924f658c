"""Random-like numbers, the same whenever the arguments are the same.

The numbers of one name are spread evenly: each of as many equal parts of the range from 0 to 1 has
one of them. So a few draws are enough, and a forecast does not flicker while nothing changes.
"""

from zlib import crc32

_FACTOR, _STEP, _MASK = 6_364_136_223_846_793_005, 1_442_695_040_888_963_407, (1 << 64) - 1


def spread(name: str, count: int) -> list[float]:
    """Return numbers between 0 and 1, one in each of `count` equal parts, in an order of the name.

    Args:
        name: Different names give numbers that have nothing to do with each other.
        count: A prime number, so that every step through the parts meets each of them once.
    """
    state = crc32(name.encode()) * _FACTOR + _STEP & _MASK
    state = state * _FACTOR + _STEP & _MASK
    part, stride = (state >> 40) % count, 1 + (state >> 16) % (count - 1)
    numbers = []
    for _ in range(count):
        state = state * _FACTOR + _STEP & _MASK
        numbers.append((part + (state >> 11) / (1 << 53)) / count)
        part = (part + stride) % count
    return numbers


class DrawnNumbers:
    """A sequence of numbers between 0 and 1."""

    __slots__ = ("_state",)

    def __init__(self, name: str) -> None:
        """Begin the sequence that belongs to a name."""
        self._state = crc32(name.encode()) * _FACTOR + _STEP & _MASK

    def next(self) -> float:
        """Return the next number, at least 0 and below 1."""
        self._state = self._state * _FACTOR + _STEP & _MASK
        return (self._state >> 11) / (1 << 53)

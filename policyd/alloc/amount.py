"""Amounts: whole numbers of a resource in its canonical unit, milli-cores for cpu.

Quota at or above the largest 64-bit integer means no limit; sums stay there. Requests are cut to
the same range, so that nothing a user writes can overflow into a smaller number.
"""

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")

UNLIMITED = 2**63 - 1
"""As quota: no limit. As a request: the most that can be asked for."""

MOST_PODS = 2**31 - 1
"""How many pods there can be, as Kubernetes counts them."""

_SMALLEST = -(2**63)
_MILLI = 1_000


def quota_amount(resource: str, value: int) -> int:
    """Turn a quota in canonical units into an amount; a value out of range is UNLIMITED."""
    largest = UNLIMITED - UNLIMITED % _MILLI if resource == "cpu" else UNLIMITED
    return UNLIMITED if value >= largest else value


def request_amount(value: int) -> int:
    """Cut a request, or the sum of many, to the range of 64-bit integers."""
    return max(_SMALLEST, min(value, UNLIMITED))


def add(left: int, right: int) -> int:
    """Add two amounts of quota; UNLIMITED stays UNLIMITED."""
    return max(_SMALLEST, min(left + right, UNLIMITED))


def total_of(*parts: Mapping[K, int]) -> dict[K, int]:
    """Return the sums of all parts by key."""
    total: dict[K, int] = {}
    for part in parts:
        for key, amount in part.items():
            total[key] = total.get(key, 0) + amount
    return total


def subtract(left: int, right: int) -> int:
    """Take `right` from `left`; nothing bounded makes UNLIMITED smaller."""
    if left >= UNLIMITED:
        return 0 if right >= UNLIMITED else UNLIMITED
    return max(_SMALLEST, left - right)


def pods_within(requests: Mapping[str, int], capacity: Mapping[str, int]) -> tuple[int, str]:
    """Tell how many pods of `requests` each go into a capacity, and which resource limits that.

    The first by name of those that limit it most; "" if nothing is requested.
    """
    counts = [(max(0, capacity.get(r, 0)) // n, r) for r, n in requests.items() if n > 0]
    count, resource = min(counts, default=(MOST_PODS, ""))
    return min(count, MOST_PODS), resource

"""Admission fair sharing: the usage history of LocalQueues; those that used least go first.

Usage of one half-life ago counts half. Between two samples history moves towards the usage; an
admission counts from its decision on, by a penalty, until the workload's quota counts as usage.

Amounts are whole numbers of 10⁻⁹ units (cores, bytes, devices), cut off as Kueue's decimals are, so
that many small steps neither round away nor add up to more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from math import inf

from policyd.alloc.amount import total_of
from policyd.alloc.settings import UsageBasedOrder

Nanos = Mapping[str, int]
"""Resource to 10⁻⁹ units of it."""

_NANO = 10**9
_NANO_PER_MILLI = 10**6


def nanos(amounts: Mapping[str, int]) -> dict[str, int]:
    """Turn amounts in canonical units into 10⁻⁹ units."""
    return {r: n * (_NANO_PER_MILLI if r == "cpu" else _NANO) for r, n in amounts.items()}


def weight_of_now(seconds: float, half_life: float) -> float:
    """Return the weight of the last `seconds` in a mean with a `half_life`."""
    return 0.0 if half_life == 0 else 1.0 - 0.5 ** (seconds / half_life)


def decayed(consumed: Nanos, usage: Nanos, share: float) -> dict[str, int]:
    """Return history moved towards `usage`, of which it is made up to `share` afterwards."""
    return total_of(_scaled(consumed, 1.0 - share), _scaled(usage, share))


def _scaled(amounts: Nanos, factor: float) -> dict[str, int]:
    # By the shortest decimal that means the number, as Kueue's decimals are made.
    exact = Fraction(Decimal(repr(factor)))
    return {name: int(amount * exact) for name, amount in amounts.items()}


@dataclass(slots=True)
class ConsumedUsage:
    """What one LocalQueue `consumed` until `updated_at`, and penalties of its workloads by key."""

    updated_at: float
    consumed: Nanos = field(default_factory=dict)
    penalties: dict[str, Nanos] = field(default_factory=dict)

    @property
    def penalty(self) -> dict[str, int]:
        """The sum of all penalties."""
        return total_of(*self.penalties.values())


class UsageHistory:
    """The usage of LocalQueues, by `namespace/name`, and the weighted `usage` that orders them."""

    def __init__(self, rules: UsageBasedOrder) -> None:
        self.rules = rules
        self.entries: dict[str, ConsumedUsage] = {}
        self.usage: dict[str, float] = {}
        self._weights: dict[str, float] = {}

    def put_queue(self, queue: str, weight: float) -> None:
        """Note a LocalQueue; one of weight 0 has always used too much."""
        self._weights[queue] = weight
        self._weigh(queue)

    def remove_queue(self, queue: str) -> None:
        """Drop the weight of a LocalQueue; its history is kept in case it returns."""
        self._weights.pop(queue, None)
        self._weigh(queue)

    def seed(self, queue: str, consumed: Nanos, at: float) -> None:
        """Take over history from before this process; existing history is kept."""
        self.entries.setdefault(queue, ConsumedUsage(at, consumed))
        self._weigh(queue)

    def push(self, queue: str, workload: str, requests: Nanos, now: float) -> None:
        """Count a workload that was just decided, in place of its former penalty."""
        entry = self.entries.setdefault(queue, ConsumedUsage(now))
        share = weight_of_now(self.rules.sampling_seconds, self.rules.half_life_seconds)
        entry.penalties[workload] = _scaled(requests, share)
        self._weigh(queue)

    def drop(self, queue: str, workload: str) -> None:
        """Drop the penalty of a workload that is not admitted after all."""
        entry = self.entries.get(queue)
        if entry is not None and entry.penalties.pop(workload, None) is not None:
            self._weigh(queue)

    def awaits(self, queue: str, workload: str) -> bool:
        """Tell whether a workload counts by a penalty, and not as usage yet."""
        return queue in self.entries and workload in self.entries[queue].penalties

    def settle(self, queue: str, workload: str, usage: Nanos, now: float) -> None:
        """Make history of a penalty whose quota counts as usage; `usage` is of the LocalQueue."""
        entry = self.entries[queue]
        self._move(entry, usage, now)
        entry.consumed = total_of(entry.consumed, entry.penalties.pop(workload))
        self._weigh(queue)

    def sample(self, queue: str, usage: Nanos, now: float) -> ConsumedUsage:
        """Move the history of a LocalQueue on to now, and return it."""
        entry = self.entries.setdefault(queue, ConsumedUsage(now))
        self._move(entry, usage, now)
        if self.rules.half_life_seconds == 0:
            entry.consumed = {}
        self._weigh(queue)
        return entry

    def _move(self, entry: ConsumedUsage, usage: Nanos, now: float) -> None:
        elapsed = max(0.0, now - entry.updated_at)
        share = weight_of_now(elapsed, self.rules.half_life_seconds)
        entry.consumed = decayed(entry.consumed, usage, share)
        entry.updated_at = now

    def _weigh(self, queue: str) -> None:
        weight, entry = self._weights.get(queue, 1.0), self.entries.get(queue)
        used = {} if entry is None else total_of(entry.consumed, entry.penalty)
        weights = self.rules.weights
        total = sum(weights.get(name, 1.0) * amount / _NANO for name, amount in used.items())
        self.usage[queue] = total / weight if weight > 0 else inf

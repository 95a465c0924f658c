"""The record of GPU-hours: what held quota for how long, exact in the months of all time zones.

Quota is held from its reservation to its release. A *part* is 1/28 of a GPU: parts of MIG are
sevenths or quarters of one. All amounts are integers, in parts and seconds, so that no sum depends
on the order of its terms.

Of each ClusterQueue and flavor is also recorded how much of its nominal quota there was, what it
borrowed beyond that, and what of its own others used. All that is borrowed in a tree of cohorts is
lent by those that have quota left, in proportion to what they have left and lend.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Final, NamedTuple

from policyd.alloc.value import Value
from policyd.usage.months import (
    EARLIEST,
    QUARTER,
    Month,
    bucket_in,
    buckets,
    ended_before,
    month_of,
)

PARTS: Final = 28
"""Of a GPU."""
OTHERS: Final = "(others)"
"""The user, or the LocalQueue, of those that are no longer recorded one by one."""
MOST_USERS: Final = 100
"""Users of a LocalQueue that are recorded one by one: they name themselves."""
MOST_KEYS: Final = 2_000
"""Keys in all; beyond it, new users share one key, and beyond the double, new LocalQueues do."""
MOST_MONTHS: Final = 3
"""Months that are kept: this one, and those before it."""

Seconds = dict[int, int]
"""Parts times seconds, by bucket."""


class UseKey(NamedTuple):
    """What hours are recorded by.

    Attributes:
        queue: The ClusterQueue.
        local_queue: `namespace/name`.
        user: The person who is named as the owner; "" if none is.
        flavor: The ResourceFlavor.
    """

    queue: str
    local_queue: str
    user: str
    flavor: str

    @property
    def team(self) -> str:
        """The namespace."""
        return self.local_queue.partition("/")[0]


class HeldQuota(Value, frozen=True):
    """The quota of a workload.

    Attributes:
        queue: The ClusterQueue.
        local_queue: `namespace/name`.
        user: The person who is named as the owner; "" if none is.
        amounts: Parts of GPUs, by flavor.
    """

    queue: str
    local_queue: str
    user: str
    amounts: Mapping[str, int]


class QuotaGiven(NamedTuple):
    """The quota that a ClusterQueue or Cohort gives in a flavor.

    Attributes:
        nominal: Parts of GPUs.
        lent: How many of these it lends at most; None for all.
    """

    nominal: int
    lent: int | None = None


class QuotaTotals(NamedTuple):
    """Sums of a ClusterQueue and flavor, in parts and seconds."""

    nominal: int = 0
    borrowed: int = 0
    lent: int = 0


@dataclass(slots=True)
class OpenUse:
    """A workload that holds quota: what is charged to which key."""

    queue: str
    amounts: dict[UseKey, int]


@dataclass(slots=True)
class _Tree:
    """A flavor in a tree of cohorts; `at` is up to when it is charged."""

    at: int
    given: dict[str, QuotaGiven] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)


class HoursRecord:
    """The record.

    Attributes:
        since: From when on all is known, in seconds since the epoch.
        used: What was held, by key.
        quotas: Nominal, borrowed and lent quota, by ClusterQueue and flavor.
        unknown: What may have been held besides, at most, by ClusterQueue: its workloads were
            deleted while nothing was recorded.
        changes: How often something began or ended to hold quota.
        held: The workloads that hold quota, by a short form of their uid.
    """

    def __init__(self, since: int) -> None:
        """Begin with nothing."""
        self.since = since
        self.used: dict[UseKey, Seconds] = {}
        self.quotas: dict[tuple[str, str], tuple[Seconds, Seconds, Seconds]] = {}
        self.unknown: dict[str, Seconds] = {}
        self.held: dict[str, OpenUse] = {}
        self.changes = 0
        self._at = since
        self._rates: Counter[UseKey] = Counter()
        self._charged: dict[UseKey, int] = {}
        self._trees: dict[tuple[str, str], _Tree] = {}
        self._roots: dict[str, str] = {}

    @property
    def at(self) -> int:
        """Up to when all is charged, in seconds since the epoch."""
        return self._at

    # What happens.

    def hold(self, uid: str, quota: HeldQuota, at: float) -> None:
        """Note that a workload holds quota from a moment on; of one that does already, how much."""
        moment = max(int(at), self.since)
        known = self.held.get(uid)
        if known is not None:
            self.release(uid, at)
        amounts: dict[UseKey, int] = {}
        for flavor, parts in quota.amounts.items():
            key = self._key(UseKey(quota.queue, quota.local_queue, quota.user, flavor))
            amounts[key] = amounts.get(key, 0) + parts
        self.held[uid] = OpenUse(quota.queue, amounts)
        self._change(self.held[uid], moment, 1)

    def holds(self, uid: str) -> Mapping[str, int]:
        """Return the parts of GPUs that a workload holds, by flavor."""
        found: dict[str, int] = {}
        for key, parts in self.held[uid].amounts.items():
            found[key.flavor] = found.get(key.flavor, 0) + parts
        return found

    def release(self, uid: str, at: float) -> None:
        """Note that a workload holds no quota from a moment on."""
        found = self.held.pop(uid, None)
        if found is not None:
            self._change(found, max(int(at), self.since), -1)

    def put_quotas(
        self, quotas: Mapping[str, tuple[str, Mapping[str, QuotaGiven]]], at: float
    ) -> None:
        """Note the quotas from a moment on.

        Args:
            quotas: The root of its tree, and what it gives by flavor, for each ClusterQueue; also
                for Cohorts with quota of their own, by another name.
            at: In seconds since the epoch.
        """
        self.advance(at)
        used = {(key.queue, key.flavor): 0 for key in self._rates}
        for key, parts in self._rates.items():
            used[key.queue, key.flavor] += parts
        self._trees, self._roots = {}, {name: root for name, (root, _) in quotas.items()}
        for name, (root, given) in quotas.items():
            for flavor, quota in given.items():
                tree = self._trees.setdefault((root, flavor), _Tree(self._at))
                tree.given[name] = quota
        for (queue, flavor), parts in used.items():
            place = self._roots.get(queue, queue), flavor
            self._trees.setdefault(place, _Tree(self._at)).used[queue] = parts

    def advance(self, to: float) -> None:
        """Charge all that is held up to a moment; earlier than before, nothing is done.

        A clock that is put back charges no time twice: it passes by until the clock is there again.
        """
        moment = max(int(to), self._at)
        for key in [*self._rates]:
            self._charge(key, moment)
        for place, tree in self._trees.items():
            self._charge_tree(place[1], tree, moment)
        self._at = moment

    def forget(self, before: Month) -> None:
        """Drop what is in no time zone in a month or after it."""
        every: list[Seconds] = [*self.used.values(), *self.unknown.values()]
        every += (each for own in self.quotas.values() for each in own)
        for seconds in every:
            for bucket in [each for each in seconds if ended_before(each, before)]:
                del seconds[bucket]
        self.used = {k: v for k, v in self.used.items() if v or self._rates[k]}
        self.quotas = {k: v for k, v in self.quotas.items() if any(v)}
        self.unknown = {k: v for k, v in self.unknown.items() if v}

    def months(self) -> list[Month]:
        """Return the months that anything is recorded of, in order: of each time, the latest."""
        found = {bucket for seconds in self.used.values() for bucket in seconds}
        moments = (Month(-b // 12, -b % 12 + 1) if b < 0 else _month(b) for b in found)
        return sorted(set(moments))

    def restore(
        self,
        *,
        at: int,
        used: dict[UseKey, Seconds],
        quotas: dict[tuple[str, str], tuple[Seconds, Seconds, Seconds]],
        unknown: dict[str, Seconds],
        held: dict[str, OpenUse],
    ) -> None:
        """Take over what was stored, into a new record; it goes on from then."""
        self._at, self.used, self.quotas, self.unknown = at, used, quotas, unknown
        for uid, use in held.items():
            self.held[uid] = use
            self._change(use, at, 1)

    def miss(self, uid: str, until: float) -> None:
        """Note that a workload ended at an unknown moment, at the latest at a given one."""
        found = self.held.get(uid)
        if found is None:
            return
        missing = self.unknown.setdefault(found.queue, {})
        parts = sum(found.amounts.values())
        for bucket, seconds in buckets(self._at, int(until)):
            missing[bucket] = missing.get(bucket, 0) + parts * seconds
        self.release(uid, self._at)

    # Sums.

    def sums(self, month: Month, begin: int, end: int) -> Iterator[tuple[UseKey, int]]:
        """Yield what was held in a month by each key, in parts and seconds."""
        for key, seconds in sorted(self.used.items()):
            total = _sum(seconds, month, begin, end)
            if total:
                yield key, total

    def quota_sums(
        self, month: Month, begin: int, end: int
    ) -> Iterator[tuple[tuple[str, str], QuotaTotals]]:
        """Yield the sums of the quotas of a month, by ClusterQueue and flavor."""
        for place, parts in sorted(self.quotas.items()):
            totals = QuotaTotals(*(_sum(each, month, begin, end) for each in parts))
            if any(totals):
                yield place, totals

    def unknown_sum(self, queue: str, month: Month, begin: int, end: int) -> int:
        """Return what a ClusterQueue may have held besides in a month, at most."""
        return _sum(self.unknown.get(queue, {}), month, begin, end)

    # Charging.

    def _key(self, key: UseKey) -> UseKey:
        """Return the key that a use is charged to: there are so many at most."""
        if key in self.used:
            return key
        users = {each.user for each in self.used if each.local_queue == key.local_queue}
        if key.user not in users and (len(users) >= MOST_USERS or len(self.used) >= MOST_KEYS):
            key = key._replace(user=OTHERS)
        if key not in self.used and len(self.used) >= 2 * MOST_KEYS:
            key = key._replace(local_queue=f"{key.team}/{OTHERS}", user=OTHERS)
        self.used.setdefault(key, {})
        return key

    def _change(self, use: OpenUse, at: int, sign: int) -> None:
        """Change the rates from a moment on, which may have been charged already."""
        self.changes += 1
        for key, parts in use.amounts.items():
            charged = self._charged.setdefault(key, at)
            if at >= charged:
                self._charge(key, at)
            else:
                self._add(self.used.setdefault(key, {}), at, charged, sign * parts)
            self._rates[key] += sign * parts
            if not self._rates[key]:
                del self._rates[key], self._charged[key]
            place = self._roots.get(key.queue, key.queue), key.flavor
            tree = self._trees.setdefault(place, _Tree(max(at, self._at)))
            self._charge_tree(key.flavor, tree, at)
            tree.used[key.queue] += sign * parts

    def _charge(self, key: UseKey, to: int) -> None:
        begin = self._charged.get(key, to)
        if to > begin:
            self._add(self.used.setdefault(key, {}), begin, to, self._rates[key])
            self._charged[key] = to

    def _charge_tree(self, flavor: str, tree: _Tree, to: int) -> None:
        if to <= tree.at:
            return
        begin, tree.at = tree.at, to
        borrowed = {
            name: max(0, tree.used[name] - _given(tree, name).nominal)
            for name in tree.given.keys() | tree.used.keys()
        }
        left = {name: _left(given, tree.used[name]) for name, given in tree.given.items()}
        taken, room = sum(borrowed.values()), sum(left.values())
        for name in sorted(borrowed):
            lent = left.get(name, 0) * min(taken, room) / room if room else 0.0
            rates = (_given(tree, name).nominal, borrowed[name], lent)
            if not any(rates):
                continue
            kept = self.quotas.setdefault((name, flavor), ({}, {}, {}))
            for seconds, rate in zip(kept, rates, strict=True):
                if rate:
                    self._add(seconds, begin, to, rate)

    @staticmethod
    def _add(kept: Seconds, begin: int, end: int, parts: float) -> None:
        for bucket, seconds in buckets(begin, end):
            total = kept.get(bucket, 0) + round(parts * seconds)
            if total:
                kept[bucket] = total
            else:
                kept.pop(bucket, None)


def _month(quarter: int) -> Month:
    return month_of(quarter * QUARTER + EARLIEST, UTC)


def _given(tree: _Tree, name: str) -> QuotaGiven:
    return tree.given.get(name, QuotaGiven(0))


def _left(given: QuotaGiven, used: int) -> int:
    """Return what a queue has left of its own quota, and lends."""
    left = max(0, given.nominal - used)
    return left if given.lent is None else min(left, given.lent)


def _sum(seconds: Mapping[int, int], month: Month, begin: int, end: int) -> int:
    return sum(n for bucket, n in seconds.items() if bucket_in(bucket, month, begin, end))

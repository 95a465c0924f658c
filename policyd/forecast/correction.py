"""What earlier forecasts teach: by how much an interval must grow to hold what it promises.

Each forecast whose workload has started says how far the start was beyond either end of the
interval, as a ratio of waits. An end is moved so far that a twentieth of the last starts would
have been beyond it: split conformal prediction, with a window instead of the whole past. Classes
of size have windows of their own.

A workload that is still pending after the end of its interval counts as well, with what it has
waited: otherwise the longest waits would be known last, and the correction too small.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from math import ceil, exp, inf, log

from policyd.alloc.value import Value

GRACE_SECONDS = 60.0
"""Is added to waits before they are compared: seconds are no matter, ratios of hours are."""

FEWEST = 20
"""Outcomes before a class is corrected by its own; before that, by those of all classes."""

_TAIL = 0.05


class Interval(Value, frozen=True):
    """How long a workload waits from now on, in seconds; infinite where no end is in sight."""

    low: float
    median: float
    high: float


class _Outcome(Value, frozen=True):
    """How far a start was before the low end, after the median, after the high end; logarithms."""

    before_low: float
    after_median: float
    after_high: float


def _outcome(interval: Interval, waited: float) -> _Outcome:
    actual = log(waited + GRACE_SECONDS)
    return _Outcome(
        before_low=log(interval.low + GRACE_SECONDS) - actual,
        after_median=actual - log(interval.median + GRACE_SECONDS),
        after_high=actual - log(interval.high + GRACE_SECONDS),
    )


class Shift(Value, frozen=True):
    """How far the ends and the median of intervals are moved; logarithms of ratios of waits."""

    low: float = 0.0
    median: float = 0.0
    high: float = 0.0

    def applied(self, interval: Interval) -> Interval:
        """Return the interval as earlier outcomes say that it should be."""
        if self == _NO_SHIFT:
            return interval
        low = _moved(interval.low, self.low)
        median = max(low, _moved(interval.median, self.median))
        return Interval(low=low, median=median, high=max(median, _moved(interval.high, self.high)))


_NO_SHIFT = Shift()


class Correction:
    """Outcomes of earlier forecasts, and what they make of a new one.

    Attributes:
        most: How many outcomes of a class count.
        most_open: For how many pending workloads a forecast is remembered.
    """

    def __init__(self, *, most: int = 300, most_open: int = 10_000) -> None:
        self.most, self.most_open = most, most_open
        self._outcomes: dict[str, deque[_Outcome]] = {}
        self._open: OrderedDict[str, tuple[str, float, Interval]] = OrderedDict()

    def promise(self, key: str, size_class: str, interval: Interval, *, at: float) -> None:
        """Remember an uncorrected forecast until its workload starts; the first one counts.

        Args:
            key: Of the workload.
            size_class: Of the workload.
            interval: The result of the simulation, before the correction.
            at: When it was made, in seconds.
        """
        if key not in self._open and interval.high < inf:
            self._open[key] = size_class, at, interval
            if len(self._open) > self.most_open:
                self._open.popitem(last=False)

    def started(self, key: str, *, at: float) -> None:
        """Learn from a workload that started."""
        promised = self._open.pop(key, None)
        if promised is not None:
            size_class, made_at, interval = promised
            outcomes = self._outcomes.setdefault(size_class, deque(maxlen=self.most))
            outcomes.append(_outcome(interval, at - made_at))

    def forget(self, key: str) -> None:
        """Forget a workload that was deleted before it started."""
        self._open.pop(key, None)

    def corrected(self, size_class: str, interval: Interval, *, now: float) -> Interval:
        """Return the interval as earlier outcomes say that it should be.

        Args:
            size_class: Of the workload.
            interval: What the simulation says, each end at least 0 and maybe infinite.
            now: The time, in seconds.
        """
        return self.shift(size_class, now=now).applied(interval)

    def shift(self, size_class: str, *, now: float) -> Shift:
        """Return how intervals of a class are to be moved.

        Args:
            size_class: Of the workloads.
            now: The time, in seconds.
        """
        outcomes = self._known(size_class, now)
        if len(outcomes) < FEWEST:
            return _NO_SHIFT
        middle = sorted(each.after_median for each in outcomes)[len(outcomes) // 2]
        return Shift(
            low=-_upper(each.before_low for each in outcomes),
            # The median of few outcomes is known badly: they move the forecast by less.
            median=middle * len(outcomes) / (len(outcomes) + FEWEST),
            high=_upper(each.after_high for each in outcomes),
        )

    def records(self) -> dict[str, list[tuple[float, float, float]]]:
        """Return the outcomes of each class, to be stored; they name no workload."""
        return {
            name: [(each.before_low, each.after_median, each.after_high) for each in outcomes]
            for name, outcomes in self._outcomes.items()
        }

    def restore(self, records: Mapping[str, Iterable[tuple[float, float, float]]]) -> None:
        """Remember outcomes that were stored."""
        for name, outcomes in records.items():
            known = self._outcomes.setdefault(name, deque(maxlen=self.most))
            known.extend(_Outcome(*each) for each in outcomes)

    def _known(self, size_class: str, now: float) -> list[_Outcome]:
        """Return outcomes of a class, or of all classes where it has few."""
        own = [*self._outcomes.get(size_class, ()), *self._overdue(size_class, now)]
        if len(own) >= FEWEST:
            return own
        every = [each for outcomes in self._outcomes.values() for each in outcomes]
        return [*every, *self._overdue("", now)]

    def _overdue(self, size_class: str, now: float) -> Iterable[_Outcome]:
        """Yield outcomes of pending workloads that should have started; "" for all classes."""
        for of_class, made_at, interval in self._open.values():
            waited = now - made_at
            if waited > interval.high and size_class in ("", of_class):
                yield _outcome(interval, waited)


def _upper(scores: Iterable[float]) -> float:
    """Return what a new score exceeds with a probability of a twentieth at most."""
    ordered = sorted(scores)
    rank = ceil((1 - _TAIL) * (len(ordered) + 1))
    return ordered[min(rank, len(ordered)) - 1]


def _moved(wait: float, by: float) -> float:
    return wait if wait == inf else max(0.0, (wait + GRACE_SECONDS) * exp(by) - GRACE_SECONDS)

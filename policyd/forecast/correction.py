"""What earlier forecasts teach: by how much an interval must grow to hold what it promises.

Each forecast whose workload has started says how far the start was beyond either end of the
interval, as a ratio of waits. Outcome by outcome, an end is moved outwards by a step where the
start was beyond it, and inwards by a small part of a step where it was not, so that a twentieth is
beyond it in the long run, whatever the outcomes are: adaptive conformal prediction. Steps follow
what waits become faster than a window of past outcomes does. Classes of size have ends of their
own.

A workload that is still pending after the end of its interval counts as well, with what it has
waited: otherwise the longest waits would be known last, and the correction too small.

Workloads that come together wait alike: of one class, one in an hour teaches.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from math import exp, inf, log

from policyd.alloc.value import Value

GRACE_SECONDS = 60.0
"""Is added to waits before they are compared: seconds are no matter, ratios of hours are."""

FEW = 20
"""Outcomes by which a median is moved by half of what they say."""

STEP = 0.3
"""By how much an end moves where it was wrong; logarithm of a ratio of waits. Of 0.15, 0.3 and 0.5
it had the coverage that is nearest to nine tenths on a part of a trace that judges nothing."""

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
        high = _moved(interval.high, self.high)
        low = min(high, _moved(interval.low, self.low))
        median = min(high, max(low, _moved(interval.median, self.median)))
        return Interval(low=low, median=median, high=high)


_NO_SHIFT = Shift()


class Correction:
    """Outcomes of earlier forecasts, and what they make of a new one.

    Attributes:
        most: How many outcomes of a class count.
        most_open: For how many pending workloads a forecast is remembered.
        apart_seconds: From one forecast that teaches to the next of its class.
    """

    def __init__(
        self, *, most: int = 300, most_open: int = 10_000, apart_seconds: float = 0.0
    ) -> None:
        self.most, self.most_open, self.apart_seconds = most, most_open, apart_seconds
        self._outcomes: dict[str, deque[_Outcome]] = {}
        self._open: OrderedDict[str, tuple[str, float, Interval] | None] = OrderedDict()
        self._latest: dict[str, float] = {}

    def promise(self, key: str, size_class: str, interval: Interval, *, at: float) -> None:
        """Remember an uncorrected forecast until its workload starts; the first one counts.

        Args:
            key: Of the workload.
            size_class: Of the workload.
            interval: The result of the simulation, before the correction.
            at: When it was made, in seconds.
        """
        if key not in self._open and interval.high < inf:
            teaches = at - self._latest.get(size_class, -inf) >= self.apart_seconds
            if teaches:
                self._latest[size_class] = at
            self._open[key] = (size_class, at, interval) if teaches else None
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
        outcomes = [*self._outcomes.get(size_class, ()), *self._overdue(size_class, now)]
        if not outcomes:
            return _NO_SHIFT
        middle = sorted(each.after_median for each in outcomes)[len(outcomes) // 2]
        return Shift(
            low=-_tracked(each.before_low for each in outcomes),
            # The median of few outcomes is known badly: they move the forecast by less.
            median=middle * len(outcomes) / (len(outcomes) + FEW),
            high=_tracked(each.after_high for each in outcomes),
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

    def _overdue(self, size_class: str, now: float) -> Iterable[_Outcome]:
        """Yield outcomes of pending workloads that should have started."""
        for each in self._open.values():
            if each is not None and each[0] == size_class and now - each[1] > each[2].high:
                yield _outcome(each[2], now - each[1])


def _tracked(scores: Iterable[float]) -> float:
    """Return how far an end is moved after what was beyond it, the first first."""
    end = 0.0
    for score in scores:
        end += STEP * ((score > end) - _TAIL)
    return end


def _moved(wait: float, by: float) -> float:
    return wait if wait == inf else max(0.0, (wait + GRACE_SECONDS) * exp(by) - GRACE_SECONDS)

"""How good forecasts are: coverage, width, pinball loss, and how many come true."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from policyd.forecast.correction import Interval

LEVELS = (0.05, 0.5, 0.95)
ROUNDING_SECONDS = 1.0
"""Starts are known to the second: sums of times in another order differ by less."""

NEAR_SECONDS, NEAR_PART = 600.0, 0.2
"""A median comes true if the start is as near as that, or within that part of the wait."""


@dataclass(frozen=True)
class Judged:
    """One forecast, and what happened.

    `waited` is None if the job had not started when the trace ended, `open_for` after the forecast.
    `best` is the part of the draws that is near one start, at most.
    """

    size_class: str
    interval: Interval | None
    average: float
    waited: float | None
    open_for: float
    best: float | None = None

    @property
    def decided(self) -> bool:
        """Whether the trace tells if the interval held the start."""
        if self.interval is None:
            return False
        return self.waited is not None or self.interval.high < self.open_for

    @property
    def early(self) -> bool:
        return self.waited is not None and self.waited < self.interval.low - ROUNDING_SECONDS

    @property
    def late(self) -> bool:
        return self.waited is None or self.waited > self.interval.high + ROUNDING_SECONDS

    @property
    def near(self) -> bool:
        return is_near(self.interval.median, self.waited)

    @property
    def loss(self) -> float:
        """The mean pinball loss of the interval's ends and the median, in seconds."""
        ends = (self.interval.low, self.interval.median, self.interval.high)
        return sum(pinball(*each, self.waited) for each in zip(LEVELS, ends, strict=True)) / 3

    @property
    def average_loss(self) -> float:
        """The same of the moving average, which is all three."""
        return sum(pinball(level, self.average, self.waited) for level in LEVELS) / 3


def is_near(forecast: float, waited: float) -> bool:
    """Tell whether a forecast of a start comes true."""
    return abs(forecast - waited) <= max(NEAR_SECONDS, NEAR_PART * waited)


def nearest(waits: Sequence[float]) -> float | None:
    """Return the largest part of the draws that one forecast is near; None without draws."""
    ends = [each for each in waits if each < inf]
    tried = {each + off for each in ends for off in (-NEAR_SECONDS, 0.0, NEAR_SECONDS)}
    tried |= {each * by for each in ends for by in (1 - NEAR_PART, 1 + NEAR_PART)}
    found = (sum(is_near(forecast, each) for each in ends) for forecast in tried)
    return max(found, default=0) / len(waits) if waits else None


def pinball(level: float, forecast: float, actual: float) -> float:
    """Return the loss of a quantile: least, on average, for the true quantile of that level."""
    return max(level * (actual - forecast), (level - 1) * (actual - forecast))


@dataclass(frozen=True)
class Figures:
    """What is printed of some forecasts; None where nothing can be said."""

    forecasts: int
    coverage: float | None
    early: float | None
    late: float | None
    width: float | None
    relative_width: float | None
    loss: float | None
    average_loss: float | None
    median_loss: float | None
    average_median_loss: float | None
    near: float | None
    near_average: float | None
    best: float | None
    unknown: float
    undecided: float

    @property
    def loss_ratio(self):
        return self.loss / self.average_loss if self.average_loss else None

    @property
    def median_loss_ratio(self):
        return self.median_loss / self.average_median_loss if self.average_median_loss else None


def figures(judged: Sequence[Judged], weights: dict[str, float]) -> Figures:
    """Return figures of forecasts.

    Args:
        judged: The forecasts.
        weights: How many jobs each stands for, by class of size.
    """

    def mean(of, value):
        total = sum(weights[each.size_class] for each in of)
        return sum(weights[each.size_class] * value(each) for each in of) / total if total else None

    decided = [each for each in judged if each.decided]
    started = [each for each in judged if each.interval is not None and each.waited is not None]
    return Figures(
        forecasts=len(judged),
        coverage=mean(decided, lambda each: not each.early and not each.late),
        early=mean(decided, lambda each: each.early),
        late=mean(decided, lambda each: each.late),
        width=_median([each.interval.high - each.interval.low for each in started]),
        relative_width=_median(
            [(each.interval.high - each.interval.low) / max(60.0, each.waited) for each in started]
        ),
        loss=mean(started, lambda each: each.loss),
        average_loss=mean(started, lambda each: each.average_loss),
        median_loss=mean(started, lambda each: abs(each.interval.median - each.waited) / 2),
        average_median_loss=mean(started, lambda each: abs(each.average - each.waited) / 2),
        near=mean(started, lambda each: each.near),
        near_average=mean(started, lambda each: is_near(each.average, each.waited)),
        best=mean([each for each in started if each.best is not None], lambda each: each.best),
        unknown=mean(judged, lambda each: each.interval is None) or 0.0,
        undecided=mean(judged, lambda each: not each.decided and each.interval is not None) or 0.0,
    )


def _median(values):
    return median(values) if values else None

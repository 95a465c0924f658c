"""When a pending workload starts, as answers say it."""

from collections.abc import Mapping
from typing import Final, Literal

from policyd.alloc.value import Value
from policyd.api.meta import rfc3339
from policyd.snapshot.values import StartRow
from policyd.status.ages import duration, seconds_of

ForecastLabel = Literal["exact", "coarse", "unknown"]
_LABELS: Final[Mapping[str, ForecastLabel]] = {"exact": "exact", "coarse": "coarse"}

UNKNOWN: Final[Mapping[str, str]] = {
    "BacksOff": "it is not to be tried for now",
    "Misconfigured": "it cannot be considered as it is",
    "NeverFits": "its queue does not have what it requests, even if it is empty",
    "NoHistory": "jobs that it waits for declare no limit, and fewer than five jobs have ended",
    "TooFar": "it may take more than 45 days, or never start",
}
"""What the reasons mean why a start is unknown."""


class StartAnswer(Value, frozen=True, rename="camel"):
    """When a workload is forecast to start.

    Attributes:
        label: Whether the allocation core was simulated, or quotas alone; or that it is unknown.
        median: As many start before as after; None if it is unknown, like the next two.
        low: One in twenty starts before.
        high: One in twenty starts after.
        reason: Word for why it is unknown; "" if it is known.
    """

    label: ForecastLabel
    median: str | None = None
    low: str | None = None
    high: str | None = None
    reason: str = ""


def start_answer(row: StartRow | None) -> StartAnswer | None:
    """Return a forecast as answers have it; None if there is none yet."""
    if row is None:
        return None
    label = _LABELS.get(row.how, "unknown")
    if label == "unknown":
        return StartAnswer(label=label, reason=row.how)
    median, low, high = map(rfc3339, (row.median, row.low, row.high))
    return StartAnswer(label=label, median=median, low=low, high=high)


def start_text(answer: StartAnswer | None, now: float) -> str:
    """Write a forecast in one cell: `25m (10m to 70m)`, `unknown`, or `-` if there is none."""
    if answer is None:
        return "-"
    if answer.median is None or answer.low is None or answer.high is None:
        return "unknown"
    median, low, high = (_left(at, now) for at in (answer.median, answer.low, answer.high))
    return median if low == high else f"{median} ({low} to {high})"


def start_sentence(answer: StartAnswer | None, now: float) -> str:
    """Write a forecast with its label, or why it is unknown; "" if there is none."""
    if answer is None:
        return ""
    if answer.median is None:
        return f"unknown: {UNKNOWN.get(answer.reason, answer.reason)}"
    certain = answer.low == answer.high
    about = "if limits are kept" if certain else "9 of 10 start in this interval"
    return f"starts in {start_text(answer, now)}, {answer.label}; {about}"


def start_order(answer: StartAnswer | None) -> float:
    """Return what a list is sorted by to have the first start first; unknown ones come last."""
    median = None if answer is None else answer.median
    return float("inf") if median is None else seconds_of(median)


def _left(at: str, now: float) -> str:
    return duration(max(0.0, seconds_of(at) - now))

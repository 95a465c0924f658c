"""What a change would change, as values and as people read it. Pure."""

from collections.abc import Iterator
from typing import Final

from policyd.alloc.value import Value
from policyd.simulate.comparison import Change
from policyd.status.ages import duration

_NAMED: Final = 3
"""Workloads without a run time that are named; the others are counted."""


class StopAnswer(Value, frozen=True, rename="camel"):
    """A run that would be stopped.

    Attributes:
        seconds: When, from now on.
        by: `namespace/name` of the workload that it is preempted for; empty if it is for none.
        job: `Kind/name` of its job; empty if it stands for itself.
        reason: Why, as a Workload's condition has it.
    """

    seconds: float
    by: str
    job: str
    reason: str


class SimulatedTimes(Value, frozen=True, rename="camel"):
    """What happens to a workload, in seconds from now on.

    Attributes:
        start: `Runs`, `Starts`, `Never` or `Unknown`.
        seconds: When it starts; null if it does not, or that is unknown.
        stops: When it is preempted or evicted.
        restarts: When it starts again.
        known_seconds: For how long this is all that happens; null if nothing else is possible.
    """

    start: str
    seconds: float | None
    stops: tuple[StopAnswer, ...]
    restarts: tuple[float, ...]
    known_seconds: float | None


class DifferenceAnswer(Value, frozen=True, rename="camel"):
    """What differs for a workload.

    Attributes:
        namespace: Its namespace.
        workload: Its name.
        job: `Kind/name` of its job; empty if it stands for itself.
        cluster_queue: Its queue.
        change: What differs.
        seconds: How much later it starts, negative for earlier; null if unknown.
        before: What happens as things are; null if it is not there.
        after: What happens after the change; null if it is not there.
    """

    namespace: str
    workload: str
    job: str
    cluster_queue: str
    change: Change
    seconds: float | None
    before: SimulatedTimes | None
    after: SimulatedTimes | None


class UnknownEnd(Value, frozen=True, rename="camel"):
    """A workload whose end is unknown.

    Attributes:
        workload: `namespace/name`.
        reason: Why it is.
    """

    workload: str
    reason: str


class WhatIfAnswer(Value, frozen=True, rename="camel"):
    """What a change would change.

    Attributes:
        now: The moment from which on seconds count.
        differences: By the time of the start after the change.
        same: How many workloads nothing changes for.
        unknown: For how many the difference is unknown.
        unclear: Workloads whose end is unknown, and after whose start their queues are.
        unordered: ClusterQueues that past usage orders, which have no answer.
    """

    now: str
    differences: tuple[DifferenceAnswer, ...]
    same: int
    unknown: int
    unclear: tuple[UnknownEnd, ...]
    unordered: tuple[str, ...]


def start_text(stay: SimulatedTimes | None) -> str:
    """Say when a workload starts."""
    if stay is None:
        return "-"
    if stay.seconds is None:
        return stay.start.lower()
    return "now" if stay.seconds <= 0 else f"in {duration(stay.seconds)}"


def change_text(each: DifferenceAnswer) -> str:
    """Say what changes, and what else happens to the workload."""
    moved = f" by {duration(abs(each.seconds))}" if each.seconds is not None else ""
    stops = ""
    if each.after is not None and (each.before is None or each.before.stops != each.after.stops):
        stops = "; ".join(map(_stop, each.after.stops))
    word = "" if stops and each.change == "Preempted" else f"{each.change.lower()}{moved}"
    again = each.after.restarts if stops and each.after is not None else ()
    starts = f"starts again {_when(again[-1])}" if again else ""
    return ", ".join(filter(None, (word, stops, starts)))


def _stop(stop: StopAnswer) -> str:
    if not stop.by:
        return f"evicted {_when(stop.seconds)} ({stop.reason})"
    namespace, _, workload = stop.by.partition("/")
    name = stop.job.rpartition("/")[2] or workload
    return f"preempted {_when(stop.seconds)} for {namespace}/{name} ({stop.reason})"


def _when(seconds: float) -> str:
    return "now" if seconds <= 0 else f"in {duration(seconds)}"


def left_out(answer: WhatIfAnswer) -> Iterator[str]:
    """Yield what a table of differences leaves out."""
    if answer.same:
        yield f"{_workloads(answer.same)} as before"
    if answer.unordered:
        names = ", ".join(answer.unordered)
        yield f"unknown for {names} and the queues that share with it: past usage decides there"
    if answer.unclear:
        named = [f"{each.workload} ({each.reason})" for each in answer.unclear[:_NAMED]]
        more = len(answer.unclear) - len(named)
        others = f" and {more} more" if more else ""
        yield (
            f"unknown for {_workloads(answer.unknown)}, because of the end of"
            f" {', '.join(named)}{others}"
        )


def _workloads(number: int) -> str:
    return "1 workload" if number == 1 else f"{number} workloads"

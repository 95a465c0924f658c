"""The life of a job as a time line: its Workload's conditions and its events, in the order of time.

Conditions have the last time of each step, and events the earlier ones, for as long as the API
server keeps them. Where both tell of the same step, the event is kept, as its message says more.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from policyd.api.kueue.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PODS_READY,
    PREEMPTED,
    QUOTA_RESERVED,
)
from policyd.status.ages import seconds_of
from policyd.workload.records import ConditionRecord

Step = Literal[
    "created",
    "gated",
    "waiting",
    "reserved",
    "admitted",
    "ready",
    "preempted",
    "evicted",
    "finished",
    "other",
]

SAME_SECONDS: Final = 5.0
"""Between an event and a condition that tell of the same step, at most."""

MOST_MOMENTS: Final = 200
"""Moments of a time line; of a longer one, the latest are kept."""


class TimelineEvent(NamedTuple):
    """An event of a job or of its Workload.

    Attributes:
        at: When it was last seen, in seconds since the epoch.
        reason: Word for programs.
        message: A sentence.
        warning: Whether it tells of a problem.
        times: How often it was seen.
    """

    at: float
    reason: str
    message: str
    warning: bool = False
    times: int = 1


class TimelineMoment(NamedTuple):
    """A moment of a job's life.

    Attributes:
        at: When, in seconds since the epoch.
        step: The step that was taken.
        reason: Word for programs; "" if there is none.
        message: A sentence; "" if there is none.
        warning: Whether it tells of a problem.
        times: How often it was seen; `at` is the last time.
    """

    at: float
    step: Step
    reason: str = ""
    message: str = ""
    warning: bool = False
    times: int = 1


_EVENTS: Final[Mapping[str, Step]] = {
    "CreatedWorkload": "created",
    "AdmissionGated": "gated",
    "AdmissionGateCleared": "waiting",
    "Pending": "waiting",
    "WaitingForQuota": "waiting",
    "QuotaReserved": "reserved",
    "Admitted": "admitted",
    "Started": "admitted",
    "Preempted": "preempted",
    "PreemptedBy": "preempted",
    "Stopped": "evicted",
    "FinishedWorkload": "finished",
}
_CONDITIONS: Final[Mapping[str, Step]] = {
    QUOTA_RESERVED: "reserved",
    ADMITTED: "admitted",
    PODS_READY: "ready",
    PREEMPTED: "preempted",
    EVICTED: "evicted",
    FINISHED: "finished",
}
_STOPS: Final = frozenset({"preempted", "evicted"})
_RANK: Final[Mapping[tuple[bool, str], int]] = {
    (True, "preempted"): 0,
    (False, "preempted"): 1,
    (False, "evicted"): 2,
}
"""Of moments that tell of one preemption, the first is shown: it names the preemptor in words."""
_ORDER: Final[Mapping[Step, int]] = {
    "created": 0,
    "gated": 1,
    "waiting": 2,
    "reserved": 3,
    "admitted": 4,
    "ready": 5,
    "other": 6,
    "preempted": 7,
    "evicted": 8,
    "finished": 9,
}
"""The order of what happened in the same second."""


def timeline(
    conditions: Iterable[ConditionRecord],
    events: Iterable[TimelineEvent],
    *,
    created: float | None,
) -> tuple[TimelineMoment, ...]:
    """Return the life of a job, the earliest moment first.

    Args:
        conditions: Those of its Workload; none if it has no Workload, or it cannot be read.
        events: Those of the job and of its Workload, in any order.
        created: When the job was created, in seconds since the epoch; None if that is not known.
    """
    reported = [_of_event(each) for each in events]
    found = (
        []
        if created is None
        else [TimelineMoment(created, "created", message="The job was created")]
    )
    found += (each for each in _of_conditions(conditions) if not _is_covered(each, reported))
    ordered = sorted(
        (*found, *reported), key=lambda each: (int(each.at), _ORDER[each.step], each.at)
    )
    return tuple(_without_repetitions(_with_preemptions(ordered)))[-MOST_MOMENTS:]


def _of_event(event: TimelineEvent) -> TimelineMoment:
    step = _EVENTS.get(event.reason, "other")
    if event.reason.startswith("EvictedDueTo"):
        step = "evicted"
    return TimelineMoment(event.at, step, event.reason, event.message, event.warning, event.times)


def _of_conditions(conditions: Iterable[ConditionRecord]) -> Iterator[TimelineMoment]:
    for each in conditions:
        if each.since is None:
            continue
        at = seconds_of(each.since)
        if each.status == "True" and each.type in _CONDITIONS:
            yield TimelineMoment(at, _CONDITIONS[each.type], each.reason, each.message)
        elif each.type == QUOTA_RESERVED:
            yield TimelineMoment(at, _pending(each), each.reason, each.message)


def _pending(condition: ConditionRecord) -> Step:
    return "gated" if condition.reason == "AdmissionGated" else "waiting"


def _is_covered(moment: TimelineMoment, reported: Iterable[TimelineMoment]) -> bool:
    return any(
        each.step == moment.step and abs(each.at - moment.at) <= SAME_SECONDS for each in reported
    )


def _with_preemptions(moments: Iterable[TimelineMoment]) -> Iterator[TimelineMoment]:
    """Yield moments; of those that tell of one preemption or eviction, the plainest alone."""
    held: TimelineMoment | None = None
    for each in moments:
        if each.step not in _STOPS:
            if held is not None:
                yield held
                held = None
            yield each
        elif held is None or each.at - held.at > SAME_SECONDS:
            if held is not None:
                yield held
            held = each
        elif _rank(each) < _rank(held):
            held = each._replace(at=held.at)
    if held is not None:
        yield held


def _rank(moment: TimelineMoment) -> int:
    return _RANK[moment.reason == "PreemptedBy", moment.step]


def _without_repetitions(moments: Iterable[TimelineMoment]) -> Iterator[TimelineMoment]:
    """Yield moments without those that repeat the one before of the same step."""
    last: dict[Step, TimelineMoment] = {}
    for each in moments:
        before = last.get(each.step)
        last[each.step] = each
        if before is not None and each.step != "other" and _repeats(each, before):
            continue
        yield each


def _repeats(moment: TimelineMoment, before: TimelineMoment) -> bool:
    near = moment.at - before.at <= SAME_SECONDS
    return near and (moment.step in {"created", "admitted"} or moment.message == before.message)

"""The overview: what is first seen."""

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final

from policyd.dashboard.access import ResourceAttributes
from policyd.dashboard.view import PageRequest, PageView
from policyd.dashboard.views.overview import (
    Change,
    ChangeKind,
    OverviewRead,
    Recent,
    changes_of,
    overview,
)
from policyd.errors import PolicydError
from policyd.kube.client import Reader
from policyd.kube.resources import EVENTS
from policyd.questions.core_events import CoreEvent
from policyd.snapshot.values import QueueSnapshot

EVENTS_SECONDS: Final = 10.0
"""For how long events are not read again."""
MOST_EVENTS: Final = 1_000
"""Events of one reason that are read."""
_EVICTIONS: Final = ("PodsReadyTimeout", "AdmissionCheck", "NodeFailures", "Deactivated")
_REASONS: Final[Mapping[str, ChangeKind]] = {
    "Admitted": "admitted",
    "Preempted": "preempted",
    "FinishedWorkload": "finished",
    **dict.fromkeys((f"EvictedDueTo{reason}" for reason in _EVICTIONS), "evicted"),
}


async def _read(request: PageRequest) -> OverviewRead:
    snapshot = await request.snapshot()
    return OverviewRead(snapshot, await _recent(request, snapshot))


async def _recent(request: PageRequest, snapshot: QueueSnapshot) -> Recent:
    """Return what happened, as the events say that the person may list."""
    if "events" not in request.allowed:
        where = f"namespace {request.scope}" if request.scope else "the cluster"
        return Recent(problem=f"you may not list the events of {where}")
    key = "events", request.scope
    read = partial(_events, request.client, request.scope)
    try:
        (events, more), _ = await request.feeds.shared(key, read, fresh_seconds=EVENTS_SECONDS)
    except PolicydError as error:
        return Recent(problem=str(error))
    jobs: dict[str, str] = {}
    for queue in snapshot.cluster_queues:
        jobs |= {row.key: row.job for row in queue.pending if row.job}
        jobs |= {row.key: row.job for row in queue.holding if row.job}
    return Recent(changes_of(_change(each, jobs) for each in events), more)


async def _events(reader: Reader, namespace: str) -> tuple[list[CoreEvent], bool]:
    """Return events about admission and its end, and whether there are more than were read."""
    found: list[CoreEvent] = []
    more = False
    for reason in _REASONS:
        number = 0
        async for each, last in _of_reason(reader, namespace, reason):
            found += each
            number += len(each)
            if number >= MOST_EVENTS:
                more = more or not last
                break
    return found, more


async def _of_reason(
    reader: Reader, namespace: str, reason: str
) -> AsyncIterator[tuple[list[CoreEvent], bool]]:
    """Yield the events of a reason page by page, and whether that page is the last."""
    continue_ = ""
    while True:
        page = await reader.page(
            EVENTS,
            into=CoreEvent,
            namespace=namespace,
            field_selector=f"reason={reason}",
            continue_=continue_,
        )
        continue_ = page.continue_
        found = [each for each in page.items if each.is_of_queues and each.reason == reason]
        yield found, not continue_
        if not continue_:
            return


def _change(event: CoreEvent, jobs: Mapping[str, str]) -> Change:
    about = event.involved_object
    key = f"{about.namespace}/{about.name}"
    own = f"{about.kind}/{about.name}"
    return Change(
        at=event.last_at,
        kind=_REASONS[event.reason],
        namespace=about.namespace,
        job=(jobs.get(key) or own) if about.kind == "Workload" else own,
        message=event.message,
    )


VIEW: Final = PageView(
    path="/",
    title="Overview",
    template="overview.html",
    read=_read,
    build=overview,
    live=("figures", "attention", "tree", "budgets", "changes"),
    rights={"events": lambda scope: ResourceAttributes("list", "", "events", scope)},
)

"""Events, as far as they are shown."""

from datetime import datetime
from typing import Final

from policyd.api.meta import ObjectMeta, ObjectReference, Wire
from policyd.kube.client import Reader
from policyd.kube.resources import EVENTS

_QUEUE_KINDS: Final = frozenset({"Workload", "LocalQueue", "ClusterQueue", "Cohort"})
_COMPONENTS: Final = ("policyd", "kueue")
"""How the names of components begin whose events are about queues, whatever the object."""


class _Source(Wire, frozen=True):
    component: str = ""


class _Series(Wire, frozen=True):
    count: int = 0
    last_observed_time: datetime | None = None


class CoreEvent(Wire, frozen=True):
    """The parts of an Event that are shown; a component may write any of the times."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    type: str = "Normal"
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    source: _Source = _Source()
    reporting_component: str = ""
    series: _Series | None = None

    @property
    def last_at(self) -> float:
        """When it was last seen, in seconds since the epoch."""
        series = None if self.series is None else self.series.last_observed_time
        found = (
            series or self.last_timestamp or self.event_time or self.first_timestamp
            or self.metadata.creation_timestamp
        )  # fmt: skip
        return 0.0 if found is None else found.timestamp()

    @property
    def times(self) -> int:
        """How often it was seen."""
        return max(self.count or 1, 0 if self.series is None else self.series.count)

    @property
    def is_of_queues(self) -> bool:
        """Whether it is about queues and their workloads."""
        component = self.source.component or self.reporting_component
        return self.involved_object.kind in _QUEUE_KINDS or component.startswith(_COMPONENTS)


async def events_about(
    reader: Reader, namespace: str, kind: str, name: str, *, most: int = 500
) -> tuple[CoreEvent, ...]:
    """Return the events about one object that tell of queues.

    Raises:
        ApiError: If the API server refuses, or does not answer.
    """
    about = f"involvedObject.kind={plain_kind(kind)},involvedObject.name={name}"
    page = await reader.page(
        EVENTS, into=CoreEvent, namespace=namespace, field_selector=about, limit=most
    )
    return tuple(each for each in page.items if each.is_of_queues)


def plain_kind(kind: str) -> str:
    """Return a kind as an event has it: without the group that tells it from others."""
    return kind.partition(".")[0]

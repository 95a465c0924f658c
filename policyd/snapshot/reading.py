"""Reads a snapshot, and finds workloads in it. One that cannot be understood is a sentence."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from policyd.api.meta import Json
from policyd.errors import PolicydError
from policyd.snapshot.values import (
    API_VERSION,
    FORMAT,
    KIND,
    NONE,
    ClusterQueueUse,
    HoldingRow,
    PendingRow,
    QueueSnapshot,
    SnapshotReason,
    StartRow,
)
from policyd.status.naming import OtherTeams

OLD_SECONDS = 60.0
"""From this age on, readers get a note that a snapshot is old: it is made on demand."""


UNCHANGED: Final = {"apiVersion": API_VERSION, "kind": "Unchanged"}
"""The answer to a reader that has the current version already."""
_LATEST: Final = 253_402_300_799
"""The last second of the year 9999."""


class SnapshotError(PolicydError):
    """A snapshot cannot be read, or not by this version."""


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    """What tells whether the rest can be read."""

    api_version: str = ""
    kind: str = ""
    format: int = 0


class _Settings(_Head, frozen=True):
    """What tells how the queues decide."""

    configuration: dict[str, Json] | None = None
    other_teams: OtherTeams = "names"


_H = TypeVar("_H", bound=_Head)

_DECODER = msgspec.json.Decoder(QueueSnapshot)


def read(body: bytes, source: str) -> QueueSnapshot:
    """Read a snapshot.

    Args:
        body: JSON.
        source: Where it is from, for messages.

    Raises:
        SnapshotError: If it is none, was cut, or has a format that this version does not read.
    """
    _head(body, source, _Head)
    try:
        found = _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise SnapshotError(f"{source}: the {KIND} is damaged: {error}") from error
    for queue in found.cluster_queues:
        if not _is_whole(queue):
            raise SnapshotError(
                f"{source}: the {KIND} is damaged: a row of ClusterQueue {queue.name} names an"
                " entry of a table that is not there"
            )
        if not all(0 <= moment <= _LATEST for moment in _moments(queue)):
            raise SnapshotError(
                f"{source}: the {KIND} is damaged: ClusterQueue {queue.name} has a time that no"
                " calendar has"
            )
    return found


def configuration_in(body: bytes, source: str) -> dict[str, Json] | None:
    """Return the Configuration by which the queues decide; None if the snapshot has none.

    Args:
        body: JSON of a snapshot.
        source: Where it is from, for messages.

    Raises:
        SnapshotError: As `read`.
    """
    head = _head(body, source, _Settings)
    if head.configuration is None:
        return None
    return {**head.configuration, "visibility": {"otherTeams": head.other_teams}}


def _head(body: bytes, source: str, into: type[_H]) -> _H:
    """Return the head of a snapshot.

    Raises:
        SnapshotError: If it is none, was cut, or has a format that this version does not read.
    """
    try:
        head = msgspec.json.decode(body, type=into)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SnapshotError(
            f"{source}: not a whole {KIND}: {error}", hint="take the snapshot again"
        ) from error
    if (head.api_version, head.kind) != (API_VERSION, KIND):
        raise SnapshotError(
            f"{source}: `{head.api_version}` `{head.kind}` is not a {KIND} of {API_VERSION}",
            hint="`kubectl get --raw` prints one: see docs/guides/why-does-my-job-wait.md",
        )
    if head.format != FORMAT:
        raise SnapshotError(
            f"{source}: the snapshot has format {head.format}, and this version of policyd reads"
            f" format {FORMAT}",
            hint="use the version of policyd that the cluster runs",
        )
    return head


def read_newer(body: bytes, source: str) -> QueueSnapshot | None:
    """Read the answer to a reader that sent its version; None if that is the current one.

    Raises:
        SnapshotError: As `read`.
    """
    try:
        unchanged = msgspec.json.decode(body) == UNCHANGED if len(body) < 100 else False
    except msgspec.MsgspecError:
        unchanged = False
    return None if unchanged else read(body, source)


def _moments(queue: ClusterQueueUse) -> Iterator[float]:
    """Yield all times of a queue."""
    for pending in queue.pending:
        yield pending.since
    for holding in queue.holding:
        yield holding.since
    for past in queue.past:
        yield past.updated_at


def _is_whole(queue: ClusterQueueUse) -> bool:
    """Tell whether all indexes in the rows of a queue lead somewhere."""
    queues, reasons, requests = map(len, (queue.local_queues, queue.reasons, queue.requests))
    origins, starts = len(queue.origins), len(queue.starts)
    return (
        all(
            0 <= row.requests < requests
            and NONE <= row.local_queue < queues
            and NONE <= row.reason < reasons
            and NONE <= row.origin < origins
            and NONE <= row.ahead < place
            and NONE <= row.start < starts
            for place, row in enumerate(queue.pending)
        )
        and all(NONE <= line.local_queue < queues for line in queue.lines)
        and all(
            0 <= row.usage < len(queue.usages) and NONE <= row.local_queue < queues
            for row in queue.holding
        )
    )


@dataclass(frozen=True, slots=True)
class FoundPending:
    """A pending workload that was found, with its queue and its place in that.

    Attributes:
        queue: Its ClusterQueue.
        place: How many are before it there.
        held: Workloads of the same job that have quota there, such as the smaller one of a job
            that grows.
    """

    queue: ClusterQueueUse
    place: int
    held: tuple[HoldingRow, ...] = ()

    @property
    def row(self) -> PendingRow:
        """The workload itself."""
        return self.queue.pending[self.place]

    @property
    def ahead(self) -> "FoundPending | None":
        """The workload that must get quota, or be refused, before it; None if there is none."""
        place = self.row.ahead
        return None if place == NONE else FoundPending(self.queue, place)

    @property
    def reason(self) -> SnapshotReason | None:
        """Its own reason; None if it is behind another, or nothing is known yet."""
        index = self.row.reason
        return None if index == NONE else self.queue.reasons[index]

    @property
    def start(self) -> StartRow | None:
        """When it is forecast to start; None if there is no forecast."""
        index = self.row.start
        return None if index == NONE else self.queue.starts[index]

    @property
    def place_in_local_queue(self) -> int:
        """Its place among those of its LocalQueue."""
        mine, rows = self.row.local_queue, self.queue.pending
        return sum(row.local_queue == mine for row in rows[: self.place])


@dataclass(frozen=True, slots=True)
class FoundHolding:
    """A workload with quota that was found, with its queue."""

    queue: ClusterQueueUse
    row: HoldingRow


def find(
    snapshot: QueueSnapshot, namespace: str, kind: str, name: str
) -> FoundPending | FoundHolding | None:
    """Find the workload of a job, or a Workload by its own name.

    Args:
        snapshot: The queues.
        namespace: The job's.
        kind: Of the job; `Workload` for the Workload itself.
        name: The job's, or the Workload's.
    """
    key, start, job = f"{namespace}/{name}", f"{namespace}/", f"{kind}/{name}"
    itself = kind == "Workload"

    def fits(row: PendingRow | HoldingRow) -> bool:
        return row.key == key if itself else row.job == job and row.key.startswith(start)

    for queue in snapshot.cluster_queues:
        for place, row in enumerate(queue.pending):
            if fits(row):
                return FoundPending(queue, place, tuple(filter(fits, queue.holding)))
    held = _held(snapshot)
    return next((FoundHolding(queue, row) for queue, row in held if fits(row)), None)


def _held(snapshot: QueueSnapshot) -> Iterator[tuple[ClusterQueueUse, HoldingRow]]:
    for queue in snapshot.cluster_queues:
        for row in queue.holding:
            yield queue, row

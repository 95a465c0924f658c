"""When a workload would start that is not submitted yet, for as long as that holds.

The controller forecasts it for some requests of each queue, beside its other forecasts. Once the
queues have changed, a certain start is dropped; another one is kept while the changes are small.
"""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final, NamedTuple

from policyd.alloc.state import CoreState
from policyd.api.meta import Json
from policyd.snapshot.values import NewWorkloadStart, StartRow

OLD_SECONDS: Final = 60.0
"""For how long a forecast of a new workload is used, however little has changed."""
NEARLY: Final = 0.05
"""Part of the workloads in a tree, or ahead, that may be others than there were."""
NEAR, NEAR_SECONDS = 0.1, 60.0
"""How far the starts of a smaller and of a larger workload may differ: part of the wait, or so
long. If it is less, what is between them starts then."""
ASKED_SECONDS: Final = 30.0
"""For how long forecasts are made after a request for them."""


class TreeStamp(NamedTuple):
    """What a tree of queues was like: its quota and usage, and how many wait and hold quota."""

    version: int
    pending: int
    holding: int


def stamps_of(state: CoreState) -> dict[str, TreeStamp]:
    """Return the stamp of the tree of each queue."""
    state.settle()
    trees: dict[str, TreeStamp] = {}
    tops: dict[str, str] = {}
    for name, queue in state.queues.items():
        if queue.node is not None:
            root = queue.node.root
            tops[name] = top = f"{root.queue} {root.name}"
            _, pending, holding = trees.get(top, (0, 0, 0))
            pending, holding = pending + len(queue.pending), holding + len(queue.holdings)
            trees[top] = TreeStamp(root.version, pending, holding)
    return {name: trees[top] for name, top in tops.items()}


class NewWorkloadStarts:
    """The latest forecasts of workloads that are not submitted.

    Attributes:
        version: Grows with each change.
        bases: Objects that jobs are made from, by their keys.
        asked_at: When they were last asked for, in seconds of a clock that only goes forward.
    """

    def __init__(self) -> None:
        """Begin without forecasts."""
        self.version, self.asked_at = 0, -inf
        self.bases: Mapping[str, Json] = {}
        self._rows: Mapping[str, tuple[NewWorkloadStart, ...]] = {}
        self._stamps: Mapping[str, TreeStamp] = {}
        self._made_at = -inf

    def __bool__(self) -> bool:
        return bool(self._rows)

    def wanted(self, now: float) -> bool:
        """Tell whether there was a request for them lately, given the time as in `asked_at`."""
        return now - self.asked_at <= ASKED_SECONDS

    def put(
        self,
        rows: Mapping[str, tuple[NewWorkloadStart, ...]],
        stamps: Mapping[str, TreeStamp],
        *,
        at: float,
    ) -> None:
        """Take over newer ones.

        Args:
            rows: By queue.
            stamps: Of the trees that they were made for, by queue.
            at: When these were so, in seconds.
        """
        if rows or self._rows:
            self.version += 1
        self._rows, self._stamps, self._made_at = rows, stamps, at

    def put_bases(self, found: Mapping[str, Json]) -> None:
        """Take over the objects that jobs are made from, by their keys."""
        if found != self.bases:
            self.version += 1
            self.bases = found

    def current(self, state: CoreState, *, now: float) -> dict[str, tuple[NewWorkloadStart, ...]]:
        """Return what still holds, by queue.

        Args:
            state: The queues now.
            now: The time, in seconds.
        """
        if not self._rows or now - self._made_at > OLD_SECONDS:
            return {}
        stamps = stamps_of(state)
        return {
            name: tuple(each for each in rows if _holds(each, self._stamps.get(name), stamps[name]))
            for name, rows in self._rows.items()
            if name in stamps
        }


def _holds(row: NewWorkloadStart, then: TreeStamp | None, now: TreeStamp) -> bool:
    if then is None or row.start.low == row.start.high:
        return then == now
    return _nearly(then.pending, now.pending) and _nearly(then.holding, now.holding)


def _nearly(then: int, now: int) -> bool:
    return abs(now - then) <= NEARLY * then


def start_of(
    rows: Iterable[NewWorkloadStart],
    requests: Mapping[str, int],
    *,
    priority: int,
    ahead: int,
    now: float,
) -> StartRow | None:
    """Return when a new workload starts; None if that is not known.

    Args:
        rows: Of its queue.
        requests: What it requests in total.
        priority: Its priority.
        ahead: How many workloads of its queue that wait are of no lower priority.
        now: The time, in seconds since the epoch.
    """
    wanted = {name: amount for name, amount in requests.items() if amount}
    known = [each for each in rows if each.priority == priority and _is_behind(each, ahead)]
    alike = next((each for each in known if each.requests == wanted), None)
    if alike is not None:
        return _still(alike.start, now)
    less = [each.start for each in known if _is_within(each.requests, wanted)]
    more = [each.start for each in known if _is_within(wanted, each.requests)]
    if not less or not more:
        return None
    return _between(max(less, key=_median), min(more, key=_median), now)


def _is_behind(row: NewWorkloadStart, ahead: int) -> bool:
    certain = row.start.low == row.start.high
    return row.ahead == ahead if certain else _nearly(row.ahead, ahead)


def _is_within(less: Mapping[str, int], more: Mapping[str, int]) -> bool:
    return all(amount <= more.get(name, 0) for name, amount in less.items())


def _median(start: StartRow) -> int:
    return start.median


def _between(first: StartRow, last: StartRow, now: float) -> StartRow | None:
    """Return when a workload starts that starts between two others; None if that says little."""
    if last.median - first.median > max(NEAR_SECONDS, NEAR * (last.median - now)):
        return None
    return _still(StartRow(last.median, min(first.low, last.low), last.high, last.how), now)


def _still(start: StartRow, now: float) -> StartRow | None:
    """Return a forecast that can still come true."""
    return start if start.high > now else None

"""Which workloads come next, as far as those that came lately tell.

What came lately comes again: the past, from some moment on, is replayed from now on, and begins
anew where it ends. So bursts, quiet nights, and what comes together stay as they are. Each draw
begins at a moment of its own.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from policyd.alloc.value import Value
from policyd.alloc.workload import QueuedWorkload
from policyd.forecast.run_times import JobTraits


class PastArrival(Value, frozen=True):
    """A workload that came.

    Attributes:
        at: When, in seconds.
        workload: What it requested, and in which queue; its name may be left out.
        traits: What it has in common with similar jobs.
    """

    at: float
    workload: QueuedWorkload
    traits: JobTraits


class ArrivalHistory:
    """Workloads that came lately, in bounded memory."""

    def __init__(
        self,
        *,
        most: int = 20_000,
        window_seconds: float = 28 * 86_400.0,
        since: float = 0.0,
        least_seconds: float = 0.0,
    ) -> None:
        """Begin to remember.

        Args:
            most: How many workloads are remembered.
            window_seconds: For how long.
            since: From when on arrivals are observed, in seconds.
            least_seconds: For how long they must have been observed before more are expected:
                what came in the first minutes does not come every few minutes.
        """
        self.most, self.window_seconds = most, window_seconds
        self.least_seconds = least_seconds
        self._since = since
        self._past: deque[PastArrival] = deque()

    def __len__(self) -> int:
        return len(self._past)

    @property
    def since(self) -> float:
        """From when on arrivals are remembered, in seconds."""
        return self._since

    def expects(self, now: float) -> bool:
        """Tell whether more workloads are expected to come."""
        return bool(self._past) and now - self._since >= self.least_seconds

    def past(self) -> list[PastArrival]:
        """Return what came, the first first."""
        return list(self._past)

    def restore(self, past: Iterable[PastArrival], *, since: float) -> None:
        """Remember what came since some time, in seconds; nothing may be remembered yet."""
        self._past.extend(past)
        self._since = since

    def observe(self, arrival: PastArrival) -> None:
        """Remember a workload that came; later than those before."""
        self._past.append(arrival)
        self._forget(arrival.at)

    def _forget(self, now: float) -> None:
        self._since = max(self._since, now - self.window_seconds)
        while self._past and (self._past[0].at < self._since or len(self._past) > self.most):
            self._since = max(self._since, self._past.popleft().at)

    def replay(self, part: float, *, now: float) -> Iterator[tuple[float, PastArrival]]:
        """Yield what may come, with its time, in the order of time and without end.

        Args:
            part: Where in the past to begin, from 0 for its beginning to 1 for now.
            now: The time, in seconds.
        """
        self._forget(now)
        span = now - self._since
        if span <= 0 or not self.expects(now):
            return
        begin = self._since + part * span
        past = list(self._past)
        after = [each for each in past if each.at > begin]
        before = past[: len(past) - len(after)]
        shift = now - begin
        while True:
            for each in after:
                yield each.at + shift, each
            shift += span
            for each in before:
                yield each.at + shift, each

"""Workloads that hold quota and must still be placed: after a check, or after a node failed."""

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 30.0


class SecondPass:
    """Who waits for a second pass, and from when on it may be tried.

    Every attempt doubles the wait for the next.
    """

    def __init__(self) -> None:
        self._ready_at: dict[str, float] = {}
        self._attempts: dict[str, int] = {}

    def put(self, key: str, *, now: float, attempts: int | None = None) -> None:
        """Let a workload wait; one that waits already keeps its time.

        Args:
            key: `namespace/name`.
            now: Seconds since the epoch.
            attempts: How often it was tried since it needs this; as often as it was taken, if not
                given.
        """
        tried = self._attempts.get(key, 0) if attempts is None else attempts
        wait = min(FIRST_WAIT_SECONDS * 2.0**tried, LONGEST_WAIT_SECONDS)
        self._ready_at.setdefault(key, now + wait)

    def remove(self, key: str) -> None:
        """Forget a workload: it is placed, evicted or gone."""
        self._ready_at.pop(key, None)
        self._attempts.pop(key, None)

    @property
    def next_at(self) -> float | None:
        """When the first may be tried, in seconds since the epoch; None if there is none."""
        return min(self._ready_at.values(), default=None)

    def take_ready(self, now: float) -> list[str]:
        """Take out those that may be tried, in order of their time and name."""
        ready = sorted((at, key) for key, at in self._ready_at.items() if at <= now)
        for _, key in ready:
            del self._ready_at[key]
            self._attempts[key] = self._attempts.get(key, 0) + 1
        return [key for _, key in ready]

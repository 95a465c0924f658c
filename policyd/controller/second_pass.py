"""Workloads that hold quota and must still be placed: after a check, or after a node failed."""

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 30.0


class SecondPass:
    """Who waits for a second pass, and from when on it may be tried.

    Every failed attempt doubles the wait.
    """

    def __init__(self) -> None:
        self._ready_at: dict[str, float] = {}

    def put(self, key: str, *, attempts: int, now: float) -> None:
        """Let a workload wait; one that waits already keeps its time.

        Args:
            key: `namespace/name`.
            attempts: How often it was tried since it needs this.
            now: Seconds since the epoch.
        """
        wait = min(FIRST_WAIT_SECONDS * 2.0**attempts, LONGEST_WAIT_SECONDS)
        self._ready_at.setdefault(key, now + wait)

    def remove(self, key: str) -> None:
        """Forget a workload: it is placed, evicted or gone."""
        self._ready_at.pop(key, None)

    def take_ready(self, now: float) -> list[str]:
        """Take out those that may be tried, in order of their time and name."""
        ready = sorted((at, key) for key, at in self._ready_at.items() if at <= now)
        for _, key in ready:
            del self._ready_at[key]
        return [key for _, key in ready]

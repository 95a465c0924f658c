"""The latest snapshot that a process has, for code that needs one at once, or does without."""

from collections.abc import Callable
from typing import Final

from policyd.snapshot.values import QueueSnapshot

STALE_SECONDS: Final = 10.0
"""How long a snapshot is used without a confirmation: longer than one poll may take, and so short
that it is still likely to be true."""


class LatestSnapshot:
    """Keeps the latest snapshot for as long as it can be relied on.

    Args of the constructor:
        now: Returns seconds of a clock that only goes forward.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._snapshot: QueueSnapshot | None = None
        self._confirmed_at = 0.0

    def put(self, snapshot: QueueSnapshot) -> None:
        """Take over a newer snapshot."""
        self._snapshot = snapshot
        self.confirm()

    def confirm(self) -> None:
        """Note that nothing has changed since the snapshot was taken."""
        self._confirmed_at = self._now()

    @property
    def version(self) -> str:
        """The version of the latest snapshot, however old; "" if there was none."""
        return "" if self._snapshot is None else self._snapshot.version

    def current(self) -> QueueSnapshot | None:
        """Return the latest snapshot; None if there was none, or it was not confirmed lately."""
        if self._snapshot is not None and self._now() - self._confirmed_at > STALE_SECONDS:
            return None
        return self._snapshot

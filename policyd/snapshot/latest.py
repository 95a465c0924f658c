"""The latest snapshot that a process has, for code that needs one at once, or does without."""

from collections.abc import Callable
from typing import Final

from policyd.engine.model.queue_facts import QueueFacts, UnknownFacts
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

    @property
    def age(self) -> float:
        """Seconds since the latest snapshot was confirmed."""
        return self._now() - self._confirmed_at

    def current(self) -> QueueSnapshot | None:
        """Return the latest snapshot; None if there was none, or it was not confirmed lately."""
        return None if self.age > STALE_SECONDS else self._snapshot


_UNKNOWN: Final = UnknownFacts("no current snapshot of them could be had from the controller")

_Made = tuple[QueueSnapshot, QueueFacts]


def _make(snapshot: QueueSnapshot) -> _Made:
    from policyd.snapshot.facts import facts_of  # noqa: PLC0415 - few policies read facts of queues

    try:
        return snapshot, facts_of(snapshot)
    except Exception as error:  # noqa: BLE001 - a bug here must not end the server
        return snapshot, UnknownFacts(f"their snapshot is damaged: {error!r}")


class LatestFacts:
    """Keeps the facts of the snapshot in use, and of one that comes.

    Any thread may read them.
    """

    def __init__(self, latest: LatestSnapshot) -> None:
        """Begin with none; `latest` tells which snapshot is in use."""
        self._latest = latest
        self._used: _Made | None = None
        self._coming: _Made | None = None

    def take(self, snapshot: QueueSnapshot) -> None:
        """Prepare the facts of a snapshot that is not in use yet."""
        self._coming = _make(snapshot)

    def has(self, snapshot: QueueSnapshot) -> bool:
        """Tell whether the facts of a snapshot are there already."""
        return self._made(snapshot) is not None

    def current(self) -> QueueFacts:
        """Return the facts as they are now; unknown ones if there is no snapshot to rely on."""
        snapshot = self._latest.current()
        if snapshot is None:
            return _UNKNOWN
        made = self._used = self._made(snapshot) or _make(snapshot)
        return made[1]

    def _made(self, snapshot: QueueSnapshot) -> _Made | None:
        known = (self._used, self._coming)
        return next((each for each in known if each is not None and each[0] is snapshot), None)

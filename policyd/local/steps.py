"""The objects that a simulated part of a cluster looks at in its next step: those that are due.

A part looks at an object when it has changed, or at a time that it asked for. So a step costs what
is due, however many objects there are.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog

from policyd.kube.changes import Change, Deleted
from policyd.kube.errors import ApiError
from policyd.kube.informer import Identified, key_of
from policyd.kube.workqueue import RankedKeys

log = structlog.get_logger()

RETRY_SECONDS = 1.0
"""After an error of the API server: short, as both live in one process."""

AT_ONCE = 0.0
"""The time of what has changed: before all others."""

T = TypeVar("T", bound=Identified)


class DueObjects(Generic[T]):
    """The objects of a resource, and which of them are to be looked at, and when."""

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}
        self._due: RankedKeys[str] = RankedKeys()  # by seconds since the epoch

    def take(self, change: Change[T]) -> None:
        """Take a change: the object is looked at in the next step."""
        key = key_of(change.object)
        if isinstance(change, Deleted):
            self._objects.pop(key, None)
        else:
            self._objects[key] = change.object
            self.add(key)

    def add(self, key: str) -> None:
        """Have an object looked at in the next step, if it exists then."""
        self._due.add(key, AT_ONCE)

    async def step(
        self, look: Callable[[T, float], Awaitable[float | None]], now: float
    ) -> float | None:
        """Look at all that is due; return the seconds until something else is, None if nothing is.

        Args:
            look: Takes an object and the time; returns when the object is due again, None if only
                after a change. If it fails, the object is due again soon, and others go on.
            now: The time.
        """
        due = []
        while self._due and self._due.least <= now:
            due.append(self._due.take())
        for key in due:
            again = await self._look(look, key, now) if key in self._objects else None
            if again is not None:
                self._due.add(key, again)
        return max(0.0, self._due.least - now) if self._due else None

    async def _look(
        self, look: Callable[[T, float], Awaitable[float | None]], key: str, now: float
    ) -> float | None:
        try:
            return await look(self._objects[key], now)
        except ApiError as error:
            log.warning("step_failed", step=look.__qualname__, object=key, error=str(error))
            return now + RETRY_SECONDS

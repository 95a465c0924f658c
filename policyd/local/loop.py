"""The rhythm of the simulated parts: look when something changed or is due, act, wait."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import structlog

from policyd.kube.errors import ApiError
from policyd.kube.pace import Pace

log = structlog.get_logger()

RETRY_SECONDS = 1.0
"""After an error of the API server: short, as both live in one process."""


class StepLoop:
    """Runs one step after another, woken by `wake` or by the time the step asked for."""

    def __init__(self, step: Callable[[float], Awaitable[float | None]], pace: Pace) -> None:
        self._step = step
        self._pace = pace
        self._changed = asyncio.Event()

    def wake(self, *_change: object) -> None:
        """Ask for a step. Fits as an informer's callback."""
        self._changed.set()

    async def run(self) -> NoReturn:
        """Step until cancelled."""
        while True:
            self._changed.clear()
            try:
                wait = await self._step(self._pace.clock.now())
            except ApiError as error:
                log.warning("step_failed", step=self._step.__qualname__, error=str(error))
                wait = RETRY_SECONDS
            await self._pace.wait(self._changed, wait)

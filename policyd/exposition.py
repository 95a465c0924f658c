"""Metrics as text, for whoever scrapes them, however often."""

from prometheus_client import CollectorRegistry, generate_latest

from policyd.clock import Clock, SystemClock

TIMES_AS_LONG = 10
"""How much longer a text is given out again than it took to make: a tenth of the time at most goes
into it."""


class Exposition:
    """The text of a registry's metrics, as of now or a moment ago."""

    def __init__(self, registry: CollectorRegistry, *, clock: Clock | None = None) -> None:
        self._registry = registry
        self._clock = clock or SystemClock()
        self._text = b""
        self._until = 0.0

    def text(self) -> bytes:
        """Return the text."""
        began = self._clock.monotonic()
        if not self._text or began >= self._until:
            self._text = generate_latest(self._registry)
            ended = self._clock.monotonic()
            self._until = ended + TIMES_AS_LONG * (ended - began)
        return self._text

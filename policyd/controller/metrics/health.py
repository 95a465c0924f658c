"""Liveness, readiness and metrics of the controller, over HTTP."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from policyd.connections import Listening
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.health import HEALTH_BOUNDS, create_health_app
from policyd.serving import served


@dataclass(slots=True)
class ControllerHealth:
    """The health of the controller, for probes and tests."""

    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)
    missing: tuple[str, ...] = ()
    """Custom resources that it waits for."""
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once everything has been listed."""

    @property
    def ready(self) -> bool:
        """Whether it could lead."""
        return self.synced.is_set()

    @property
    def not_ready(self) -> tuple[str, ...]:
        """Why it could not lead; empty if it could."""
        if self.ready:
            return ()
        return (f"waiting for {', '.join(self.missing)}" if self.missing else "not synced",)


def serve_health(
    health: ControllerHealth, *, host: str, port: int
) -> AbstractAsyncContextManager[int]:
    """Serve `/livez`, `/readyz` and `/metrics` while the block runs; give the port.

    Raises:
        ConfigurationError: If the port is taken.
    """
    metrics = health.metrics
    app = create_health_app(metrics.registry, lambda: health.not_ready)
    listening = Listening(bounds=HEALTH_BOUNDS, count=metrics.connection_closed)
    return served(app, listening, host=host, port=port, option="--health-port")

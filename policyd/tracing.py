"""Traces by OpenTelemetry, if they are switched on: a span for each review, and one for each cycle.

Spans name policies, kinds, namespaces and objects. No span has an object's fields, a message or a
user. A collector that is slow, or that does not answer, delays nothing: spans wait in a queue for a
thread of their own, and those beyond it are dropped and counted. OpenTelemetry is imported once
traces are on.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from policyd.errors import ConfigurationError

MOST_WAITING: Final = 2048
"""Spans that wait for the collector, at most; a tenth of a second of many reviews."""
BATCH: Final = 256
DELAY_SECONDS: Final = 1.0
EXPORT_SECONDS: Final = 2.0
"""How long one request to the collector may take, with its retries."""
CLOSE_SECONDS: Final = 2.0
"""How long the end of a process waits for the last spans."""
MOST_EVENTS: Final = 64
MOST_CHARACTERS: Final = 253
"""Of one attribute: the longest name of an object."""

Dropped = Callable[[Literal["queue_full", "not_exported"], int], None]
"""Counts spans that no collector gets, with the reason."""

Tracer = Any
"""OpenTelemetry's tracer: its types are there only if the extra is installed."""


@contextmanager
def tracing(address: str, *, service: str, dropped: Dropped) -> Iterator[Tracer | None]:
    """Give a tracer while the block runs; None if traces are off.

    Args:
        address: Of the collector, for OTLP over HTTP; empty if traces are off.
        service: The name of the process in traces.
        dropped: Counts spans that are lost.

    Raises:
        ConfigurationError: If the address is not a URL, or the extra is not installed.
    """
    if not address:
        yield None
        return
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        hint = "write the whole address, as in `http://collector:4318/v1/traces`"
        raise ConfigurationError(f"`{address}` is not the URL of a collector", hint=hint)
    otlp = _module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    session = _module("requests").Session()
    session.max_redirects = 0  # spans go where the administrator sends them
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # `dropped` counts failures
    exporter = otlp.OTLPSpanExporter(endpoint=address, timeout=EXPORT_SECONDS, session=session)
    provider = provider_for(exporter, service=service, dropped=dropped)
    try:
        yield provider.get_tracer("policyd")
    finally:
        # The collector may hang: the process ends all the same.
        closing = threading.Thread(target=provider.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def provider_for(exporter: Any, *, service: str, dropped: Dropped) -> Any:  # noqa: ANN401
    """Return a provider of tracers that exports in a thread, from a bounded queue.

    Args:
        exporter: OpenTelemetry's SpanExporter.
        service: The name of the process in traces.
        dropped: Counts spans that are lost.
    """
    trace, export = _module("opentelemetry.sdk.trace"), _module("opentelemetry.sdk.trace.export")
    resource = _module("opentelemetry.sdk.resources").Resource.create({"service.name": service})
    limits = trace.SpanLimits(max_events=MOST_EVENTS, max_attribute_length=MOST_CHARACTERS)
    provider = trace.TracerProvider(resource=resource, span_limits=limits, shutdown_on_exit=False)
    counting = _Counting(exporter, dropped, success=export.SpanExportResult.SUCCESS)
    batches = export.BatchSpanProcessor(
        counting,
        max_queue_size=MOST_WAITING + BATCH,
        max_export_batch_size=BATCH,
        schedule_delay_millis=DELAY_SECONDS * 1000,
    )
    provider.add_span_processor(_Bounded(batches, counting, dropped))
    return provider


class _Counting:
    """An exporter that counts the spans that another one has not exported."""

    def __init__(self, exporter: Any, dropped: Dropped, *, success: object) -> None:  # noqa: ANN401
        self._exporter = exporter
        self._dropped = dropped
        self._success = success
        self._lock = threading.Lock()
        self._waiting = 0

    def take(self) -> bool:
        """Count one more span that waits; tell whether there is room for it."""
        with self._lock:
            full = self._waiting >= MOST_WAITING
            self._waiting += not full
            return not full

    def export(self, spans: Sequence[object]) -> object:
        try:
            result = self._exporter.export(spans)
        except Exception:  # noqa: BLE001 - whatever a collector answers, the thread goes on
            result = None
        with self._lock:
            self._waiting -= len(spans)
        if result is not self._success:
            self._dropped("not_exported", len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 1000) -> bool:
        return bool(self._exporter.force_flush(timeout_millis))


class _Bounded:
    """Passes spans on to another processor as long as there is room, and counts the others."""

    def __init__(self, batches: Any, waiting: _Counting, dropped: Dropped) -> None:  # noqa: ANN401
        self._batches = batches
        self._waiting = waiting
        self._dropped = dropped

    def on_start(self, span: object, parent_context: object = None) -> None:
        """Do nothing: spans are exported once they have ended."""

    def _on_ending(self, span: object) -> None:
        """Do nothing, as OpenTelemetry's own processors."""

    def on_end(self, span: Any) -> None:  # noqa: ANN401
        if not span.context.trace_flags.sampled:
            return
        if self._waiting.take():
            self._batches.on_end(span)
        else:
            self._dropped("queue_full", 1)

    def shutdown(self) -> None:
        self._batches.shutdown()

    def force_flush(self, timeout_millis: int = 1000) -> bool:
        return bool(self._batches.force_flush(timeout_millis))


def _module(name: str) -> Any:  # noqa: ANN401 - a module without types
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigurationError(
            "traces need the extra `tracing`: pip install 'policyd[tracing]'"
        ) from error

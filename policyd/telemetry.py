"""Logs: structured events on stderr, as JSON for machines or as lines for a terminal."""

import sys

import structlog


def configure_logging(*, json: bool) -> None:
    """Send log events to stderr. Call once, in a composition root."""
    renderer = (
        structlog.processors.JSONRenderer()
        if json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )

"""Logs: structured events on stderr, as JSON for machines or as lines for a terminal."""

import logging
import sys
from typing import Literal

import structlog

from policyd.program import has_color


def configure_logging(*, json: bool, least: Literal["debug", "info", "warning"] = "info") -> None:
    """Send log events to stderr. Call once, in a composition root.

    Args:
        json: One JSON object a line, rather than lines for people.
        least: The least level that is shown.
    """
    renderer = (
        structlog.processors.JSONRenderer()
        if json
        else structlog.dev.ConsoleRenderer(colors=has_color(sys.stderr))
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # As text, without the values of variables: some are tokens.
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[least.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )

"""Continue after unforeseen errors: one object must not stop the work for all others."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

log = structlog.get_logger()


@contextmanager
def log_unforeseen(event: str, *but: type[Exception], **about: str) -> Iterator[None]:
    """Log an error in the block, with its trace, and go on after the block.

    Args:
        event: The name of the line in the log.
        but: Errors that the caller handles.
        about: Fields for the log.
    """
    try:
        yield
    except but:
        raise
    except Exception:
        log.exception(event, **about)

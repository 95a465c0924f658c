"""Words and checks that several parts of a Configuration share."""

from collections.abc import Iterator
from typing import Final

from policyd.api.configuration.duration import DurationError, duration_seconds
from policyd.api.configuration.kinds import DurationText
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json

NEGATIVE: Final = "must be greater than or equal to 0"
UNSAID: Final = "must be specified"


def length_errors(path: str, text: DurationText | None) -> Iterator[FieldError]:
    """Yield what is wrong with a duration: it may not be negative; None is not given."""
    if text is None:
        return
    try:
        if duration_seconds(text) < 0:
            yield FieldError(path, text, NEGATIVE)
    except DurationError as error:
        yield FieldError(path, text, str(error))


def unsupported(path: str, value: Json, supported: tuple[str, ...]) -> FieldError:
    """Return the error that a word is none of those known."""
    words = ", ".join(f'"{word}"' for word in supported)
    return FieldError(path, value, f"supported values: {words}", "NotSupported")

"""Errors that a user can cause and fix: each has a message and, if possible, a hint."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final


class PolicydError(Exception):
    """Base of the errors policyd reports to a person instead of crashing.

    The message is one lower-case sentence without a full stop, the user's words in backticks. The
    hint, if any, is the next thing to try; it is also a note, so that tracebacks show it.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint is not None:
            self.add_note(f"hint: {hint}")


class ConfigurationError(PolicydError):
    """A setting, a credential or a certificate cannot be used as given."""


def system_reason(error: OSError) -> str:
    """Return why the operating system refused something, to stand behind a colon."""
    return (error.strerror or str(error)).lower()


LONGEST_WORD: Final = 256
"""Characters of a word that others are compared with: a longer one is not a typing error."""

SHORTEST_BEGINNING: Final = 3
"""Characters of a word that is looked for at the beginning of others."""


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Suggest the known word nearest to `word`, as a hint; None if nothing is near.

    A word that begins with `word` is nearer than one that only resembles it.
    """
    if len(word) > LONGEST_WORD:
        return None
    names = sorted(known)
    begins = len(word) >= SHORTEST_BEGINNING
    longer = sorted((n for n in names if begins and n.startswith(word)), key=len)
    near = longer or get_close_matches(word, names, n=1)
    return f"did you mean `{near[0]}`?" if near else None

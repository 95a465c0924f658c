"""Output that people read: control characters of others do not reach their terminal.

Names of users, annotations, events and the messages of policies are texts of tenants. On a
terminal, a text could erase what stands above it, or set the title of the window.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

_CONTROLS: Final = re.compile(
    r"(\x1b\[(?:[01234]|22|[39][1-7])?m)"
    r"|[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""Colours, which stay, and control characters besides line feeds and tabs: also those that end
lines, or reverse the order in which letters are shown."""
_CARET: Final = 0x40
_DELETE: Final = 0x7F
_BYTE: Final = 0xFF


def without_controls(text: str) -> str:
    """Return a text in which control characters are written as `^[` or `^G`.

    Plain colours stay, and so do line ends.
    """
    return _CONTROLS.sub(_visible, text)


def _visible(found: re.Match[str]) -> str:
    character = found[0]
    if found[1] or (character == "\r" and found.string.startswith("\n", found.end())):
        return character
    code = ord(character)
    if code <= _DELETE:
        return f"^{chr(code ^ _CARET)}"
    return f"\\x{code:02x}" if code <= _BYTE else f"\\u{code:04x}"


class VisibleControls:
    """A stream that writes control characters visibly, and is the stream otherwise."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self.unfiltered, name)

    def write(self, text: str) -> int:
        """Write a text; its control characters are written visibly."""
        self.unfiltered.write(without_controls(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)


def unfiltered(stream: TextIO) -> TextIO:
    """Return the stream itself, for what moves the cursor: its texts need `without_controls`."""
    return getattr(stream, "unfiltered", stream)


@contextmanager
def visible_controls() -> Iterator[None]:
    """Write control characters visibly to standard output and standard error."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = VisibleControls(out), VisibleControls(err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err

"""Where requests of HTTP/1.1 begin and end in received data, and how long each part of them is.

The server that answers reads everything else. Heads are passed on whole, so that a parser never has
to keep one that does not end. Data that could be read in two ways is refused, so
that no parser sees other requests in it than are counted here.
"""

from typing import Final, Literal

HEAD_BYTES: Final = 64 * 1024
"""How long a head may be. A Go client's has some hundred bytes; with a certificate's name, or a
list of groups in it, a few kilobytes."""

HEAD_LINES: Final = 128
"""Lines of a head: a parser takes a while for each."""

CHUNK_LINE_BYTES: Final = 256
"""How long the line before a chunk may be, which says its length."""

CHUNKS_FREE: Final = 256
CHUNK_BYTES: Final = 512
"""A body may come in so many chunks, and in more if they have so many bytes on average."""

KNOWN: Final = 8
"""Heads that are cached: a client has one for each webhook that it calls."""

KNOWN_BYTES: Final = 1024
"""The longest head that is cached."""

MOST_DIGITS: Final = 15
"""Digits of a length: a number with more is not a length."""

Broken = Literal["head_too_large", "not_http", "too_many_chunks"]
"""Why nothing more is read."""

_END: Final = b"\r\n\r\n"
_DIGITS: Final = b"0123456789abcdefABCDEF"
_LENGTH: Final = b"\r\ncontent-length:"
_CODING: Final = b"\r\ntransfer-encoding:"


class BrokenError(Exception):
    """The received data must not be read on.

    Attributes:
        reason: Why.
        status: The HTTP status.
    """

    def __init__(self, reason: Broken, status: int = 400) -> None:
        super().__init__(reason)
        self.reason: Broken = reason
        self.status = status


class Head:
    """A valid head: heads that differ only in their length are taken to be equal.

    Attributes:
        before: The bytes before the length.
        after: The bytes after it.
        route: The server's reading of it; None if the server is to be given whole requests.
    """

    __slots__ = ("after", "before", "route")

    def __init__(self, before: bytes, after: bytes) -> None:
        self.before = before
        self.after = after
        self.route: object = None


class Framing:
    """The requests of one connection.

    Attributes:
        in_head: Whether a head is coming in, or a request can begin.
        held: The bytes of an incomplete head.
        requests: How many came in whole.
        head: The head in the data taken last; None if there was none, or it is not remembered.
        body_at: Where its body begins there, if it was known before; else 0.
        length: How long its body is.
    """

    def __init__(self, known: "tuple[Head, ...]" = ()) -> None:
        """Begin at the first request.

        Args:
            known: Heads that are in order, from other connections of the same server.
        """
        self.in_head = True
        self.held = b""
        self.requests = 0
        self._left = 0  # of the body, or of a chunk with the line end after it
        self._chunks: _Chunks | None = None
        self._known = known
        self.head: Head | None = None
        self.body_at = 0
        self.length = 0

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the data that can be passed on, and the data behind it.

        Data of one request is passed on, and no incomplete head.

        Raises:
            BrokenError: If a bound is broken.
        """
        self.head = None
        self.body_at = 0
        if self.held:
            data, self.held = self.held + data, b""
        elif self.in_head and self._take_known(data):
            return data, b""
        at, begun = 0, self.requests
        if self.in_head:
            end = data.find(_END)
            if (len(data) if end < 0 else end) > HEAD_BYTES:
                raise BrokenError("head_too_large", 431)
            if end < 0:
                self.held = data
                return b"", b""
            self._head(data[: end + 2])
            at = end + len(_END)
        if self.requests == begun:
            at = self._body(data, at)
        return data[:at], data[at:]

    def _take_known(self, data: bytes) -> bool:
        """Take a request, or its beginning, whose head equals an earlier one except for its length.

        A client's heads are. Looking into one anew takes a while.
        """
        for head in self._known:
            if data.startswith(head.before):
                start = len(head.before)
                end = data.find(b"\r", start, start + MOST_DIGITS + 1)
                digits = data[start:end]
                if end > start and digits.isdigit() and data.startswith(head.after, end):
                    length, body_at = int(digits), end + len(head.after)
                    left = length - len(data) + body_at
                    if left < 0:
                        return False
                    self._left, self.in_head = left, not left
                    self.requests += not left
                    self.head, self.length, self.body_at = head, length, body_at
                    return True
        return False

    def _know(self, head: bytes, lowered: bytes, length: bytes) -> None:
        """Remember a head that is in order."""
        start = head.index(length, lowered.index(_LENGTH) + len(_LENGTH))
        before, after = head[:start], head[start + len(length) :] + b"\r\n"
        same = [known for known in self._known if (known.before, known.after) == (before, after)]
        if same:
            self.head = same[0]
        elif len(head) <= KNOWN_BYTES:
            self.head = Head(before, after)
            self._known = (self.head, *self._known[: KNOWN - 1])

    def _head(self, head: bytes) -> None:
        lines = head.count(b"\n")
        if lines > HEAD_LINES:
            raise BrokenError("head_too_large", 431)
        if lines != head.count(b"\r\n") or head.startswith(b"\r"):
            raise BrokenError("not_http")
        lowered = head.lower()
        coding, length = _value(lowered, _CODING), _value(lowered, _LENGTH)
        if coding is not None:
            if coding != b"chunked" or length is not None:
                raise BrokenError("not_http")
            self._chunks = _Chunks()
            self.in_head = False
        elif length is not None:
            if not length.isdigit() or len(length) > MOST_DIGITS:
                raise BrokenError("not_http")
            self._know(head, lowered, length)
            self._left = int(length)
            self.in_head = not self._left
            self.requests += self.in_head
        else:
            self.requests += 1

    def _body(self, data: bytes, at: int) -> int:
        """Skip the body; return where it ends in `data`."""
        if self._chunks is not None:
            return self._chunked(self._chunks, data, at)
        step = min(self._left, len(data) - at)
        self._left -= step
        if not self._left:
            self.in_head = True
            self.requests += 1
        return at + step

    def _chunked(self, chunks: "_Chunks", data: bytes, at: int) -> int:
        at = chunks.skip(data, at)
        if chunks.ended:
            self._chunks, self.in_head = None, True
            self.requests += 1
        return at


class _Chunks:
    """A body in chunks: each a line with its length, then as much, then the end of a line."""

    def __init__(self) -> None:
        self.ended = False
        self._line = b""
        self._left = 0
        self._last = False
        self._count = 0
        self._bytes = 0

    def skip(self, data: bytes, at: int) -> int:
        """Skip chunks; return where the body, or `data`, ends."""
        while at < len(data) and not self.ended:
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
            else:
                at = self._read_line(data, at)
        return at

    def _read_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at, at + CHUNK_LINE_BYTES)
        if end < 0:
            self._line += data[at : at + CHUNK_LINE_BYTES]
            if len(self._line) >= CHUNK_LINE_BYTES:
                raise BrokenError("not_http")
            return len(data)
        line, self._line = self._line + data[at : end + 1], b""
        if not line.endswith(b"\r\n"):
            raise BrokenError("not_http")
        self._begin(line[:-2])
        return end + 1

    def _begin(self, line: bytes) -> None:
        if self._last:  # no usual sender writes lines after the last chunk
            if line:
                raise BrokenError("not_http")
            self.ended = True
            return
        size = line.partition(b";")[0].strip(b" \t")
        if not size or size.strip(_DIGITS) or len(size) > MOST_DIGITS:
            raise BrokenError("not_http")
        length = int(size, 16)
        self._last = length == 0
        self._left = length and length + 2
        self._count += 1
        self._bytes += length
        if self._count > CHUNKS_FREE + self._bytes // CHUNK_BYTES:
            raise BrokenError("too_many_chunks")


def _value(lowered: bytes, name: bytes) -> bytes | None:
    """Return a header's value, None if it is not there.

    Raises:
        BrokenError: If it occurs twice.
    """
    found = lowered.find(name)
    if found < 0:
        return None
    start = found + len(name)
    if lowered.find(name, start) >= 0:
        raise BrokenError("not_http")
    return lowered[start : lowered.index(b"\r", start)].strip(b" \t")

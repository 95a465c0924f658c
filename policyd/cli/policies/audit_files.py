"""The files of audit logs: rotated, compressed, cut; read line by line.

The API server writes one event a line, and rotates files as `audit-2026-01-31T12-00-00.000.log`,
which may be compressed. Files are read in the order of their first events. A line that cannot be
read is counted, and the rest is read all the same.
"""

import io
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import click

from policyd.api.admission import MAXIMUM_REVIEW_BYTES
from policyd.cli.formats.files import cannot_read
from policyd.cli.formats.report import count
from policyd.engine.documents.findings import Finding
from policyd.engine.offline.audit_log import AuditError, AuditEvent, is_audit_log, read_events
from policyd.engine.offline.replay import recordings
from policyd.errors import system_reason
from policyd.policy_files import MOST_BYTES
from policyd.standard_input import STANDARD_INPUT, STANDARD_INPUT_NAME, open_standard_input

MOST_LINE_BYTES: Final = 2 * MAXIMUM_REVIEW_BYTES
"""Bytes of a line: an event has the object of the request and that of the response."""

MOST_FILES: Final = 100_000

MOST_LINES_WITHOUT_EVENT: Final = 100_000
"""Lines in a row that are blank or cannot be read, before the rest of a file is left out: a small
compressed file may hold a billion of them."""

_SUFFIXES: Final = frozenset({".json", ".jsonl", ".ndjson", ".log"})
_COMPRESSED: Final = ".gz"
_MAGIC: Final = b"\x1f\x8b"
_LOOKED_AT: Final = 20
"""Lines at the beginning of a file that may be cut or too long, before it is taken for no log: so
many, or as many bytes as one line may have."""

_BEGINNING: Final = b'{"kind":"Event"'


@dataclass(slots=True)
class LogProblems:
    """What of a log could not be read; each with its first place."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def note(self, problem: str, place: str) -> None:
        """Take note of one more."""
        self.counts[problem] = self.counts.get(problem, 0) + 1
        self.places.setdefault(problem, place)

    def findings(self) -> Iterator[Finding]:
        """Yield a warning for each kind of problem."""
        for problem, number in self.counts.items():
            noun, what = _PROBLEMS[problem]
            yield Finding(
                source=self.places[problem],
                message=f"{count(number, noun)} {what}, the first one here",
                rule="audit-log",
                severity="warning",
            )


_PROBLEMS: Final = {
    "cut": ("line", "cut in the middle"),
    "unreadable": ("line", "not an audit event of audit.k8s.io/v1"),
    "long": ("line", f"left out: longer than {MOST_LINE_BYTES:,} bytes"),
    "empty": (
        "file",
        f"not read to its end: it has more than {MOST_LINES_WITHOUT_EVENT:,} lines without an event"
        " in a row",
    ),
    "damaged": ("compressed file", "damaged or cut: read as far as possible"),
    "vanished": ("file", "not readable to its end"),
}


class LogFile:
    """One file, or standard input; a pipe can be read once only."""

    def __init__(self, name: str, opened: Callable[[], IO[bytes]], *, size: int = 0) -> None:
        """Take its name, what opens it, and its size in bytes if that is known."""
        self.name = name
        self.size = size
        self._opened = opened
        self._raw: IO[bytes] | None = None
        self._lines: Iterator[tuple[int, bytes]] | None = None
        self._first: list[tuple[int, bytes]] = []
        self._problems = LogProblems()
        self.is_log = False
        """Whether its first lines have an audit event."""
        self.is_blank = True
        """Whether it has no line."""
        self.time = ""
        """The time of the first event."""

    def look(self) -> None:
        """Read the first lines; they are kept.

        Raises:
            click.UsageError: If it cannot be read.
        """
        self._raw = self._open()
        self._lines = self._each(self._raw)
        length = 0
        for numbered in self._lines:
            self._first.append(numbered)
            length += len(numbered[1])
            self.is_blank = False
            if is_audit_log(numbered[1]):
                self.is_log = True
                self.time = _time(numbered[1])
                break
            if len(self._first) >= _LOOKED_AT or length >= MOST_LINE_BYTES:
                break
        if self._problems.counts:
            self.is_log = True  # or too damaged to know: it is counted when it is read
        if self.size:  # it is opened again when it is read: there may be many
            self._raw.close()
            self._raw = self._lines = None
            self._first = []

    def content(self, most: int) -> bytes:
        """Return all of it, for what is no log.

        Raises:
            click.UsageError: If it has more than `most` bytes, or cannot be read.
        """
        parts, length = [], 0
        for _, line in self._all():
            parts.append(line)
            length += len(line)
            if length > most:
                raise click.UsageError(f"{self.name} has more than {most:,} bytes")
        return b"".join(parts)

    def events(self, problems: LogProblems) -> Iterator[AuditEvent]:
        """Yield the events; what cannot be read is noted."""
        self._problems = problems
        last = 0
        for number, line in self._all():
            place = f"{self.name}:{number}:1"
            if number - last > MOST_LINES_WITHOUT_EVENT:
                problems.note("empty", place)
                break
            if not line.strip():
                continue
            try:
                yield from read_events(line)
                last = number
            except AuditError:
                cut = not line.endswith(b"\n")
                rest = line.rfind(_BEGINNING)
                if rest > 0:
                    # After a crash, the next event is written behind one that was cut.
                    try:
                        yield from read_events(line[rest:])
                    except AuditError:
                        rest = 0
                problems.note("cut" if cut or rest > 0 else "unreadable", place)

    def read(self) -> int:
        """Return how many bytes were read of the file."""
        try:
            return self._raw.tell() if self._raw is not None else 0
        except (OSError, ValueError):
            return 0

    def _open(self) -> IO[bytes]:
        try:
            return self._opened()
        except OSError as error:
            message = f"cannot read {self.name}: {system_reason(error)}"
            raise click.UsageError(message) from error

    def _all(self) -> Iterator[tuple[int, bytes]]:
        if self._lines is None:
            self._raw = self._open()
            self._lines = self._each(self._raw)
        first, self._first = self._first, []
        try:
            yield from first
            yield from self._lines
        finally:
            if self._raw is not None:
                self._raw.close()

    def _each(self, raw: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield numbered lines of a bounded length, with their ends."""
        number = 0
        try:
            stream = _decompressed(raw, lambda: self._problems.note("damaged", self.name))
            while line := stream.readline(MOST_LINE_BYTES):
                number += 1
                if len(line) < MOST_LINE_BYTES or line.endswith(b"\n"):
                    yield number, line
                    continue
                self._problems.note("long", f"{self.name}:{number}:1")
                while line and not line.endswith(b"\n"):
                    line = stream.readline(MOST_LINE_BYTES)
        except OSError:
            self._problems.note("vanished", self.name)


class _Inflated(io.RawIOBase):
    """A gzip stream, as far as it can be read: the end of one that was cut is no error."""

    def __init__(self, raw: IO[bytes], damaged: Callable[[], None]) -> None:
        self._raw = raw
        self._damaged = damaged
        self._member = zlib.decompressobj(_GZIP)
        self._rest = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - as io has it
        found = b""
        while not found and not self._ended:
            data = self._rest or self._raw.read(_CHUNK)
            if self._member.eof:  # what follows is the next member, or padding
                data = data.lstrip(b"\0")
                self._ended, self._rest = not data, data
                self._member = zlib.decompressobj(_GZIP)
                continue
            try:
                found = self._member.decompress(data, len(buffer))
            except zlib.error:
                data = b""
            if not data:
                self._damaged()
                self._ended = True
            self._rest = self._member.unconsumed_tail or self._member.unused_data
        buffer[: len(found)] = found
        return len(found)


class _Unbuffered(io.RawIOBase):
    """A stream that can be read, and nothing more, such as a standard input that was replaced."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - as io has it
        data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


_GZIP: Final = 31
_CHUNK: Final = 64 * 1024


def _decompressed(raw: IO[bytes], damaged: Callable[[], None]) -> IO[bytes]:
    stream = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(_Unbuffered(raw))
    if stream.peek(2)[:2] != _MAGIC:
        return stream
    return io.BufferedReader(_Inflated(stream, damaged), 1024 * 1024)


def _time(line: bytes) -> str:
    try:
        return next((event.time for event in read_events(line)), "")
    except AuditError:
        return ""


def log_files(paths: Iterable[str]) -> list[LogFile]:
    """Return the files that paths mean, each looked at; those of logs in the order of time.

    Args:
        paths: Files, folders, or `-`.

    Raises:
        click.UsageError: If one cannot be read.
    """
    files: dict[str, LogFile] = {}
    for path in paths:
        for name, file in _files(path):
            files.setdefault(name, file)
            if len(files) > MOST_FILES:
                raise click.UsageError(f"more than {MOST_FILES:,} files of requests")
    found = [file for file in files.values() if _is_of_use(file)]
    logs = sorted((file for file in found if file.is_log), key=lambda file: (file.time, file.name))
    return [*logs, *(file for file in found if not file.is_log)]


def _is_of_use(file: LogFile) -> bool:
    file.look()
    plain = file.name.removesuffix(_COMPRESSED)
    if file.is_log or file.size == 0 or not (plain != file.name or plain.endswith(".log")):
        return True
    if not file.is_blank:
        click.echo(f"warning: {file.name} is not read: it is not an audit log", err=True)
    return False


def _files(path: str) -> Iterator[tuple[str, LogFile]]:
    if path == STANDARD_INPUT:
        yield STANDARD_INPUT_NAME, LogFile(STANDARD_INPUT_NAME, open_standard_input)
        return
    place = Path(path)
    if not place.is_dir():
        yield str(place), _log_file(place)
        return
    found = sorted(
        Path(where) / name
        for where, _, names in os.walk(place, onerror=cannot_read)
        for name in names
        if Path(name.removesuffix(_COMPRESSED)).suffix in _SUFFIXES
    )
    for file in found:
        if file.is_file():
            yield str(file), _log_file(file)


def _log_file(file: Path) -> LogFile:
    try:
        status = file.stat()
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {system_reason(error)}") from error
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISFIFO(status.st_mode):
        raise click.UsageError(f"cannot read {file}: it is not a file")
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    return LogFile(str(file), lambda: file.open("rb"), size=size)


def reviews_of(file: LogFile) -> Iterator[tuple[str, bytes]]:
    """Yield each review of a file with where it is."""
    for number, review in enumerate(recordings(file.content(MOST_BYTES)), start=1):
        yield f"{file.name}: review {number}", review

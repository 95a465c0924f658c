"""Traces in columns: CSV, Slurm's `sacct -P`, and the Standard Workload Format.

Each line is one job. A column is found by its name, the first of several usual ones that the file
has. A value that cannot be read is an error that names its line and its column.
"""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from typing import Final, Literal

from policyd.errors import did_you_mean
from policyd.simulate.traces import TracedJob, TraceError, pods_of

Field = Literal[
    "name", "submit", "start", "end", "seconds", "gpus", "pods", "team", "queue", "priority",
    "limit", "fails",
]  # fmt: skip
"""What is read of a job."""

Format = Literal["csv", "sacct", "swf"]

NAMES: Final[Mapping[Field, tuple[str, ...]]] = {
    "name": ("name", "job", "job_name", "job_id", "jobid", "id"),
    "submit": ("submit", "submit_time", "submitted", "submitted_time", "timestamp", "arrival"),
    "start": ("start", "start_time", "started"),
    "end": ("end", "end_time", "ended", "finish_time"),
    "seconds": ("seconds", "duration", "run_time", "runtime", "elapsedraw", "elapsed"),
    "gpus": ("gpus", "num_gpus", "gpu_num", "n_gpus", "alloctres", "reqtres"),
    "pods": ("pods", "workers", "num_nodes", "nnodes"),
    "team": ("team", "account", "user", "owner", "tenant", "vc", "virtual_cluster", "cluster"),
    "queue": ("queue", "vc", "virtual_cluster", "partition", "cluster"),
    "priority": ("priority",),
    "limit": ("limit", "time_limit", "timelimit", "walltime"),
    "fails": ("fails", "fails_after"),
}
"""The usual names of columns, in lower case; the first that a file has is read."""

NEEDED: Final[tuple[Field, ...]] = ("submit", "gpus")

SACCT_FIELDS: Final = "JobID,User,Account,Partition,Submit,Start,End,ElapsedRaw,State,AllocTRES"
"""What to ask sacct for."""

_BEGIN_AND_END: Final[tuple[Field, ...]] = ("start", "end")

_SWF_COLUMNS: Final = 18
_SWF: Final[Mapping[Field, str]] = {
    "name": "1", "submit": "2", "seconds": "4", "gpus": "5", "limit": "9", "team": "12",
    "queue": "15",
}  # fmt: skip
"""Columns of the Standard Workload Format by their numbers; processors are read as GPUs."""

_UNKNOWN: Final = frozenset({"", "unknown", "none", "n/a", "-1", "unlimited", "partition_limit"})
_TRES: Final = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=(\d+)")
"""GPUs among what Slurm allocated: all of them, and those of each type beside it."""

_CLOCK: Final = re.compile(r"(?:(\d+)-)?(\d+):(\d+)(?::(\d+(?:\.\d+)?))?")


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How to read a trace.

    Attributes:
        columns: Names of columns, or their numbers from 1, by what they say; "" for none.
        gpus_per_node: GPUs of one pod at most.
    """

    columns: Mapping[Field, str] = field(default_factory=dict)
    gpus_per_node: int = 8


@dataclass(slots=True)
class SkippedTraceJobs:
    """How many jobs of a trace cannot be simulated, by the reason."""

    counts: dict[str, int] = field(default_factory=dict)

    def note(self, why: str) -> None:
        """Count one."""
        self.counts[why] = self.counts.get(why, 0) + 1


def format_of(head: str) -> Format:
    """Tell the format of a trace by its first line."""
    if head.startswith(";") or len(head.split()) == _SWF_COLUMNS:
        return "swf"
    return "sacct" if "|" in head else "csv"


def columns_of(text: str) -> dict[Field, str]:
    """Read `submit=when,gpus=cards`; a field without a column is not read.

    Raises:
        TraceError: If a field is unknown.
    """
    found: dict[Field, str] = {}
    for pair in filter(None, text.split(",")):
        name, separator, column = (part.strip() for part in pair.partition("="))
        known = next((each for each in NAMES if each == name), None)
        if known is None or not separator:
            near = did_you_mean(name, NAMES)
            raise TraceError(
                f"`{pair}` names no column" if not separator else f"unknown field `{name}`",
                hint=near or f"such as gpus=num_gpus; fields: {', '.join(NAMES)}",
            )
        found[known] = column
    return found


def read_jobs(
    lines: Iterable[str], name: str, form: Format, layout: TableLayout, left_out: SkippedTraceJobs
) -> Iterator[TracedJob]:
    """Yield the jobs of a trace, in the order of its lines.

    Args:
        lines: The lines of the file.
        name: Of the file, for errors.
        form: The format.
        layout: Which columns to read.
        left_out: Counts the jobs that cannot be simulated.

    Raises:
        TraceError: If a column is missing, or a value cannot be read.
    """
    rows = _swf_rows(lines) if form == "swf" else _rows(lines, name, form)
    first = next(rows, None)
    if first is None:
        raise TraceError(f"{name}: the trace is empty")
    if form == "swf":
        head = [str(number) for number in range(1, _SWF_COLUMNS + 1)]
        layout = TableLayout({**_SWF, **layout.columns}, layout.gpus_per_node)
        rows = _chain(first, rows)
    else:
        head = [text.strip() for text in first[1]]
    reader = _Reader(name, head, _found(name, head, layout.columns, form), layout)
    for number, row in rows:
        if len(row) != len(head):
            raise TraceError(
                f"{name}:{number}: {len(row)} of {len(head)} columns",
                hint="the file may have been cut off" if len(row) < len(head) else None,
            )
        job = reader.job(number, row, left_out)
        if job is not None:
            yield job


def _chain(
    first: tuple[int, list[str]], rest: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    yield first
    yield from rest


def _swf_rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith(";"):
            yield number, line.split()


def _rows(lines: Iterable[str], name: str, form: Format) -> Iterator[tuple[int, list[str]]]:
    if form == "sacct":
        reader = csv.reader(lines, delimiter="|", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        hint = "the file may have been cut off"
        raise TraceError(f"{name}:{reader.line_num}: {error}", hint=hint) from error


def _found(
    name: str, head: Sequence[str], asked: Mapping[Field, str], form: Format
) -> dict[Field, int]:
    """Return where each field is.

    Raises:
        TraceError: If a column that was asked for, or one that is needed, is not there.
    """
    places = {text.lower(): number for number, text in reversed(list(enumerate(head)))}
    found: dict[Field, int] = {}
    for column in asked.values():
        if column and column.lower() not in places:
            near = did_you_mean(column, head)
            raise TraceError(
                f"{name}:1: no column `{column}`", hint=near or f"columns: {', '.join(head)}"
            )
    for field_, usual in NAMES.items():
        named = asked.get(field_)
        names = usual if named is None else (named,) if named else ()
        place = next((places[each.lower()] for each in names if each.lower() in places), None)
        if place is not None:
            found[field_] = place
    missing = [each for each in NEEDED if each not in found]
    if "seconds" not in found and not {"start", "end"} <= found.keys():
        missing.append("seconds")
    if missing:
        hint = f"name it by --columns {missing[0]}=COLUMN; columns: {', '.join(head)}"
        if form == "sacct":
            hint = f"sacct -X -P -o {SACCT_FIELDS}"
        raise TraceError(f"{name}:1: no column says `{missing[0]}`", hint=hint)
    return found


@dataclass(slots=True)
class _Reader:
    """Reads the jobs of one file.

    Attributes:
        name: Of the file.
        head: The names of its columns.
        places: Where each field is.
        layout: As the file was to be read.
        seen: How often each key was there.
    """

    name: str
    head: Sequence[str]
    places: Mapping[Field, int]
    layout: TableLayout
    seen: dict[str, int] = field(default_factory=dict)

    def job(self, number: int, row: Sequence[str], left_out: SkippedTraceJobs) -> TracedJob | None:
        """Return the job of a row; None for a step of a job, and for one that is left out."""
        cells = _Row(self, number, row)
        if "." in cells.text("name") and "state" in {each.lower() for each in self.head}:
            return None
        at, gpus, seconds = (
            cells.value("submit", time_of),
            cells.value("gpus", _gpus),
            _seconds(cells),
        )
        if at is None or seconds is None:
            left_out.note("they have not ended, or never ran")
            return None
        if not gpus:
            left_out.note("they request no GPU")
            return None
        team = cells.text("team") or "all"
        limit = cells.value("limit", _minutes if self._is_slurm_limit else _duration)
        pods = int(cells.value("pods", _count) or 0)
        return TracedJob(
            key=self._key(f"{team}/{cells.text('name') or f'job-{number:06}'}"),
            at=at,
            seconds=seconds,
            gpus=int(gpus),
            team=team,
            queue=cells.text("queue"),
            pod_sets=(pods_of(int(gpus), pods=pods, most=self.layout.gpus_per_node),),
            priority=int(cells.value("priority", _number) or 0),
            limit=limit,
            fails_after=cells.value("fails", _duration),
        )

    @property
    def _is_slurm_limit(self) -> bool:
        return "limit" in self.places and self.head[self.places["limit"]].lower() == "timelimit"

    def _key(self, key: str) -> str:
        self.seen[key] = again = self.seen.get(key, 0) + 1
        return key if again == 1 else f"{key}-{again}"


@dataclass(frozen=True, slots=True)
class _Row:
    """The texts of one line."""

    reader: _Reader
    number: int
    row: Sequence[str]

    def text(self, field_: Field) -> str:
        """Return what a column says; "" if it does not."""
        place = self.reader.places.get(field_)
        return "" if place is None else self.row[place].strip()

    def value(self, field_: Field, read: Callable[[str], float]) -> float | None:
        """Return the value of a column; None if it says that it is not known.

        Raises:
            TraceError: If it cannot be read.
        """
        text = self.text(field_)
        if text.lower() in _UNKNOWN:
            return None
        try:
            return _checked(read(text), negative=field_ == "priority")
        except (ValueError, OverflowError) as error:
            column = self.reader.head[self.reader.places[field_]]
            what = error.args[1] if len(error.args) > 1 else "is not a number"
            raise TraceError(
                f"{self.reader.name}:{self.number}: column `{column}`: `{text}` {what}"
            ) from error


def _checked(value: float, *, negative: bool) -> float:
    """Return a number.

    Raises:
        ValueError: If it is infinite, or less than 0 and must not be.
    """
    if not isfinite(value):
        raise ValueError(value)
    if value < 0 and not negative:
        raise ValueError(value, "is negative")
    return value


def _seconds(cells: _Row) -> float | None:
    """Return how long a job ran; None if it did not, or does still."""
    places = cells.reader.places
    ended = all(
        each not in places or cells.value(each, time_of) is not None for each in _BEGIN_AND_END
    )
    if "seconds" in places:
        return cells.value("seconds", _duration) if ended else None
    start, end = cells.value("start", time_of), cells.value("end", time_of)
    return None if start is None or end is None else max(0.0, end - start)


def _number(text: str) -> float:
    return float(text)


def _count(text: str) -> float:
    if not float(text).is_integer():
        raise ValueError(text, "is not a whole number")
    return float(text)


def _gpus(text: str) -> float:
    """Read a number of GPUs, or Slurm's `cpu=8,gres/gpu=2,mem=64G`."""
    if "=" in text:
        found = dict[str, int]((kind, int(count)) for kind, count in _TRES.findall(text))
        return float(found[""] if "" in found else sum(found.values()))
    return _count(text)


def time_of(text: str) -> float:
    """Read a time: seconds, or `2017-10-09 07:01:55`, which is in UTC if it does not say."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(text, "is not a time") from error
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def _duration(text: str) -> float:
    """Read seconds, or Slurm's `1-06:30:00`, `06:30:00` or `30:00`."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return float(text)
    days, first, second, third = (float(each or 0) for each in found.groups())
    if found[4] is None and found[1] is None:
        return 60 * first + second
    return 86_400 * days + 3_600 * first + 60 * second + third


def _minutes(text: str) -> float:
    """Read Slurm's time limit, of which a single number is in minutes."""
    return _duration(text) if _CLOCK.fullmatch(text) else 60 * float(text)

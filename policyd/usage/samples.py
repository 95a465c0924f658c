"""Answers of Prometheus' HTTP API, read into series."""

import math
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from policyd.errors import PolicydError

MOST_QUOTED: Final = 200
"""Characters of an error of Prometheus that are shown."""
MOST_SERIES: Final = 50_000
"""Series of one answer: some thousand GPUs, each with the pods that it had."""


class AnswerError(PolicydError):
    """An answer is not one of Prometheus' HTTP API, or it says that the query failed."""


class Windows(NamedTuple):
    """A stretch of time in equal windows; one has the samples after its begin, up to its end.

    Attributes:
        begin: Seconds since the epoch.
        seconds: The length of each.
        number: How many.
    """

    begin: float
    seconds: int
    number: int

    @property
    def end(self) -> float:
        """The end of the last, in seconds since the epoch."""
        return self.end_of(self.number - 1)

    def end_of(self, window: int) -> float:
        """Return the end of a window, in seconds since the epoch."""
        return self.begin + (window + 1) * self.seconds

    def at(self, moment: float) -> int | None:
        """Return the window that ends at a moment; None if there is none."""
        found = round((moment - self.begin) / self.seconds) - 1
        exact = abs(self.end_of(found) - moment) < 0.5
        return found if exact and 0 <= found < self.number else None


class Series(NamedTuple):
    """A series: its labels, and its value at the end of each window that has samples."""

    labels: Mapping[str, str]
    points: Mapping[int, float]


class _Metric(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct, rename="camel"):
    status: Literal["success", "error"]
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    warnings: list[str] = []


class QueryResult(NamedTuple):
    """The series of an answer, and what Prometheus warns of: a part may be missing."""

    series: list[Series]
    warnings: tuple[str, ...]


def read_matrix(body: bytes, windows: Windows) -> QueryResult:
    """Read the answer to a range query; values that are no finite numbers are left out.

    Raises:
        AnswerError: If it is none, or the query failed.
    """
    answer, found = _decoded(body, "matrix")
    series = []
    for each in found:
        points = {}
        for moment, text in each.values:
            window, value = windows.at(moment), _number(text)
            if window is not None and value is not None:
                points[window] = value
        if points:
            series.append(Series(each.metric, points))
    return QueryResult(series, tuple(map(quoted, answer.warnings)))


def read_vector(body: bytes) -> list[tuple[Mapping[str, str], float]]:
    """Read the answer to an instant query: labels and value of each series.

    Raises:
        AnswerError: If it is none, or the query failed.
    """
    _, found = _decoded(body, "vector")
    values = ((each.metric, each.value and _number(each.value[1])) for each in found)
    return [(labels, value) for labels, value in values if value is not None]


def read_time(body: bytes) -> float:
    """Read the answer to the query `time()`, in seconds since the epoch.

    Raises:
        AnswerError: If it is none.
    """
    answer, _ = _answer(body)
    try:
        assert answer.data is not None, "a success has data"
        moment, _text = msgspec.json.decode(answer.data.result, type=tuple[float, str])
    except msgspec.MsgspecError as error:
        raise _none_of_prometheus() from error
    return moment


def quoted(text: str) -> str:
    """Return a text of another server in one line of bounded length."""
    line = " ".join(text.split())
    line = "".join(each for each in line if each.isprintable())
    return line if len(line) <= MOST_QUOTED else f"{line[: MOST_QUOTED - 1]}…"


def _decoded(body: bytes, kind: str) -> tuple[_Answer, list[_Metric]]:
    answer, data = _answer(body)
    if data.result_type != kind:
        raise _none_of_prometheus()
    try:
        found = msgspec.json.decode(data.result, type=list[_Metric])
    except msgspec.MsgspecError as error:
        raise _none_of_prometheus() from error
    if len(found) > MOST_SERIES:
        raise AnswerError(
            f"Prometheus answers with {len(found)} series, more than {MOST_SERIES}",
            hint="choose fewer GPUs with --match, such as --match 'Hostname=~\"rack1-.*\"'",
        )
    return answer, found


def _answer(body: bytes) -> tuple[_Answer, _Data]:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _none_of_prometheus() from error
    if answer.status == "error":
        raise AnswerError(f"Prometheus refuses the query: {quoted(answer.error)}")
    if answer.data is None:
        raise _none_of_prometheus()
    return answer, answer.data


def _none_of_prometheus() -> AnswerError:
    return AnswerError(
        "the answer is not one of Prometheus' HTTP API",
        hint="--prometheus is the address before /api/v1, such as http://prometheus.monitoring:9090",
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None

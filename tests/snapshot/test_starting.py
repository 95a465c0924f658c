"""When pending workloads start, in answers: known, unknown, or not forecast yet."""

import pytest

from policyd.snapshot.answers import queue_lines, why_pending
from policyd.snapshot.reading import find, read
from policyd.snapshot.starting import (
    StartAnswer,
    start_answer,
    start_order,
    start_sentence,
    start_text,
)
from policyd.snapshot.values import StartRow
from tests.snapshot.taking import NOW, Jobs, SnapshotTaker, body_for, snapshot, taken
from tests.snapshot.test_answers import LINE
from tests.status.test_pending_reasons import settled

IN_AN_HOUR = StartRow(4_600, 2_200, 11_800, "exact")
UNKNOWN = StartRow(0, 0, 0, "NoHistory")


def with_starts(**starts):
    of = settled(*LINE)
    full = taken(of, taker=SnapshotTaker(of, Jobs(**starts)))
    return read(body_for(full), "test")


def test_each_workload_has_its_own_forecast():
    found = with_starts(**{"job-next": IN_AN_HOUR, "job-behind": UNKNOWN})

    first, second = queue_lines(found)
    assert first.forecast == StartAnswer(
        label="exact",
        median="1970-01-01T01:16:40Z",
        low="1970-01-01T00:36:40Z",
        high="1970-01-01T03:16:40Z",
    )
    assert second.forecast == StartAnswer(label="unknown", reason="NoHistory")
    answer = why_pending(find(found, "ns", "Job", "behind"), "Job", "ns", "behind")
    assert answer.forecast == second.forecast


def test_workloads_with_the_same_forecast_share_a_row():
    found = with_starts(**{"job-next": IN_AN_HOUR, "job-behind": IN_AN_HOUR})

    (queue,) = found.cluster_queues
    assert queue.starts == (IN_AN_HOUR,)
    assert [row.start for row in queue.pending] == [0, 0]


def test_before_the_first_forecast_there_is_none():
    assert [line.forecast for line in queue_lines(snapshot(settled(*LINE)))] == [None, None]


@pytest.mark.parametrize(
    ("row", "text", "sentence"),
    [
        pytest.param(
            IN_AN_HOUR,
            "60m (20m to 3h)",
            "starts in 60m (20m to 3h), exact; 9 of 10 start in this interval",
            id="interval",
        ),
        pytest.param(
            StartRow(1_600, 1_600, 1_600, "coarse"),
            "10m",
            "starts in 10m, coarse; if limits are kept",
            id="certain",
        ),
        pytest.param(
            StartRow(900, 900, 1_060, "exact"),
            "0s (0s to 60s)",
            "starts in 0s (0s to 60s), exact; 9 of 10 start in this interval",
            id="overdue",
        ),
        pytest.param(
            UNKNOWN,
            "unknown",
            "unknown: jobs that it waits for declare no limit, and fewer than five jobs have ended",
            id="unknown",
        ),
        pytest.param(None, "-", "", id="none-yet"),
    ],
)
def test_a_forecast_is_written(row, text, sentence):
    answer = start_answer(row)

    assert (start_text(answer, NOW), start_sentence(answer, NOW)) == (text, sentence)


def test_unknown_starts_come_last():
    rows = [None, IN_AN_HOUR, UNKNOWN, StartRow(4_000, 1, 9_000, "coarse")]

    ordered = sorted(map(start_answer, rows), key=start_order)

    assert [each and each.label for each in ordered] == ["coarse", "exact", None, "unknown"]

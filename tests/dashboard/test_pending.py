"""The list of pending jobs: filters, order, pages, and what is said of each."""

import pytest
from msgspec.structs import replace

from policyd.dashboard.views.pending import ROWS, pending
from policyd.snapshot.values import NONE, PendingRow
from tests.dashboard.made import NOW, made_queue, made_snapshot


def shown(*queues, **query):
    return pending(made_snapshot(*queues), query, NOW)


def test_jobs_come_in_the_order_of_their_queues_with_all_there_is_to_say():
    first = shown(made_queue("q", pending=3)).lines[0]

    assert (first.kind, first.name, first.namespace, first.ahead) == ("Job", "train-0", "q", 0)
    assert (first.reason, first.message) == ("InsufficientQuota", "16 more are needed")
    (held,) = first.missing
    assert held.text == "16 more nvidia.com/gpu of h100: 32 requested, 16 available"
    assert held.holders == (("team-b/other", "32"),)
    assert held.others == 2
    assert (first.user, first.administrator) == ("request 16", "raise the quota")
    assert (first.waits, first.owner) == ("1m", "ann")


def test_devices_come_before_what_else_a_job_requests():
    lines = shown(made_queue("q", pending=2)).lines

    assert (lines[0].requests, lines[0].beside) == ("8 cpu", "")
    assert (lines[1].requests, lines[1].beside) == ("1 nvidia.com/gpu", "8 cpu")


def test_a_forecast_has_its_interval_and_none_says_why():
    lines = shown(made_queue("q", pending=2)).lines

    assert (lines[1].start, lines[1].interval) == ("in 10m", "5m to 25m, exact")
    assert (lines[0].start, lines[0].interval) == ("-", "no forecast yet")


def test_a_job_behind_another_says_which():
    line = shown(made_queue("q", pending=2)).lines[1]

    assert line.behind == "q/train-0"
    assert line.message.startswith("behind q/train-0, which needs")
    assert line.user == ""


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({}, 48), ({"team": "a"}, 24), ({"queue": "b"}, 24), ({"queue": "main"}, 48),
        ({"kind": "JobSet"}, 16), ({"size": "8"}, 6), ({"size": "64-"}, 6), ({"size": "none"}, 6),
        ({"size": "2-7"}, 12), ({"team": "a", "kind": "Job", "size": "1"}, 1),
        ({"team": "nobody"}, 0), ({"size": "no size"}, 48), ({"team": " a "}, 24),
    ],
)  # fmt: skip
def test_filters_are_taken_together(query, count):
    found = shown(made_queue("a", pending=24), made_queue("b", pending=24), **query)

    assert (found.matching, found.total) == (count, 48)


def test_the_first_to_start_come_first_if_that_is_asked_for():
    found = shown(made_queue("a", pending=4), order="start")

    assert [line.start for line in found.lines] == ["in 10m", "in 10m", "-", "-"]


@pytest.mark.parametrize(
    ("page", "number", "first"),
    [
        ("1", 1, 0), ("2", 2, ROWS), ("3", 3, 2 * ROWS), ("99", 3, 2 * ROWS), ("-1", 1, 0),
        ("0", 1, 0), ("x", 1, 0), ("9" * 250, 3, 2 * ROWS), ("²", 1, 0), ("", 1, 0),
    ],
)  # fmt: skip
def test_pages_are_within_what_there_is(page, number, first):
    found = shown(made_queue("a", pending=2 * ROWS + 1), page=page)

    assert (found.page, found.first, found.pages) == (number, first, 3)
    assert found.lines[0].ahead == first


def test_jobs_of_others_are_not_named():
    rows = (
        PendingRow("", "", 0, 1, 0, NONE, NONE, NONE, NONE, NONE),
        PendingRow("team-b/", "", 0, 1, 0, NONE, NONE, NONE, NONE, NONE),
    )
    found = shown(replace(made_queue("a"), pending=rows))

    assert [line.called for line in found.lines] == ["a job of another team", "a job of team-b"]
    assert [line.name for line in found.lines] == ["", ""]
    assert found.kinds == ()


def test_each_line_has_an_id_of_its_own():
    lines = shown(made_queue("a", pending=9), made_queue("b", pending=9)).lines

    assert len({line.id for line in lines}) == len(lines)

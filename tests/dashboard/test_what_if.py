"""What if on the page: a form that is bounded, and answers that say what could not be tried."""

import anyio
import anyio.lowlevel
import pytest

from policyd.dashboard.pages.what_if import AT_A_TIME, VIEW, WhatIfRuns
from policyd.dashboard.views.what_if import (
    MOST_NAMES,
    ReadVerdict,
    WhatIfForm,
    WhatIfRead,
    form_of,
    what_if_view,
)
from policyd.questions.what_if_answers import DifferenceAnswer, SimulatedTimes, WhatIfAnswer
from tests.dashboard.looking import Looking

NOW = 1_800_000_000.0


def test_the_fields_of_the_form_are_bounded():
    form = form_of({"deleted": "a/b, " * 99, "nodes": "x" * 9_999, "until": " 24h ", "mode": "?"})

    assert form.deleted == ("a/b",) * MOST_NAMES
    assert len(form.lost_nodes[0]) == 300
    assert (form.until, form.mode) == ("24h", "submit")


def test_the_verdict_of_the_queue_is_apart_from_other_warnings():
    sent = {"kind": "Job", "metadata": {"generateName": "a-"}}
    read = WhatIfRead(
        verdicts=(ReadVerdict(sent, "", ("queue: would wait: 1st", "unknown field")),)
    )

    (row,) = what_if_view(read, {}, NOW).verdicts

    assert (row.name, row.accepted) == ("Job a-*", True)
    assert (row.queue, row.warnings) == (("queue: would wait: 1st",), ("unknown field",))


@pytest.mark.parametrize("metadata", [None, "x", [], {}])
def test_a_manifest_of_any_shape_is_named(metadata):
    read = WhatIfRead(verdicts=(ReadVerdict({"kind": "Job", "metadata": metadata}, "no", ()),))

    (row,) = what_if_view(read, {}, NOW).verdicts

    assert (row.name, row.accepted, row.refusal) == ("Job *", False, "no")


def test_what_stays_the_same_is_counted_and_not_listed():
    stay = SimulatedTimes("Starts", 60.0, (), (), None)

    def differs(name, change, before=stay):
        return DifferenceAnswer("ns", name, f"Job/{name}", "cq", change, 0.0, before, stay)

    answer = WhatIfAnswer(
        "", (differs("a", "Same"), differs("b", "Later"), differs("c", "New", None)), 1, 0, (), ()
    )

    view = what_if_view(WhatIfRead(answer=answer), {}, NOW)

    assert [(each.job, each.link) for each in view.rows] == [
        ("Job/b", "/jobs/ns/Job/b"), ("Job/c", ""),
    ]  # fmt: skip
    assert view.left == ("1 workload as before",)


@pytest.fixture
def looking():
    looking = Looking(views=(VIEW,))
    looking.enter()
    return looking


def send(looking, **fields):
    page = looking.get("/what-if").text
    token = page.partition('name="form_token" value="')[2].partition('"')[0]
    return looking.post("/what-if", {"form_token": token, **fields})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({}, "there is nothing to try", id="nothing"),
        pytest.param({"text": "a: ["}, "manifest", id="broken"),
        pytest.param({"text": "apiVersion: v9\nkind: X"}, "no kind X of v9", id="unknown"),
    ],
)
def test_what_cannot_be_tried_is_reported_beside_the_form(looking, fields, message):
    answer = send(looking, **fields)

    assert answer.status_code == 200
    assert "Not tried:" in answer.text
    assert message in answer.text
    assert fields.get("text", "") in answer.text


def test_a_form_without_its_token_is_refused(looking):
    assert looking.post("/what-if", {"form_token": "x", "deleted": "job/a"}).status_code == 403


def test_the_form_can_be_linked_to(looking):
    assert 'value="job/a/b"' in looking.get("/what-if?deleted=job/a/b").text


@pytest.mark.anyio
async def test_few_changes_are_tried_at_a_time():
    trials, held = WhatIfRuns(), anyio.Event()

    class Request:
        scope = "ns"

        def __init__(self, user):
            self.session = Looking().session(user)

        @property
        def client(self):
            return self

        async def page(self, *_, **__):
            await held.wait()
            raise AssertionError("unreachable")

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(trials.answer, Request("user-0"), {"deleted": "job/a"})
        for number in range(1, AT_A_TIME):
            group.start_soon(trials.answer, Request(f"user-{number}"), {"deleted": "job/a"})
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        mine = await trials.answer(Request("user-0"), {"deleted": "job/a"})
        answer = await trials.answer(Request("another"), {"deleted": "job/a"})
        group.cancel_scope.cancel()

    assert answer == WhatIfRead(WhatIfForm(deleted=("job/a",)), problem=answer.problem)
    assert "try again in a moment" in answer.problem
    assert "you are trying a change already" in mine.problem

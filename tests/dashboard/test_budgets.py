"""Budgets on the overview: how far each is used up, and which need attention."""

import pytest

from policyd.dashboard.views.overview import MOST_BUDGETS, OverviewRead, Recent, overview
from policyd.snapshot.values import BudgetState
from tests.dashboard.looking import Looking
from tests.dashboard.made import NOW, made_queue, made_snapshot

RENEWS = 1_701_385_200.0


def budget(queue, used, hours=100.0, **more):
    given = {"queue": queue, "month": "2023-11", "time_zone": "Europe/Berlin", "hours": hours}
    return BudgetState(
        **given, used=used, unknown=more.pop("unknown", 0.0), renews_at=RENEWS, **more
    )


def shown(*budgets):
    snapshot = made_snapshot(made_queue("q", budgets=budgets))
    return overview(OverviewRead(snapshot, Recent()), {}, NOW)


def test_budgets_are_in_the_order_of_their_use():
    found = shown(
        budget("a/q", 10.0), budget("b/q", 120.5, used_up=True, unknown=3.25), budget("q", 0.0)
    )

    assert [(each.queue, each.used, each.left, each.part) for each in found.budgets] == [
        ("b/q", "120.50", "0.00", 1000), ("a/q", "10.00", "90.00", 100), ("q", "0.00", "100.00", 0),
    ]  # fmt: skip
    assert found.budgets[0].renews == "2023-11-30T23:00:00Z (Europe/Berlin)"
    assert [each.unknown for each in found.budgets] == ["3.25", "", ""]


def test_a_budget_of_nothing_is_used_up():
    (found,) = shown(budget("q", 0.0, hours=0.0, used_up=True)).budgets

    assert (found.part, found.state) == (1000, "used up")


def test_as_many_are_shown_as_fit():
    found = shown(*(budget(f"a/{n}", float(n)) for n in range(MOST_BUDGETS + 20)))

    assert len(found.budgets) == MOST_BUDGETS
    assert found.budgets[0].queue == f"a/{MOST_BUDGETS + 19}"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        pytest.param(budget("q", 79.9), None, id="plenty"),
        pytest.param(
            budget("q", 80.0), "is nearly used up: 80.00 of 100.00 GPU-hours", id="nearly"
        ),
        pytest.param(
            budget("q", 101.0, used_up=True), "is used up: 101.00 of 100.00 GPU-hours", id="used-up"
        ),
        pytest.param(
            budget("q", 101.0, used_up=True, held=True),
            "holds new jobs: 101.00 of 100.00 GPU-hours are used",
            id="held",
        ),
    ],
)
def test_a_budget_needs_attention_from_four_fifths_on(given, text):
    found = [each for each in shown(given).attention if each.kind == "Budget"]

    assert [each.text for each in found] == (
        [] if text is None else [f"the budget of q for 2023-11 {text}"]
    )
    assert all(each.queue == "q" for each in found)


def test_the_page_shows_them_and_without_one_no_table(monkeypatch):
    looking = Looking()
    looking.enter()
    pages = []
    for budgets in ((budget("<b>", 90.0),), ()):

        async def ask(_reader, _scope, budgets=budgets):
            return made_snapshot(made_queue("q", budgets=budgets))

        monkeypatch.setattr("policyd.questions.snapshots.ask", ask)
        looking.wait(5)
        pages.append(looking.get("/").text)

    assert "&lt;b&gt;" in pages[0]
    assert "GPU-hours used" in pages[0]
    assert "GPU-hours used" not in pages[1]

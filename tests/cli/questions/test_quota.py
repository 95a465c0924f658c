"""`policyd quota`: budgets of queues, after their quotas."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from policyd.cli import main
from policyd.snapshot.values import BudgetState
from tests.dashboard.made import GPU, cohort, made_queue, made_snapshot

USED = BudgetState(
    "q", "2023-11", "UTC", 1_000.0, 1_234.5, 0.0, 1_701_388_800.0, used_up=True, held=True
)
LEFT = BudgetState("team/mine", "2023-11", "Europe/Berlin", 50.0, 12.25, 0.0, 1_701_385_200.0)


@pytest.fixture
def ask(tmp_path):
    def asked(*arguments, budgets=(USED, LEFT)):
        found = made_snapshot(
            made_queue("q", cohort="all", budgets=budgets), cohorts=(cohort("all"),)
        )
        file = tmp_path / "snapshot.json"
        file.write_bytes(msgspec.json.encode(found))
        result = CliRunner().invoke(main, ["quota", "--snapshot", str(file), *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    return asked


def test_budgets_follow_the_quotas_once_each(ask):
    quotas, _, budgets = ask().partition("\n\n")

    assert quotas.count(GPU) == 2
    assert [line.split() for line in budgets.splitlines()[1:]] == [
        ["q", "2023-11", "1000.00", "1234.50", "0.00", "2023-12-01T00:00:00Z", "(UTC)", "holds",
         "new", "jobs"],
        ["team/mine", "2023-11", "50.00", "12.25", "37.75", "2023-11-30T23:00:00Z",
         "(Europe/Berlin)", "-"],
    ]  # fmt: skip


def test_without_budgets_there_is_no_table_of_them(ask):
    assert "BUDGET OF" not in ask(budgets=())
    assert "BUDGET OF" not in ask("--queue", "all")


def test_json_has_them_with_their_queue(ask):
    answer = json.loads(ask("-o", "json"))
    lines = answer["items"] if isinstance(answer, dict) else answer
    found = {line["name"]: line["budgets"] for line in lines}

    assert [each["queue"] for each in found["q"]] == ["q", "team/mine"]
    assert found["q"][0]["usedUp"]
    assert found["all"] == []

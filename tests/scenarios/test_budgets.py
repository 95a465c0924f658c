"""Budgets of GPU-hours: what is recorded, refused, and held, through all of policyd."""

import json
import subprocess

import pytest

from tests.scenarios.api import Refused, eventually
from tests.scenarios.clusters import COMMANDS
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted, waiting

BUDGET = {
    "policyd.io/budget-gpu-hours": "0.001",  # 3.6 s of one GPU
    "policyd.io/budget-time-zone": "Europe/Berlin",
    "policyd.io/budget-hold": "true",
}


@pytest.fixture
def annotate(api):
    """Change annotations of ClusterQueue team-a, and take them back afterwards."""

    def annotate(**annotations):
        api.patch("ClusterQueue", "team-a", {"metadata": {"annotations": annotations}})

    yield annotate
    annotate(**dict.fromkeys(BUDGET))


def test_a_budget_that_is_used_up_holds_new_jobs_until_it_is_raised(api, annotate):
    # The other scenarios' jobs count for the queue as well: under the budget, none may start.
    api.create(job("runs", run_for="600s"))
    eventually(lambda: admitted(api, "runs"), what="it runs")
    annotate(**BUDGET)
    api.create(job("later", run_for="600s"))

    def held():
        found = waiting(api, "later")
        return found if found and found["reason"] == "Suspended" else None

    found = eventually(held, what="it is held")

    assert found["message"].startswith("the budget of team-a for ")
    assert "0 GPU-hours, is used up; it renews on " in found["message"]
    assert found["message"].endswith("-01 00:00 Europe/Berlin")
    assert admitted(api, "runs")

    api.delete("Job", "runs", "team-a")
    annotate(**{"policyd.io/budget-gpu-hours": "1000"})
    eventually(lambda: admitted(api, "later"), what="it starts")


def test_a_budget_that_cannot_be_meant_is_refused(api, annotate):
    with pytest.raises(Refused) as refused:
        annotate(**{**BUDGET, "policyd.io/budget-time-zone": "Berlin"})

    assert "`Berlin` is not a time zone" in str(refused.value)


def test_hours_are_recorded_and_shown_with_the_budget(api, annotate, cluster):
    annotate(**{**BUDGET, "policyd.io/budget-gpu-hours": "1000"})
    api.create(job("runs", gpus=2, run_for="600s"))
    eventually(lambda: admitted(api, "runs"), what="it runs")

    def shown():
        command = [COMMANDS / "policyd", "usage", "hours", "--kubeconfig", cluster.kubeconfig]
        done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, check=False)
        if done.returncode:
            assert "has a record of hours" in done.stderr
            return None
        answer = json.loads(done.stdout)
        lines = {each["team"] for each in answer["hours"]["lines"] if each["hours"] > 0}
        return answer if "team-a" in lines else None

    answer = eventually(shown, within=150, what="the record is stored")

    (budget,) = answer["budgets"]
    assert (budget["queue"], budget["hours"], budget["usedUp"]) == ("team-a", 1000, False)
    quotas = {each["queue"] for each in answer["hours"]["quotas"]}
    assert "team-a" in quotas

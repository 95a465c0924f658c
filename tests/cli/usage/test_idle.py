"""`policyd usage idle` on recorded series, against what was worked out by hand."""

import json

import pytest

from tests.cli.usage.given import usage
from tests.usage import recording


def check_idle(address):
    done = usage("idle", address, "-o", "json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert {
        each["team"]: (each["pods"], pytest.approx(each["gpus"]), pytest.approx(each["idle"]))
        for each in answer["teams"]
    } == recording.TEAMS
    pods = {each["pod"]: each for each in answer["pods"]}
    assert {name: pytest.approx(pods[name]["busy"]) for name in pods} == recording.BUSY
    since = {n: (e["since"] - recording.BEGIN) / 3600 for n, e in pods.items() if e["since"]}
    assert since == recording.SINCE
    assert pods["notebook-0"]["atLeast"] is False
    return answer


def test_idle_gpus_are_those_that_were_worked_out_by_hand(address):
    answer = check_idle(address)
    print(answer["notes"])

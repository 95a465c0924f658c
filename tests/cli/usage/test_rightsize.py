"""`policyd usage rightsize` on recorded series, against what was worked out by hand."""

import json

import pytest

from tests.cli.usage.given import usage


def check_rightsize(address):
    done = usage("rightsize", address, "--no-cluster", "-o", "json")
    assert done.exit_code == 0, done.output
    pods = {each["pod"]: each for each in json.loads(done.stdout)["pods"]}
    train = pods["train-0"]
    assert (train["kind"], train["suggestion"], train["freed"]) == (
        "fewer", "request 1 instead of 2", 1
    )  # fmt: skip
    assert (train["memory"], train["memoryTotal"]) == (40_000, 81_000)
    notebook = pods["notebook-0"]
    assert (notebook["memory"], notebook["memoryTotal"]) == (70_000, 81_000)
    assert notebook["most"] == pytest.approx(0.6)
    assert pods["small-0"]["kind"] == "unknown"
    assert pods["small-0"]["suggestion"] == "it is not known which MIG profiles exist"
    assert pods["small-0"]["evidence"] == (
        "in 6.0 h: busy 5% of the time, at most 5%; at most 4000 of 81000 MiB used"
    )
    assert pods["odd-0"]["kind"] == "fewer"
    assert pods["part-0"]["suggestion"] == "its devices were all in use"
    return pods


def test_suggestions_are_those_that_were_worked_out_by_hand(address):
    check_rightsize(address)

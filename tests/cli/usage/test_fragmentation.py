"""`policyd usage fragmentation` on recorded series, against what was worked out by hand."""

import json

import pytest

from tests.cli.usage.given import usage
from tests.usage import recording


def check_fragmentation(address):
    done = usage("fragmentation", address, "--no-cluster", "-o", "json")
    assert done.exit_code == 0, done.output
    over_time = json.loads(done.stdout)["overTime"]
    assert len(over_time) == 72
    last = over_time[-1]
    for name, value in recording.GPUS.items():
        assert last[name] == pytest.approx(value), name
    return over_time


def test_fragments_are_those_that_were_worked_out_by_hand(address):
    check_fragmentation(address)

"""What `policyd what-if` says is what then happens on the embedded cluster."""

import pytest

from tests.what_ifs.plan import CHANGES, trial_of
from tests.what_ifs.trial import run

pytestmark = pytest.mark.anyio

EVENTFUL = (6, 112, 114, 116, 117, 122, 123, 130, 131, 134, 142)
"""Trials in which many jobs start later, are preempted, or get a node or a flavor."""


@pytest.mark.parametrize("seed", EVENTFUL)
async def test_predictions_come_true(seed):
    outcome = await run(trial_of(seed))

    assert outcome.differences == {}


def test_each_kind_of_change_is_drawn():
    assert {trial_of(seed).kind for seed in range(400)} == {each.__name__ for each in CHANGES}

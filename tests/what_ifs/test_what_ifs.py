"""What `policyd what-if` says is what then happens on the embedded cluster."""

import pytest

from tests.what_ifs.trial import run, trial_of

pytestmark = pytest.mark.anyio

EVENTFUL = (5, 8, 20, 21, 29, 33, 43, 48, 52, 55)
"""Trials in which many jobs start later, or are preempted."""


@pytest.mark.parametrize("seed", EVENTFUL)
async def test_predictions_come_true(seed):
    outcome = await run(trial_of(seed))

    assert any(predicted and predicted[0] for predicted in outcome.predicted.values())
    assert outcome.differences == {}

"""A replay of a real API server's audit log forecasts what is then refused.

By the API server's own policies, and by Kyverno's in policyd's webhooks.
"""

import pytest

from tests.live.replayed_week import PRECISION, RECALL, replayed_week

pytestmark = pytest.mark.e2e


def test_a_replay_forecasts_what_is_then_refused_and_changed():
    compared = replayed_week(seed=7, count=200)

    requests = compared.summary["requests"]
    assert len(compared.refused) > 20
    assert 10 < compared.by_webhooks < len(compared.refused)
    assert (compared.recall, compared.unjudged) == (RECALL, {})
    assert compared.precision >= PRECISION
    assert compared.changes == compared.forecast_changes != set()
    assert requests["refused"] == len(compared.forecast)
    assert requests["changed"] == len(compared.forecast_changes)

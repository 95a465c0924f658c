"""Counts of what each policy does."""

from prometheus_client import CollectorRegistry

from policyd.engine.model.decision import Decision
from webhooks.metrics import MOST_POLICIES, OTHER, WebhookMetrics


def counted(metrics):
    """Return how often policies matched, by name."""
    (family,) = metrics.results.collect()
    return {
        each.labels["policy"]: each.value for each in family.samples if each.name.endswith("_total")
    }


def test_policies_beyond_the_bound_share_one_series():
    metrics = WebhookMetrics(CollectorRegistry())
    names = [f"p-{number}" for number in range(2 * MOST_POLICIES)]
    for name in (*names, names[0], names[-1]):
        metrics.results.take("validate", Decision(matched=(name,)))

    found = counted(metrics)

    assert len(found) == MOST_POLICIES + 1
    assert found[names[0]] == 2
    assert found[OTHER] == MOST_POLICIES + 1


def test_groups_that_all_differ_take_bounded_memory(monkeypatch):
    monkeypatch.setattr("webhooks.metrics._MOST_GATHERED", 8)
    metrics = WebhookMetrics(CollectorRegistry())
    for number in range(100):
        names = tuple(f"p-{place}" for place in range(7) if number >> place & 1) or ("none",)
        metrics.results.take("mutate", Decision(matched=names))
        gathered = sum(map(len, metrics.results._gathered.values()))
        assert gathered <= 8

    found = counted(metrics)

    assert found["p-0"] == 50
    assert found["p-6"] == 36
    assert counted(metrics) == found

"""`/metrics` in both formats: what a scraper prefers is what it gets, and a parser reads it."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_classic
from starlette.testclient import TestClient

from policyd.controller.metrics.counters import ControllerMetrics
from policyd.health import create_health_app

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


@pytest.fixture
def client():
    metrics = ControllerMetrics()
    metrics.cycle(admitted=1, seconds=0.2)
    metrics.count("admitted_workloads_total", 'hostile"\n\\', "")
    return TestClient(create_health_app(metrics.registry, tuple))


@pytest.mark.parametrize(
    ("accept", "media_type", "read"),
    [
        pytest.param(PROMETHEUS, "application/openmetrics-text; version=1.0.0", read_openmetrics),
        pytest.param("text/plain", "text/plain; version=0.0.4", read_classic),
        pytest.param("*/*", "text/plain; version=0.0.4", read_classic),
        pytest.param(
            "application/openmetrics-text;version=9",
            "application/openmetrics-text; version=1.0.0",
            read_openmetrics,
        ),
    ],
    ids=["prometheus", "classic", "curl", "a-version-that-there-is-not"],
)
def test_the_text_is_what_the_scraper_prefers(client, accept, media_type, read):
    answer = client.get("/metrics", headers={"accept": accept})

    assert answer.headers["content-type"].startswith(media_type)
    assert answer.headers["vary"] == "Accept"
    families = {family.name.removesuffix("_total"): family for family in read(answer.text)}
    samples = families["kueue_admitted_workloads"].samples
    assert [sample.labels["cluster_queue"] for sample in samples] == ['hostile"\n\\']
    assert not any(sample.exemplar for sample in samples)
    assert "_created" not in answer.text


def test_both_formats_are_cached_apart(client):
    texts = [
        client.get("/metrics", headers={"accept": each}).text
        for each in ("*/*", PROMETHEUS, "*/*", PROMETHEUS)
    ]

    assert [text.endswith("# EOF\n") for text in texts] == [False, True, False, True]

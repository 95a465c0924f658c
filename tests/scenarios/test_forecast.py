"""A user asks when a job starts, and the controller keeps what it learnt for that."""

import time
from datetime import datetime

import pytest

from tests.charts.release import CONTROLLER, NAMESPACE
from tests.scenarios.api import eventually
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted, waiting

SECONDS = 600


def limited(name, **options):
    """A job that runs for ten minutes at most."""
    body = job(name, run_for="300s", **options)
    body["spec"]["activeDeadlineSeconds"] = SECONDS
    return body


def forecast(ask, name):
    found = ask("why", f"job/{name}")
    return found["forecast"] and found["forecast"]["median"] and found["forecast"]


def seconds_until(at, since):
    return datetime.fromisoformat(at).timestamp() - since


@pytest.fixture
def line(api):
    """A job that runs, and two that wait for all that it holds; since when it runs."""
    api.create(limited("first", gpus=12, pods=2))
    eventually(lambda: admitted(api, "first"), what="the first job is admitted")
    since = time.time()
    for name in ("second", "third"):
        api.create(limited(name, gpus=12, pods=2))
        eventually(lambda name=name: waiting(api, name), what=f"{name} waits")
        time.sleep(1)  # the order of those of one second is by chance
    return since


def test_jobs_with_limits_get_their_start(ask, line):
    second, third = (
        eventually(lambda name=name: forecast(ask, name), what="a forecast")
        for name in ("second", "third")
    )

    for start, runs in ((second, 1), (third, 2)):
        assert start["label"] == "exact"
        assert start["low"] == start["median"] == start["high"]
        assert seconds_until(start["median"], line) == pytest.approx(runs * SECONDS, abs=15)


@pytest.mark.usefixtures("line")
def test_the_line_can_be_read_by_starts(ask):
    eventually(lambda: forecast(ask, "third"), what="a forecast")

    lines = ask("queue", "--start")

    assert [each["job"] for each in lines] == ["Job/second", "Job/third"]
    starts = [each["forecast"]["median"] for each in lines]
    assert starts == sorted(starts)


@pytest.mark.usefixtures("line")
def test_what_was_learnt_is_stored(cluster, api):
    if cluster.name != "real":
        pytest.skip("the embedded cluster keeps it in its process")

    stored = eventually(
        lambda: api.get("ConfigMap", f"{CONTROLLER}-memory", NAMESPACE).get("binaryData"),
        what="it is stored",
        within=100,
    )

    assert stored["memory"]

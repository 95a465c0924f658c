"""Why a job waits, as its user sees it: on the Workload, on the job itself, and in tables."""

import copy
import time

import pytest

from tests.scenarios.api import Refused, eventually
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted, of_class, preempting, usage, waiting

QUEUE = "kueue.x-k8s.io/queue-name"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


def events_of(api, name, reason):
    """What an event of that reason on a job says."""
    for event in api.find("Event", "team-a"):
        about = event.get("involvedObject", {})
        if (about.get("kind"), about.get("name"), event["reason"]) == ("Job", name, reason):
            return event["message"]
    return ""


def cells(api, kind, name, namespace="default"):
    """The row that kubectl prints, by column."""
    api = copy.copy(api)
    api.headers = {**api.headers, **TABLE}
    table = api.get(kind, name, namespace)
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


def test_each_of_equal_jobs_says_why_it_waits_within_ten_seconds_and_so_does_the_job(api):
    api.create(job("first", run_for="120s"))
    eventually(lambda: admitted(api, "first"), what="the first job is admitted")
    names = [f"equal-{number}" for number in range(4)]
    for name in names:
        api.create(job(name, run_for="1s"))
    made = time.monotonic()
    for name in names:
        eventually(lambda name=name: waiting(api, name), within=15, what=f"{name} has a reason")
    assert time.monotonic() - made < 12

    eventually(lambda: in_line(api, names), what="three are behind the one that is next")
    for name in names:
        found = eventually(
            lambda name=name: events_of(api, name, "WaitingForQuota"),
            what=f"{name} tells it itself",
        )
        assert found.endswith(("held by team-a/first (8)", "; 4 are free"))


def in_line(api, names):
    """Whether all but one say that they are behind that one; who came first may differ at first."""
    messages = {name: waiting(api, name)["message"] for name in names}
    own = [name for name, text in messages.items() if text.endswith("held by team-a/first (8)")]
    behind = f"behind team-a/{own[0]}, which needs 8 nvidia.com/gpu of h100; 4 are free"
    return [text for name, text in messages.items() if name not in own] == [behind] * 3


def test_a_victim_names_its_preemptor(api):
    api.create(of_class("research", job("low", run_for="120s")))
    eventually(lambda: admitted(api, "low"), what="the job is admitted")
    with preempting(api, "team-a", withinClusterQueue="LowerPriority"):
        api.create(of_class("production", job("urgent", run_for="60s")))
        found = eventually(lambda: events_of(api, "low", "PreemptedBy"), what="the job says it")

    assert found.startswith("preempted by team-a/urgent, due to")


def test_tables_show_what_is_borrowed_who_waits_and_which_queues_are_stopped(api):
    api.create(job("own", run_for="60s"))
    api.create(job("lent", gpus=4, run_for="60s"))
    eventually(lambda: usage(api, "team-a", "12"), what="usage is reported")

    row = cells(api, "ClusterQueue", "team-a")
    assert (row["State"], row["Borrowed"], row["Borrowed Resource"]) == (
        "Ready",
        "4",
        "nvidia.com/gpu",
    )
    assert cells(api, "LocalQueue", "team-a", "team-a")["State"] == "Ready"
    api.patch("ClusterQueue", "team-b", {"spec": {"stopPolicy": "Hold"}})
    try:
        eventually(
            lambda: cells(api, "ClusterQueue", "team-b")["State"] == "Stopped", what="it says so"
        )
        stopped = job("stopped", "team-b")
        api.create(stopped)
        reserved = eventually(lambda: waiting(api, "stopped", "team-b"), what="it has a reason")
        assert reserved["reason"] == "Suspended"
        name = api.find("Workload", "team-b")[0]["metadata"]["name"]
        assert cells(api, "Workload", name, "team-b")["Reason"] == "Suspended"
    finally:
        api.patch("ClusterQueue", "team-b", {"spec": {"stopPolicy": "None"}})


def test_a_job_that_runs_is_put_into_a_queue_as_the_refusal_says(api):
    api.create(job("stray", "default", gpus=0, run_for="60s"))
    change = {"metadata": {"labels": {QUEUE: "team-a"}}}
    try:
        with pytest.raises(Refused, match=r"set `spec\.suspend` to true in the same change"):
            api.patch("Job", "stray", change)

        api.patch("Job", "stray", change | {"spec": {"suspend": True}})
    finally:
        api.delete("Job", "stray")

"""Events: one object for what repeats, an allowance for each, and never the caller's trouble."""

import asyncio

import pytest

from policyd.api.meta import ObjectReference
from policyd.kube.errors import ForbiddenError
from policyd.kube.events import MOST_WAITING, EventRecorder
from policyd.kube.resources import EVENTS
from policyd.testing import FakeClient, FakeClock

pytestmark = pytest.mark.anyio

WORKLOAD = ObjectReference(
    api_version="kueue.x-k8s.io/v1beta2", kind="Workload", namespace="ml", name="train", uid="u-1"
)
QUEUE = ObjectReference(kind="ClusterQueue", name="gpu", uid="u-2")


@pytest.fixture
def world():
    client, clock = FakeClient(), FakeClock()
    return client, clock, EventRecorder(client, component="policyd", pace=clock.pace())


def stored(client):
    return client.store.select(EVENTS, {})


async def test_an_event_says_what_happened_to_what_and_when(world):
    client, _, recorder = world

    recorder.record(WORKLOAD, reason="Admitted", message="it runs")
    await recorder.flush()

    (event,) = stored(client)
    metadata = event.pop("metadata")
    assert (metadata["namespace"], metadata["name"].split(".")[0]) == ("ml", "train")
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "namespace": "ml",
            "name": "train",
            "uid": "u-1",
        },
        "type": "Normal",
        "reason": "Admitted",
        "message": "it runs",
        "source": {"component": "policyd"},
        "reportingComponent": "policyd",
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "lastTimestamp": "2023-11-14T22:13:20Z",
        "count": 1,
    }


async def test_cluster_objects_have_their_events_in_default(world):
    client, _, recorder = world

    recorder.record(QUEUE, reason="Stopped", message="by hand")
    await recorder.flush()

    assert stored(client)[0]["metadata"]["namespace"] == "default"


async def test_repeated_events_are_counted_with_the_latest_message(world):
    client, clock, recorder = world

    for left in (3, 2, 1):
        recorder.record(WORKLOAD, kind="Warning", reason="Pending", message=f"{left} GPUs missing")
        await recorder.flush()
        await clock.advance(10)

    (event,) = stored(client)
    assert (event["count"], event["message"]) == (3, "1 GPUs missing")
    assert event["firstTimestamp"] < event["lastTimestamp"]


async def test_repeated_statuses_are_written_once(world):
    client, _, recorder = world

    for _ in range(10):
        recorder.record(WORKLOAD, reason="Pending", message="no quota")
    await recorder.flush()

    assert stored(client)[0]["count"] == 10
    assert len(client.writes) == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param((WORKLOAD, "Normal", "Admitted"), id="reason"),
        pytest.param((WORKLOAD, "Warning", "Pending"), id="type"),
        pytest.param((QUEUE, "Normal", "Pending"), id="object"),
    ],
)
async def test_other_events_are_other_objects(world, other):
    client, _, recorder = world
    about, kind, reason = other

    recorder.record(WORKLOAD, reason="Pending", message="m")
    recorder.record(about, kind=kind, reason=reason, message="m")
    await recorder.flush()

    assert len(stored(client)) == 2


async def test_events_of_some_reasons_are_not_counted_together():
    client, clock = FakeClient(), FakeClock()
    recorder = EventRecorder(client, component="policyd", pace=clock.pace(), apart={"Failed"})

    for reason in ("Failed", "Failed", "Pending", "Pending"):
        recorder.record(WORKLOAD, reason=reason, message="again")
    await recorder.flush()
    recorder.record(WORKLOAD, reason="Failed", message="again")
    await recorder.flush()

    counts = sorted((event["reason"], event["count"]) for event in stored(client))
    assert counts == [("Failed", 1), ("Failed", 1), ("Failed", 1), ("Pending", 2)]


async def test_an_event_that_the_server_has_dropped_is_written_anew(world):
    client, clock, recorder = world
    recorder.record(WORKLOAD, reason="Pending", message="m")
    await recorder.flush()
    client.store.delete(EVENTS, stored(client)[0], dry_run=False)

    await clock.advance(60)
    recorder.record(WORKLOAD, reason="Pending", message="m")
    await recorder.flush()

    assert [event["count"] for event in stored(client)] == [2]


async def test_after_a_long_time_the_same_is_a_new_event(world):
    client, clock, recorder = world

    for _ in range(2):
        recorder.record(WORKLOAD, reason="Pending", message="m")
        await recorder.flush()
        await clock.advance(3600)

    assert [event["count"] for event in stored(client)] == [1, 1]


async def test_each_object_has_an_allowance_that_fills_up_again(world):
    client, clock, recorder = world

    for number in range(40):
        recorder.record(WORKLOAD, reason=f"R{number}", message="m")
        recorder.record(QUEUE, reason=f"R{number % 3}", message="m")
    await recorder.flush()
    at_once = len(stored(client))
    await clock.advance(900)
    for number in range(40):
        recorder.record(WORKLOAD, reason=f"S{number}", message="m")
    await recorder.flush()

    assert at_once == 25 + 3
    assert len(stored(client)) == at_once + 3
    assert recorder.left_out == 15 + 37


async def test_the_queue_of_requests_is_bounded(world):
    _, _, recorder = world

    for number in range(MOST_WAITING + 10):
        about = ObjectReference(kind="Workload", namespace="ml", name=f"w{number}", uid=f"{number}")
        recorder.record(about, reason="Pending", message="m")

    assert recorder.left_out == 10


async def test_refused_objects_are_left_out_and_the_rest_continues(world):
    client, _, recorder = world
    client.fail(ForbiddenError("the namespace is being deleted"), verb="create")

    recorder.record(WORKLOAD, reason="Pending", message="m")
    recorder.record(QUEUE, reason="Pending", message="m")
    await recorder.flush()

    assert [event["involvedObject"]["name"] for event in stored(client)] == ["gpu"]
    assert recorder.left_out == 1


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param("x" * 1024, "x" * 1024, id="fits"),
        pytest.param("x" * 1025, "x" * 1021 + "...", id="cut"),
        pytest.param("ä" * 600, "ä" * 510 + "...", id="cut-between-characters"),
    ],
)
async def test_messages_are_cut_to_what_the_server_takes(world, message, expected):
    client, _, recorder = world

    recorder.record(WORKLOAD, reason="Pending", message=message)
    await recorder.flush()

    assert stored(client)[0]["message"] == expected


async def test_a_long_name_leaves_room_for_the_event_s_own(world):
    client, _, recorder = world
    name = "a" * 199 + "-" + "b" * 53

    recorder.record(
        ObjectReference(kind="Workload", namespace="ml", name=name), reason="R", message="m"
    )
    await recorder.flush()

    written = stored(client)[0]["metadata"]["name"]
    assert written.startswith("a" * 199 + ".")
    assert len(written) <= 253


async def test_it_writes_by_itself_while_it_runs(world):
    client, clock, recorder = world
    task = asyncio.ensure_future(recorder.run())
    await clock.advance(0)

    recorder.record(WORKLOAD, reason="Pending", message="m")
    await clock.advance(0)

    assert len(stored(client)) == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

"""A snapshot is read as it was written, or not at all; workloads in it are found."""

import msgspec
import pytest

from policyd.snapshot.reading import FoundHolding, SnapshotError, find, read
from policyd.snapshot.values import API_VERSION, FORMAT
from tests.alloc.builders import queue, workload
from tests.alloc.preemption.test_preemption import running
from tests.snapshot.taking import body_for, snapshot, taken
from tests.snapshot.test_priorities import by_usage
from tests.status.test_pending_reasons import settled


def some():
    return settled(
        queue("q", gpu=4), running("ns/job-runs", "q", gpu=4),
        workload("ns/job-first", "q", gpu=4, at=1, local_queue="ns/a"),
        workload("ns/plain", "q", gpu=4, at=2, local_queue="ns/b"),
        workload("ns/job-last", "q", gpu=4, at=3, local_queue="ns/a"),
    )  # fmt: skip


def changed(**fields):
    return msgspec.json.encode({**msgspec.json.decode(body_for(taken(some()))), **fields})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", "not a whole QueueSnapshot", id="empty"),
        pytest.param(b"[1]", "not a whole QueueSnapshot", id="another-shape"),
        pytest.param(b"[" * 9_000, "not a whole QueueSnapshot", id="nested-too-deep"),
        pytest.param(changed()[:-40], "not a whole QueueSnapshot", id="cut-in-half"),
        pytest.param(b'{"kind": "Pod"}', "`Pod` is not a QueueSnapshot", id="another-kind"),
        pytest.param(changed(apiVersion="x/v2"), "`x/v2` `QueueSnapshot` is not", id="version"),
        pytest.param(changed(format=FORMAT + 1), f"reads format {FORMAT}", id="newer-format"),
        pytest.param(changed(clusterQueues=[5]), r"damaged: .*clusterQueues\[0\]", id="damaged"),
    ],
)
def test_what_cannot_be_understood_is_a_sentence_with_its_place(body, message):
    with pytest.raises(SnapshotError, match=f"^live: .*{message}"):
        read(body, "live")


@pytest.mark.parametrize(
    ("rows", "row", "at"),
    [
        pytest.param("pending", 0, 4, id="requests"),
        pytest.param("pending", 0, 5, id="local-queue"),
        pytest.param("pending", 1, 6, id="behind-one-that-comes-later"),
        pytest.param("pending", 0, 7, id="reason"),
        pytest.param("pending", 0, 8, id="origin"),
        pytest.param("holding", 0, 4, id="usage"),
        pytest.param("holding", 0, 5, id="local-queue-of-a-holder"),
    ],
)
@pytest.mark.parametrize("index", [-2, 99])
def test_a_row_that_names_what_is_not_there_is_damage(rows, row, at, index):
    queues = msgspec.json.decode(changed())["clusterQueues"]
    queues[0][rows][row][at] = index

    with pytest.raises(SnapshotError, match="a row of ClusterQueue q names an entry"):
        read(changed(clusterQueues=queues), "live")


@pytest.mark.parametrize("moment", [-1, 10**15])
@pytest.mark.parametrize("rows", ["pending", "holding"])
def test_a_time_that_no_calendar_has_is_damage(rows, moment):
    queues = msgspec.json.decode(changed())["clusterQueues"]
    queues[0][rows][0][3] = moment

    with pytest.raises(SnapshotError, match="ClusterQueue q has a time that no calendar has"):
        read(changed(clusterQueues=queues), "live")


def test_a_time_of_past_usage_that_no_calendar_has_is_damage():
    body = msgspec.json.decode(body_for(taken(by_usage())))
    body["clusterQueues"][0]["past"][0]["updatedAt"] = 1e300

    with pytest.raises(SnapshotError, match="has a time that no calendar has"):
        read(msgspec.json.encode(body), "live")


def test_fields_that_were_added_do_not_matter():
    assert read(changed(more={"a": 1}), "live") == snapshot(some())


def test_it_says_what_it_is_and_from_when():
    found = snapshot(some())

    assert (found.api_version, found.format, found.taken_at) == (API_VERSION, FORMAT, 1_000.0)
    assert (found.generation, found.resource_version) == (some().revision, "7")


@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [
        pytest.param("Job", "last", "ns/job-last", id="by-its-job"),
        pytest.param("Workload", "plain", "ns/plain", id="by-itself"),
        pytest.param("Workload", "job-first", "ns/job-first", id="a-jobs-workload"),
        pytest.param("Job", "runs", "ns/job-runs", id="with-quota"),
        pytest.param("Job", "plain", None, id="of-another-kind"),
        pytest.param("RayJob", "last", None, id="named-like-another"),
    ],
)
def test_a_workload_is_found(kind, name, key):
    found = find(snapshot(some()), "ns", kind, name)

    assert (found and found.row.key) == key
    assert isinstance(found, FoundHolding) is (name == "runs")
    assert find(snapshot(some()), "other", kind, name) is None


def test_places_are_counted_in_the_cluster_queue_and_in_the_local_queue():
    found = find(snapshot(some()), "ns", "Job", "last")

    assert (found.place, found.place_in_local_queue) == (2, 1)
    assert found.ahead.row.key == "ns/job-first"
    assert (found.reason, found.ahead.reason.type) == (None, "WaitingForQuota")

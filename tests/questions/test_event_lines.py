"""Events about queues: which are shown of whom, joined with those of jobs, in the order of time."""

from itertools import count

import pytest

from policyd.api.meta import rfc3339
from policyd.kube import resources as r
from policyd.questions.event_lines import EventScope, queue_events
from policyd.questions.known_names import UnknownNameError
from policyd.questions.unqueued_jobs import JobNotFoundError, JobQuery
from policyd.testing import FakeClient

pytestmark = pytest.mark.anyio

NUMBERS = count()


def put(client, resource, name, *, namespace="ns", owner="", **body):
    metadata = {"name": name, "namespace": namespace, "uid": f"{resource.kind}-{name}"}
    if owner:
        job = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"Job-{owner}"}
        metadata["ownerReferences"] = [{**job, "controller": True}]
    client.store.put(resource, {"metadata": metadata, **body})


def event(client, at, kind, name, reason, *, message="said", namespace="ns", **fields):
    fields = {"lastTimestamp": rfc3339(at), "source": {"component": "policyd-controller"}} | fields
    about = {"kind": kind, "name": name, "namespace": namespace}
    body = {"involvedObject": about, "type": "Normal", "reason": reason, "message": message}
    put(
        client,
        r.EVENTS,
        f"e{next(NUMBERS)}",
        namespace=namespace,
        **body,
        **fields,
    )


@pytest.fixture
def client():
    """Two jobs in two queues, a pod group, and another team."""
    client = FakeClient()
    put(client, r.LOCAL_QUEUES, "train", spec={"clusterQueue": "team-a"})
    put(client, r.LOCAL_QUEUES, "serve", spec={"clusterQueue": "team-s"})
    for name, queue in (("one", "train"), ("two", "serve")):
        put(client, r.JOBS, name)
        put(client, r.WORKLOADS, f"job-{name}", owner=name, spec={"queueName": queue})
    put(client, r.WORKLOADS, "gang", spec={"queueName": "train"})
    event(client, 30, "Workload", "job-one", "Admitted")
    event(client, 10, "Job", "one", "CreatedWorkload", source={"component": "job-controller"})
    event(client, 11, "Job", "one", "CreatedWorkload")
    event(client, 40, "Workload", "job-two", "Preempted")
    event(client, 35, "Workload", "gang", "QuotaReserved")
    event(client, 20, "LocalQueue", "train", "Odd", source={"component": "somebody"})
    event(client, 50, "Workload", "w", "Admitted", namespace="other")
    return client


async def shown(client, namespace="ns", **scope):
    lines = await queue_events(client, EventScope(namespace, **scope))
    return [f"{line.object} {line.reason}" for line in lines]


ALL = [
    "Job/one CreatedWorkload",
    "LocalQueue/train Odd",
    "Job/one Admitted",
    "Workload/gang QuotaReserved",
    "Job/two Preempted",
]


async def test_events_of_queues_are_shown_in_the_order_of_time_and_of_their_jobs(client):
    assert await shown(client) == ALL
    assert await shown(client, "") == [*ALL, "Workload/w Admitted"]


@pytest.mark.parametrize(
    ("job", "wanted"),
    [
        pytest.param(("Job", "one"), [ALL[0], ALL[2]], id="job"),
        pytest.param(("Workload", "job-two"), [ALL[4]], id="workload"),
        pytest.param(("PodGroup", "gang"), [ALL[3]], id="group"),
    ],
)
async def test_one_job_has_its_own_events_and_those_of_its_workloads(client, job, wanted):
    kind, name = job

    assert await shown(client, job=JobQuery(kind, "ns", name)) == wanted


@pytest.mark.parametrize(
    ("queue", "wanted"),
    [
        pytest.param("train", ALL[:4], id="local-queue"),
        pytest.param("team-a", ALL[:4], id="cluster-queue"),
        pytest.param("serve", ALL[4:], id="the-other"),
    ],
)
async def test_a_queue_has_its_own_events_and_those_of_its_workloads(client, queue, wanted):
    assert await shown(client, queue=queue) == wanted


async def test_events_of_a_group_are_those_of_the_set_that_makes_its_pods(client):
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "s"}
    annotations = {"kueue.x-k8s.io/is-group-workload": "true"}
    metadata = {"name": "w", "namespace": "ns", "annotations": annotations}
    body = {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": {"queueName": "serve"}}
    client.store.put(r.WORKLOADS, body)
    event(client, 50, "Workload", "w", "Admitted")
    event(client, 51, "StatefulSet", "web", "Scaled")

    found = [ALL[4], "StatefulSet/web Admitted", "StatefulSet/web Scaled"]
    assert await shown(client, queue="serve") == found


async def test_a_job_and_its_workload_that_say_the_same_of_one_moment_are_one(client):
    for at, kind, name in ((60, "Job", "one"), (63, "Workload", "job-one"), (90, "Job", "one")):
        event(client, at, kind, name, "Stopped", message="preempted")
    for at in (70, 71):
        event(client, at, "Workload", "job-one", "Retried", message="twice")

    assert (await shown(client))[5:] == [
        "Job/one Stopped",
        "Job/one Retried",
        "Job/one Retried",
        "Job/one Stopped",
    ]


async def test_those_of_one_second_are_in_the_order_in_which_they_were_written(client):
    for reason in ("Zero", "Alpha"):
        event(client, 100, "Workload", "gang", reason)

    assert (await shown(client))[5:] == ["Workload/gang Zero", "Workload/gang Alpha"]


@pytest.mark.parametrize(
    ("fields", "time", "times"),
    [
        pytest.param({"count": 3}, 100, 3, id="counted"),
        pytest.param(
            {"lastTimestamp": None, "eventTime": "1970-01-01T00:02:00.500000Z"}, 120, 1, id="new"
        ),
        pytest.param(
            {"series": {"count": 7, "lastObservedTime": "1970-01-01T00:03:00.000000Z"}},
            180,
            7,
            id="series",
        ),
        pytest.param({"lastTimestamp": None, "firstTimestamp": rfc3339(90)}, 90, 1, id="first"),
    ],
)
async def test_each_way_of_writing_times_and_counts_is_read(client, fields, time, times):
    event(client, 100, "Workload", "gang", "Last", **fields)

    last = (await queue_events(client, EventScope("ns")))[-1]

    assert (last.reason, last.time, last.count) == ("Last", rfc3339(time), times)


async def test_a_queue_that_is_not_there_is_named_with_those_that_are(client):
    with pytest.raises(UnknownNameError) as mistyped:
        await shown(client, queue="trian")
    with pytest.raises(UnknownNameError) as unknown:
        await shown(client, queue="xyz")

    assert mistyped.value.hint == "did you mean `train`?"
    assert unknown.value.hint == "there are serve, team-a, team-s, train"


async def test_a_job_that_is_not_there_is_an_error(client):
    with pytest.raises(JobNotFoundError, match="Job ns/none not found"):
        await shown(client, job=JobQuery("Job", "ns", "none"))

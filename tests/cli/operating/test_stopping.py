"""Stopping and resuming: what is written, what is said of it, and what is refused."""

import pytest

from policyd.cli.operating.stopping import (
    NotStoppableError,
    StopRequest,
    UnknownNameError,
    change,
    change_all,
    lines,
    queue_or_job_kind,
    sentence,
)
from policyd.kube import resources as r
from policyd.kube.errors import ConflictError, ForbiddenError
from policyd.questions.unqueued_jobs import JobNotFoundError, JobQuery
from policyd.testing import FakeClient

pytestmark = pytest.mark.anyio

GROUP = {"kueue.x-k8s.io/pod-group-name": "gang"}


def put(client, resource, name, spec=None, *, status=None, **metadata):
    namespace = {"namespace": "ns"} if resource.namespaced else {}
    body = {"metadata": {"name": name, "uid": f"{resource.kind}-{name}", **namespace, **metadata}}
    client.store.put(resource, {**body, "spec": spec or {}, "status": status or {}})


def owned(kind, name):
    owner = {"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": f"{kind}-{name}"}
    return [{**owner, "controller": True}]


def workload(client, name, *conditions, owner=None, active=True):
    put(
        client,
        r.WORKLOADS,
        name,
        {"queueName": "train", "active": active, "podSets": []},
        ownerReferences=owner or [],
        status={
            "conditions": [
                {
                    "type": kind,
                    "status": "True",
                    "reason": kind,
                    "message": "",
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                }
                for kind in conditions
            ]
        },
    )


@pytest.fixture
def client():
    """Queues that admit, a job with quota, one without, and a group of pods."""
    client = FakeClient()
    put(client, r.CLUSTER_QUEUES, "team-a", status={"reservingWorkloads": 3})
    put(client, r.CLUSTER_QUEUES, "team-b", {"stopPolicy": "Hold"})
    put(client, r.LOCAL_QUEUES, "train", {"clusterQueue": "team-a"})
    put(client, r.JOBS, "runs")
    put(client, r.JOBS, "stray")
    put(client, r.PODS, "p", labels=GROUP)
    workload(client, "job-runs", "QuotaReserved", owner=owned("Job", "runs"))
    workload(client, "gang")
    workload(client, "ended", "Finished")
    return client


async def describe_change(client, kind, name, **wish):
    return sentence(await change(client, JobQuery(kind, "ns", name), StopRequest(**wish)))


@pytest.mark.parametrize(
    ("subject", "wish", "message"),
    [
        pytest.param(
            ("ClusterQueue", "team-a"),
            {"stop": True},
            "ClusterQueue team-a: stopPolicy None -> Hold: no workload is admitted; 3 workloads"
            " with quota continue, `--drain` would evict them",
            id="hold",
        ),
        pytest.param(
            ("ClusterQueue", "team-a"),
            {"stop": True, "drain": True},
            "ClusterQueue team-a: stopPolicy None -> HoldAndDrain: no workload is admitted;"
            " 3 workloads with quota are evicted",
            id="drain",
        ),
        pytest.param(
            ("LocalQueue", "train"),
            {"stop": True},
            "LocalQueue ns/train: stopPolicy None -> Hold: no workload is admitted",
            id="local-queue",
        ),
        pytest.param(
            ("ClusterQueue", "team-b"),
            {"stop": False},
            "ClusterQueue team-b: stopPolicy Hold -> None: workloads are admitted again",
            id="resumed",
        ),
        pytest.param(
            ("ClusterQueue", "team-b"),
            {"stop": True},
            "ClusterQueue team-b: stopPolicy is Hold already",
            id="stopped-already",
        ),
        pytest.param(
            ("Job", "runs"),
            {"stop": True},
            "Workload ns/job-runs of Job/runs: active true -> false: it is evicted: its pods are"
            " stopped, and its quota becomes free",
            id="job-with-quota",
        ),
        pytest.param(
            ("Pod", "p"),
            {"stop": True},
            "Workload ns/gang of Pod/p: active true -> false: it gets no quota until it is resumed",
            id="pod-of-a-group",
        ),
        pytest.param(
            ("PodGroup", "gang"),
            {"stop": False},
            "Workload ns/gang of PodGroup/gang: active is true already",
            id="group",
        ),
    ],
)
async def test_what_is_changed_is_reported_with_its_effect(client, subject, wish, message):
    assert await describe_change(client, *subject, **wish) == message


@pytest.mark.parametrize(
    ("subject", "wish", "body"),
    [
        pytest.param(
            ("ClusterQueue", "team-a"), {"stop": True}, {"stopPolicy": "Hold"}, id="queue"
        ),
        pytest.param(("Workload", "gang"), {"stop": True}, {"active": False}, id="workload"),
    ],
)
async def test_only_the_one_field_is_written(client, subject, wish, body):
    await describe_change(client, *subject, **wish)

    (write,) = client.writes
    assert (write.verb, write.subresource, write.body) == ("patch", "", {"spec": body})


async def test_nothing_is_stored_by_a_dry_run(client):
    message = await describe_change(client, "ClusterQueue", "team-a", stop=True, dry_run=True)

    assert message.startswith("ClusterQueue team-a: stopPolicy None -> Hold (dry run): ")
    assert "stopPolicy" not in client.store.get(r.CLUSTER_QUEUES, "", "team-a")["spec"]


async def test_the_users_reason_is_written_before_the_workload_is_deactivated(client):
    await describe_change(client, "Job", "runs", stop=True, reason="its data set moves")

    reason_write, stopped = client.writes
    kinds = {each["type"]: each for each in reason_write.body["status"]["conditions"]}
    assert reason_write.subresource == "status"
    assert set(kinds) == {"QuotaReserved", "DeactivationTarget"}
    assert kinds["DeactivationTarget"]["message"] == "its data set moves"
    assert stopped.body == {"spec": {"active": False}}


async def test_a_status_that_changed_meanwhile_is_written_again(client):
    client.fail(ConflictError("changed"), verb="patch")

    await describe_change(client, "Workload", "gang", stop=True, reason="why")

    assert [write.subresource for write in client.writes] == ["status", "status", ""]


async def test_without_the_right_to_give_a_reason_nothing_is_stopped(client):
    client.fail(ForbiddenError("user cannot patch"), verb="patch")

    with pytest.raises(ForbiddenError) as error:
        await describe_change(client, "Workload", "gang", stop=True, reason="why")

    assert error.value.hint == "`--reason` needs the right to `patch` `workloads/status`"
    assert len(client.writes) == 1


@pytest.mark.parametrize(
    ("subject", "wish", "message", "hint"),
    [
        pytest.param(
            ("ClusterQueue", "taem-a"),
            {"stop": True},
            "there is no ClusterQueue `taem-a`",
            "did you mean `team-a`?",
            id="mistyped",
        ),
        pytest.param(
            ("ClusterQueue", "xyz"),
            {"stop": True},
            "there is no ClusterQueue `xyz`",
            "there are team-a, team-b",
            id="unknown",
        ),
        pytest.param(
            ("LocalQueue", "xyz"),
            {"stop": True},
            "there is no LocalQueue `xyz` in namespace ns",
            "there are train",
            id="in-a-namespace",
        ),
        pytest.param(
            ("Job", "none"),
            {"stop": True},
            "Job ns/none not found",
            "`kubectl get jobs -n ns` lists them",
            id="no-job",
        ),
        pytest.param(
            ("Job", "stray"),
            {"stop": True},
            "Job ns/stray has no Workload, so there is nothing to stop or resume",
            "`policyd why job/stray -n ns` says what keeps it out of the queues",
            id="in-no-queue",
        ),
        pytest.param(
            ("Workload", "ended"), {"stop": True}, "Workload ns/ended has finished", None, id="done"
        ),
        pytest.param(
            ("ClusterQueue", "team-a"),
            {"stop": True, "reason": "why"},
            "a ClusterQueue has no field for a reason",
            "leave `--reason` out: only Workloads and jobs can have one",
            id="no-place-for-a-reason",
        ),
    ],
)
async def test_what_cannot_be_stopped_is_an_error_that_says_what_can(
    client, subject, wish, message, hint
):
    with pytest.raises((NotStoppableError, UnknownNameError, JobNotFoundError)) as error:
        await describe_change(client, *subject, **wish)

    assert (str(error.value), error.value.hint) == (message, hint)
    assert client.writes == []


async def test_without_the_right_to_list_only_the_missing_name_is_reported(client):
    client.fail(ForbiddenError("cannot list"), verb="page")

    with pytest.raises(UnknownNameError) as error:
        await describe_change(client, "ClusterQueue", "taem-a", stop=True)

    assert error.value.hint is None


async def test_none_of_several_is_stopped_if_one_cannot_be(client):
    subjects = [JobQuery("ClusterQueue", "ns", name) for name in ("team-a", "nope")]

    with pytest.raises(UnknownNameError):
        await change_all(client, subjects, StopRequest(stop=True))

    assert "stopPolicy" not in client.store.get(r.CLUSTER_QUEUES, "", "team-a")["spec"]


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        pytest.param("cq", "ClusterQueue", id="short"),
        pytest.param("localqueues.kueue.x-k8s.io", "LocalQueue", id="with-its-group"),
        pytest.param("wl", "Workload", id="workload"),
        pytest.param("rayjob", "RayJob", id="job"),
    ],
)
async def test_kinds_are_called_as_kubectl_takes_them(word, kind):
    assert queue_or_job_kind(word) == kind


async def test_a_mistyped_kind_names_the_right_one():
    with pytest.raises(JobNotFoundError, match="`clusterqeue` is not a kind") as error:
        queue_or_job_kind("clusterqeue")

    assert error.value.hint == "did you mean `clusterqueue`?"


async def test_a_table_has_a_column_for_each_part(client):
    subjects = [JobQuery("ClusterQueue", "ns", "team-a"), JobQuery("Job", "ns", "runs")]
    changes = await change_all(client, subjects, StopRequest(stop=True))

    head, queue, job = lines(changes, wide=True)

    assert head.split() == [
        *("KIND", "NAMESPACE", "NAME", "JOB", "FIELD", "BEFORE", "AFTER", "STORED", "EFFECT")
    ]
    assert queue.split()[:8] == [
        *("ClusterQueue", "-", "team-a", "-", "stopPolicy", "None", "Hold", "yes")
    ]
    assert job.split()[3:7] == ["Job/runs", "active", "true", "false"]

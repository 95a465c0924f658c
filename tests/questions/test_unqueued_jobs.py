"""A job that no queue has: what keeps it out is said, and what its user can do."""

import pytest

from policyd.cli.questions.why import snapshot_for
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError, UnreachableError
from policyd.questions.unqueued_jobs import (
    JOBS,
    JobNotFoundError,
    JobQuery,
    kind_of,
    resource_of_job,
)
from policyd.questions.why import why
from policyd.testing import FakeClient
from tests.alloc.builders import queue
from tests.alloc.builders import workload as workload_value
from tests.snapshot.taking import snapshot
from tests.status.test_pending_reasons import settled

pytestmark = pytest.mark.anyio

QUEUE = "kueue.x-k8s.io/queue-name"
API = "kueue.x-k8s.io/v1beta2"


def owned(kind, name, api="batch/v1"):
    owner = {"apiVersion": api, "kind": kind, "name": name, "uid": f"{kind}-{name}"}
    return [{**owner, "controller": True}]


def put(client, resource, name, spec=None, *, namespace="ns", status=None, **metadata):
    uid = f"{resource.kind}-{name}"
    body = {"metadata": {"name": name, "namespace": namespace, "uid": uid, **metadata}}
    client.store.put(resource, {**body, "spec": spec or {}, "status": status or {}})


@pytest.fixture
def client():
    """Two LocalQueues, one of which leads nowhere; no snapshot is served."""
    client = FakeClient()
    put(client, r.LOCAL_QUEUES, "train", {"clusterQueue": "cq"})
    put(client, r.LOCAL_QUEUES, "lost", {"clusterQueue": "gone"})
    put(client, r.CLUSTER_QUEUES, "cq", namespace="")
    return client


def workload(client, name="w", *, active=True, owner="j", **conditions):
    put(
        client,
        r.WORKLOADS,
        name,
        {"queueName": "train", "active": active, "podSets": []},
        ownerReferences=owned("Job", owner),
        status={
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": f"Why{kind}",
                    "message": f"said of {kind}",
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                }
                for kind, status in conditions.items()
            ]
        },
    )


async def asked(client, kind="Job", name="j"):
    return await why(client, JobQuery(kind, "ns", name), await snapshot_for(client, "ns"))


@pytest.mark.parametrize(
    ("labels", "message", "user"),
    [
        pytest.param(
            {},
            f"it is in no queue: it has no label {QUEUE}; LocalQueues of ns: lost, train",
            f"create it again with the label `{QUEUE}: lost`",
            id="no-label",
        ),
        pytest.param(
            {QUEUE: "trian"},
            "LocalQueue trian doesn't exist; namespace ns has lost, train",
            "did you mean `train`?",
            id="mistyped-queue",
        ),
        pytest.param(
            {QUEUE: "lost"},
            "ClusterQueue gone of LocalQueue lost doesn't exist",
            "ask an administrator to create it, or use another LocalQueue",
            id="no-cluster-queue",
        ),
        pytest.param(
            {QUEUE: "train"},
            "it has no Workload: the controller has not made one yet, or cannot",
            "see its events: `kubectl events --for job/j -n ns`",
            id="no-workload",
        ),
    ],
)
async def test_what_keeps_a_job_out_of_the_queues_is_reported(client, labels, message, user):
    put(client, r.JOBS, "j", labels=labels)

    answer = await asked(client)

    assert (answer.state, answer.message, answer.user) == ("NotQueued", message, user)


@pytest.mark.parametrize(
    ("owner", "why_not"),
    [
        pytest.param(None, "does not exist", id="missing"),
        pytest.param("other", "belongs to another", id="taken"),
    ],
)
async def test_a_job_waits_for_the_workload_that_it_names(client, owner, why_not):
    labels = {QUEUE: "train", "kueue.x-k8s.io/prebuilt-workload-name": "made"}
    put(client, r.JOBS, "j", labels=labels)
    if owner:
        workload(client, "made", owner=owner)

    answer = await asked(client)

    assert answer.message == f"it waits for the prebuilt Workload made, which {why_not}"


async def test_a_job_whose_pods_queue_as_a_group_has_the_answer_of_its_workload(client):
    resource = JOBS["Job.batch.volcano.sh"]
    put(client, resource, "j", labels={QUEUE: "train"})
    put(client, r.JOBS, "j", labels={QUEUE: "lost"})
    owner = owned("Job", "j", resource.api_version)
    owner[0]["uid"] = "Job-j"
    put(client, r.WORKLOADS, "group", {"queueName": "train", "podSets": []}, ownerReferences=owner)
    of = settled(queue("cq", gpu=8), workload_value("ns/group", "cq", gpu=9))

    answer = await why(client, JobQuery("Job.batch.volcano.sh", "ns", "j"), snapshot(of))

    assert (answer.kind, answer.name, answer.workload) == ("Job.batch.volcano.sh", "j", "group")
    assert (answer.state, answer.ahead, answer.reason) == ("Pending", 0, "ExceedsMaxQuota")


@pytest.mark.parametrize(
    ("active", "policy", "expected"),
    [
        pytest.param(False, "None", "`policyd resume job/j -n ns`", id="the-job-is-stopped"),
        pytest.param(True, "Hold", "`policyd resume localqueue/train -n ns`", id="its-queue-is"),
        pytest.param(True, "None", "", id="neither"),
    ],
)
async def test_what_is_stopped_is_to_be_resumed(client, active, policy, expected):
    put(client, r.JOBS, "j", labels={QUEUE: "train"})
    put(client, r.LOCAL_QUEUES, "train", {"clusterQueue": "cq", "stopPolicy": policy})
    workload(client, active=active)

    assert (await asked(client)).user == expected


async def test_a_stopped_queue_is_named_with_who_stopped_it_and_since_when(client):
    put(client, r.JOBS, "j", labels={QUEUE: "train"})
    active = {
        "type": "Active",
        "status": "False",
        "reason": "Stopped",
        "lastTransitionTime": "2026-01-02T03:00:00Z",
    }
    queue_spec = {"clusterQueue": "cq", "stopPolicy": "Hold"}
    put(client, r.LOCAL_QUEUES, "train", queue_spec, status={"conditions": [active]})
    workload(client, QuotaReserved="False")

    assert (await asked(client)).message == (
        "an administrator stopped LocalQueue train at 2026-01-02T03:00:00Z: its stopPolicy is Hold"
    )


@pytest.mark.parametrize(
    ("given", "answered", "reason"),
    [
        pytest.param({"QuotaReserved": "False"}, "Pending", "WhyQuotaReserved", id="pending"),
        pytest.param(
            {"QuotaReserved": "True"}, "QuotaReserved", "WhyQuotaReserved", id="with-quota"
        ),
        pytest.param(
            {"QuotaReserved": "True", "Admitted": "True"},
            "Admitted",
            "WhyQuotaReserved",
            id="admitted",
        ),
        pytest.param({"Finished": "True"}, "Finished", "WhyFinished", id="finished"),
        pytest.param({"active": False}, "Inactive", "", id="inactive-without-a-word"),
    ],
)
async def test_a_workload_that_no_snapshot_has_is_identified_by_its_conditions(
    client, given, answered, reason
):
    put(client, r.JOBS, "j", labels={QUEUE: "train"})
    workload(client, "of-another", owner="other", Finished="True")
    workload(client, **given)

    answer = await asked(client)

    assert (answer.state, answer.reason, answer.workload) == (answered, reason, "w")
    assert (answer.cluster_queue, answer.local_queue) == ("cq", "train")
    if reason:
        assert answer.message == f"said of {reason.removeprefix('Why')}"
        assert answer.since == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(
    ("evicted", "pending", "message"),
    [
        pytest.param("DeactivatedDueToRequeuingLimitExceeded", "Pending", "E", id="by-eviction"),
        pytest.param("Preempted", "Deactivated", "Q", id="long-after-an-eviction"),
        pytest.param("Preempted", "Pending", "its Workload is deactivated", id="not-written-yet"),
    ],
)
async def test_a_deactivated_workload_does_not_have_the_reason_of_an_earlier_eviction(
    client, evicted, pending, message
):
    put(client, r.JOBS, "j", labels={QUEUE: "train"})
    conditions = [
        {"type": "Evicted", "status": "True", "reason": evicted, "message": "E"},
        {"type": "QuotaReserved", "status": "False", "reason": pending, "message": "Q"},
    ]
    spec = {"queueName": "train", "active": False, "podSets": []}
    owner = owned("Job", "j")
    put(client, r.WORKLOADS, "w", spec, status={"conditions": conditions}, ownerReferences=owner)

    assert (await asked(client)).message.startswith(message)


@pytest.mark.parametrize(("kind", "name"), [("Pod", "b"), ("PodGroup", "ring")])
async def test_an_incomplete_group_is_reported_with_how_many_pods_are_there(client, kind, name):
    group = "kueue.x-k8s.io/pod-group-name"
    total = {f"{group.removesuffix('name')}total-count": "3"}
    put(client, r.PODS, "a", labels={QUEUE: "train"}, annotations={**total, group: "ring"})
    put(client, r.PODS, "b", labels={QUEUE: "train", group: "ring"}, annotations=total)
    put(
        client,
        r.PODS,
        "failed",
        labels={QUEUE: "train", group: "ring"},
        status={"phase": "Failed"},
    )
    put(client, r.PODS, "other", labels={QUEUE: "train", group: "rang"}, annotations=total)

    answer = await asked(client, kind, name)

    assert answer.message == "its pod group ring is incomplete: 2 of 3 pods are there"
    assert answer.user == f"create the others, with the label `{group}: ring`"


async def test_a_user_who_may_not_list_pods_is_answered_without_them(client):
    group = "kueue.x-k8s.io/pod-group-name"
    put(client, r.PODS, "a", labels={QUEUE: "train", group: "ring"})
    client.fail(ForbiddenError("no"), verb="page", plural="pods")

    assert (await asked(client, "Pod", "a")).message.startswith("it has no Workload")


async def test_a_group_of_which_nothing_is_there_is_not_found(client):
    with pytest.raises(JobNotFoundError, match="Workload ns/ring not found"):
        await asked(client, "PodGroup", "ring")


async def test_a_pod_of_a_job_of_another_is_answered_for_by_the_outermost(client):
    sets = r.Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
    put(client, sets, "s", labels={QUEUE: "trian"})
    put(client, r.JOBS, "j", ownerReferences=owned("JobSet", "s", "jobset.x-k8s.io/v1alpha2"))
    put(client, r.PODS, "p", ownerReferences=owned("Job", "j"))

    answer = await asked(client, "Pod", "p")

    assert answer.message.startswith("LocalQueue trian doesn't exist")
    assert answer.parts == ("Pod p belongs to Job j", "Job j belongs to JobSet s")


@pytest.mark.parametrize(
    ("group", "kind", "part"), [("apps", "Deployment", "pod"), ("batch", "CronJob", "Job")]
)
async def test_a_kind_whose_parts_are_queued_says_so(client, group, kind, part):
    put(client, r.Resource(group, "v1", f"{kind.lower()}s", kind), "d")

    answer = await asked(client, kind_of(kind.lower()), "d")

    assert answer.message == f"a {kind} is not queued as a whole: its {part}s are"
    assert f"`policyd why {part.lower()}/NAME -n ns`" in answer.user


async def test_without_a_snapshot_the_user_is_warned_and_still_answered(client, capsys):
    put(client, r.JOBS, "j")

    assert (await asked(client)).state == "NotQueued"
    assert "warning: the cluster serves no queue snapshots" in capsys.readouterr().err


async def test_an_api_server_that_does_not_answer_is_an_error(client):
    client.fail(UnreachableError("cannot connect"), times=9)

    with pytest.raises(UnreachableError):
        await asked(client)


async def test_a_job_that_is_not_there_is_an_error_that_says_where_to_look(client):
    with pytest.raises(JobNotFoundError, match="Job ns/none not found") as error:
        await asked(client, name="none")

    assert error.value.hint == "`kubectl get jobs -n ns` lists them"


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("Job.batch.volcano.sh", "Job.batch.volcano.sh"),
        ("job.batch.volcano.sh", "Job.batch.volcano.sh"),
        ("jobs.batch.volcano.sh", "Job.batch.volcano.sh"),
        ("vcjob", "Job.batch.volcano.sh"),
        ("job.batch", "Job"),
        ("appwrapper", "AppWrapper"),
        ("sparkapplications", "SparkApplication"),
        ("rs.apps", "ReplicaSet"),
        pytest.param("job", "Job", id="kind"),
        pytest.param("Jobs", "Job", id="plural"),
        pytest.param("jobs.batch", "Job", id="with-its-group"),
        pytest.param("po", "Pod", id="short"),
        pytest.param("wl", "Workload", id="short-of-kueue"),
        pytest.param("podgroup", "PodGroup", id="group"),
        pytest.param("job.batch.volcano.sh", "Job.batch.volcano.sh", id="of-another-group"),
        pytest.param("vcjob", "Job.batch.volcano.sh", id="short-of-volcano"),
        pytest.param("rs", "ReplicaSet", id="short-of-kubernetes"),
        pytest.param("pytorchjobs.kubeflow.org", "PyTorchJob", id="of-an-operator"),
    ],
)
async def test_kinds_are_called_as_kubectl_takes_them(word, kind):
    assert kind_of(word) == kind


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        pytest.param("jobb", "did you mean `job`?", id="mistyped"),
        pytest.param("job.apps", "did you mean `job`?", id="of-another-group"),
        pytest.param("secret", "kinds: appwrapper, ", id="never-in-a-queue"),
    ],
)
async def test_a_kind_that_cannot_be_in_a_queue_is_an_error(word, hint):
    with pytest.raises(JobNotFoundError, match=f"`{word}` is not a kind") as error:
        kind_of(word)

    assert error.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("api_version", "kind", "plural"),
    [
        ("batch/v1", "Job", "jobs"),
        ("batch.volcano.sh/v1alpha1", "Job", "jobs"),
        ("batch/v2", "Job", None),
        ("v1", "ConfigMap", None),
    ],
)
def test_a_manifest_is_of_the_kind_of_its_group(api_version, kind, plural):
    resource = resource_of_job({"apiVersion": api_version, "kind": kind})

    assert resource == plural if plural is None else resource.plural == plural
    assert resource is None or resource.api_version == api_version

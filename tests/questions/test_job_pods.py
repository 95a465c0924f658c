"""Why pods of a job that has quota do not run: refused, gated, not scheduled, or missing."""

import pytest

from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError
from policyd.questions.job_pods import explained
from policyd.questions.unqueued_jobs import JOBS, JobQuery
from policyd.questions.why import why
from policyd.testing import FakeClient
from policyd.workload.pod_obstacles import obstacle_text, refusal_in
from tests.questions.test_unqueued_jobs import QUEUE, owned, put

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0
DENIED = (
    'Error creating: admission webhook "validate0.admission.policyd.io" denied the request:'
    " no-latest: use a tag"
)


def admitted(client, *, pods=2, status=None):
    """Put a Job with an admitted Workload."""
    put(client, r.JOBS, "j", labels={QUEUE: "train"})
    since = {"lastTransitionTime": "2026-01-02T03:05:00Z", "message": "has it", "reason": "R"}
    conditions = [{"type": k, "status": "True", **since} for k in ("QuotaReserved", "Admitted")]
    assignments = [{"name": "main", "count": pods}]
    put(
        client,
        r.WORKLOADS,
        "w",
        {"queueName": "train", "podSets": [{"name": "main", "count": pods}]},
        ownerReferences=owned("Job", "j"),
        status={
            "conditions": conditions,
            "admission": {"clusterQueue": "cq", "podSetAssignments": assignments},
            **(status or {}),
        },
    )


def pod(client, name, spec=None, *, owner=("Job", "j"), at="2026-01-02T03:06:00Z", **status):
    put(
        client, r.PODS, name, spec, ownerReferences=owned(*owner), creationTimestamp=at,
        status={"phase": "Pending", **status},
    )  # fmt: skip


def event(client, message, *, kind="Job", name="j", reason="FailedCreate", by="", api="batch/v1"):
    about = {"apiVersion": api, "kind": kind, "name": name, "uid": f"{kind}-{name}"}
    body = {
        "metadata": {"name": f"{name}.{reason}", "namespace": "ns", "uid": f"event-{reason}"},
        "involvedObject": {**about, "namespace": "ns"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": "2026-01-02T03:07:00Z",
        "source": {"component": by},
    }
    client.store.put(r.EVENTS, body)


@pytest.fixture
def client():
    client = FakeClient()
    put(client, r.LOCAL_QUEUES, "train", {"clusterQueue": "cq"})
    put(client, r.CLUSTER_QUEUES, "cq", namespace="")
    return client


async def asked(client, kind="Job", name="j"):
    return await explained(client, await why(client, JobQuery(kind, "ns", name), None))


def texts(answer):
    return [obstacle_text(each, NOW) for each in answer.obstacles]


async def test_checks_that_a_job_waits_for_are_named_and_the_workers_that_do_not_admit_it(client):
    admitted(client)
    workload = client.store.get(r.WORKLOADS, "ns", "w")
    workload["status"] |= {
        "conditions": workload["status"]["conditions"][:1],
        "nominatedClusterNames": ["east", "west"],
        "admissionChecks": [
            {"name": "away", "state": "Pending", "message": ""},
            {"name": "budget", "state": "Retry", "message": "later"},
            {"name": "capacity", "state": "Ready", "message": "there"},
        ],
    }
    client.store.put(r.WORKLOADS, workload)

    answer = await asked(client)

    assert answer.state == "QuotaReserved"
    assert answer.message.endswith("; no worker has admitted its copy so far: east, west")
    assert texts(answer) == [
        "held by the admission check away: Pending",
        "held by the admission check budget: Retry: later",
    ]


async def test_a_policy_that_refuses_the_pods_is_quoted(client):
    admitted(client)
    event(client, DENIED)
    event(client, DENIED.replace("no-latest", "other"), name="another", reason="Failed")

    answer = await asked(client)

    (found,) = answer.obstacles
    assert (found.type, found.what, found.message) == ("Refused", "no-latest", "use a tag")
    assert found.last == "2026-01-02T03:07:00Z"
    assert answer.user == "correct the pod template, and create the job again"
    assert texts(answer)[0].startswith("refused by policy no-latest: use a tag; last tried ")


async def test_a_refusal_of_before_all_pods_were_there_is_not_shown(client):
    admitted(client, pods=1)
    event(client, DENIED)
    pod(client, "j-0", {"nodeName": "n"}, phase="Running")

    assert (await asked(client)).obstacles == ()


async def test_a_refusal_is_found_through_what_the_job_has_made(client):
    put(client, JOBS["Deployment"], "d")
    put(client, JOBS["ReplicaSet"], "d-1", ownerReferences=owned("Deployment", "d", "apps/v1"))
    event(client, DENIED, kind="ReplicaSet", name="d-1", api="apps/v1")

    answer = await asked(client, "Deployment", "d")
    assert [each.what for each in answer.obstacles] == ["no-latest"]

    pod(client, "d-1-x", owner=("ReplicaSet", "d-1", "apps/v1"), at="2026-01-02T03:08:00Z")
    assert (await asked(client, "Deployment", "d")).obstacles == ()


GATES = {
    "kueue.x-k8s.io/admission": "the controller has not let it start",
    "kueue.x-k8s.io/topology": "the controller has not chosen its node yet",
    "example.com/x": "it is not a gate of the queue; the component that added it has to remove it",
}


@pytest.mark.parametrize(("gate", "message"), [*GATES.items()], ids=[*GATES])
async def test_gates_that_stay_are_named(client, gate, message):
    admitted(client)
    for name in ("j-0", "j-1"):
        pod(client, name, {"schedulingGates": [{"name": gate}]})

    (text,) = texts(await asked(client))

    assert text == f"2, such as j-0, are held by the scheduling gate {gate}: {message}"


async def test_what_the_controller_warned_of_a_gated_pod_is_quoted(client):
    admitted(client, pods=1)
    pod(client, "j-0", {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})
    message = "asks for more than its pod set was admitted with; it stays held"
    event(client, message, kind="Pod", name="j-0", reason="MoreThanAdmitted", by="policyd")
    event(client, "not of queues", kind="Pod", name="j-0", reason="Other", by="kubelet")

    (found,) = (await asked(client)).obstacles

    assert (found.type, found.message) == ("Gated", f"MoreThanAdmitted: {message}")


async def test_pods_that_no_node_takes_have_the_words_of_the_scheduler(client):
    admitted(client)
    full = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    for name in ("j-0", "j-1"):
        pod(
            client, name, {"nodeSelector": {"gpu": "h200"}},
            conditions=[{**condition, "message": full}],
        )  # fmt: skip

    assert texts(await asked(client)) == [
        f"2, such as j-0, are not scheduled: {full[:-1]}; the pod selects nodes with gpu=h200"
    ]


async def test_containers_that_wait_are_named_and_those_that_start_are_not(client):
    admitted(client)
    for name, reason in (("j-0", "ImagePullBackOff"), ("j-1", "ContainerCreating")):
        waiting = {"reason": reason, "message": "no such image"}
        states = [{"name": "main", "state": {"waiting": waiting}}]
        pod(client, name, {"nodeName": "n"}, containerStatuses=states)

    assert texts(await asked(client)) == [
        "j-0 is waiting, ImagePullBackOff: container main: no such image"
    ]


async def test_a_job_without_pods_is_reported(client):
    admitted(client)

    assert texts(await asked(client)) == ["it has no pods yet"]


async def test_a_job_that_another_cluster_runs_is_not_explained_here(client):
    admitted(client, status={"clusterName": "west"})

    answer = await asked(client)

    assert (answer.obstacles, answer.left_out) == ((), ("pods: they are on the cluster west",))


@pytest.mark.parametrize(
    ("plural", "left_out"),
    [("pods", "pods: no"), ("events", "refusals of pods: no")],
)
async def test_a_missing_right_is_a_sentence(client, plural, left_out):
    admitted(client)
    client.fail(ForbiddenError("no"), verb="page", plural=plural)

    assert (await asked(client)).left_out == (left_out,)


async def test_without_the_right_to_read_the_job_its_pods_are_not_known(client):
    put(client, r.JOBS, "j", labels={QUEUE: "lost"})
    answer = await why(client, JobQuery("Job", "ns", "j"), None)
    client.fail(ForbiddenError("no"), verb="get", plural="jobs")

    assert (await explained(client, answer)).left_out == ("pods: no",)


async def test_what_is_forbidden_to_a_pod_itself_is_not_a_refusal(client):
    put(client, r.PODS, "p", {"nodeName": "n"})
    forbidden = 'secrets "s" is forbidden: no'
    event(client, forbidden, kind="Pod", name="p", reason="FailedMount", api="v1")

    assert (await asked(client, "Pod", "p")).obstacles == ()


async def test_pods_of_a_job_that_waits_are_not_read(client):
    put(client, r.JOBS, "j", labels={QUEUE: "train"})
    put(client, r.WORKLOADS, "w", {"queueName": "train"}, ownerReferences=owned("Job", "j"))
    pod(client, "j-0", {"schedulingGates": [{"name": "example.com/x"}]})

    answer = await asked(client)

    assert (answer.state, answer.obstacles) == ("Pending", ())


async def test_a_job_without_a_workload_has_the_warning_of_the_controller(client):
    put(client, r.JOBS, "j", labels={QUEUE: "train"})
    missing = 'WorkloadPriorityClass "hgih" not found'
    event(client, missing, reason="WorkloadPriorityClassNotFound", by="policyd-controller")

    answer = await asked(client)

    assert answer.message == f"it has no Workload: {missing}"
    assert answer.user.endswith("`kubectl get workloadpriorityclasses`")


@pytest.mark.parametrize(
    ("message", "policy", "why"),
    [
        pytest.param(DENIED, "no-latest", "use a tag", id="webhook"),
        pytest.param(
            "Error creating: pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding"
            " 'b' denied request: too big",
            "p",
            "too big",
            id="native",
        ),
        pytest.param(
            'Error creating: pods "a" is forbidden: no PriorityClass with name hgih was found',
            "",
            "no PriorityClass with name hgih was found",
            id="priority-class",
        ),
        pytest.param(
            'Error creating: admission webhook "v.kyverno.svc" denied the request: no',
            "",
            'admission webhook "v.kyverno.svc" denied the request: no',
            id="other-webhook",
        ),
    ],
)
def test_refusals_are_read(message, policy, why):
    assert refusal_in(message) == (policy, why)


def test_a_message_without_a_refusal_is_none():
    assert refusal_in("Back-off pulling image") is None

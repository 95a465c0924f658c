"""What the webhook does to new jobs and pods."""

import copy
import re
from dataclasses import replace

import pytest

from policyd.jobs.integrations import Integrations
from policyd.jobs.rules.defaults import TOPOLOGIES, default_on_create
from policyd.jobs.rules.surroundings import NOWHERE, JobContext
from policyd.jobs.shape import MisshapenError
from policyd.jobs.topology import POD_INDEX_OFFSET, POD_SET_GROUP_NAME
from policyd.patch.draft import Draft

QUEUE = {"kueue.x-k8s.io/queue-name": "lq"}
ADMISSION = {"name": "kueue.x-k8s.io/admission"}
TOPOLOGY = {"name": "kueue.x-k8s.io/topology"}
GATES = [ADMISSION, TOPOLOGY]

MAKER = "system:kube-controller-manager"
"""Whose word counts for what Kubernetes' own kinds own."""


def pod(labels=QUEUE, annotations=None, owners=(), gates=()):
    metadata = {"name": "p", "labels": dict(labels), "ownerReferences": list(owners)}
    if annotations:
        metadata["annotations"] = annotations
    spec = {"containers": [{"name": "c", "resources": {}}]}
    if gates:
        spec["schedulingGates"] = list(gates)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def job(labels=QUEUE, owners=(), **spec):
    metadata = {"name": "j", "labels": dict(labels), "ownerReferences": list(owners)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def owner(kind, api_version, *, controller=True):
    return {"kind": kind, "apiVersion": api_version, "name": "o", "controller": controller}


def defaulted(obj, surroundings=NOWHERE):
    draft = Draft(obj)
    group = obj["apiVersion"].rpartition("/")[0]
    surroundings = replace(surroundings, account=MAKER)
    default_on_create(draft, group=group, kind=obj["kind"], surroundings=surroundings)
    return draft


@pytest.mark.parametrize(
    ("obj", "suspended"),
    [
        pytest.param(job(), True, id="with-a-queue"),
        pytest.param(job(suspend=False), True, id="that-would-start"),
        pytest.param(job(labels={}), None, id="without-a-queue"),
        pytest.param(job(owners=[owner("Job", "batch/v1")]), None, id="of-a-job-that-is-held"),
        pytest.param(job(owners=[owner("CronJob", "batch/v1")]), True, id="of-a-cron-job"),
    ],
)
def test_jobs_begin_suspended(obj, suspended):
    assert defaulted(obj).object["spec"].get("suspend") is suspended


@pytest.mark.parametrize(
    ("obj", "queue"),
    [
        pytest.param(job(labels={}), "default", id="job"),
        pytest.param(job(), "lq", id="job-that-names-one"),
        pytest.param(job(labels={}, owners=[owner("CronJob", "batch/v1")]), "default", id="cron"),
        pytest.param(job(labels={}, owners=[owner("Job", "batch/v1")]), None, id="job-of-a-job"),
        pytest.param(pod(labels={}), "default", id="pod"),
        pytest.param(pod(labels={}, owners=[owner("Job", "batch/v1")]), None, id="pod-of-a-job"),
        pytest.param(
            pod(labels={}, owners=[owner("ReplicaSet", "apps/v1")]), None, id="pod-of-a-deployment"
        ),
        pytest.param(
            pod(labels={}, owners=[owner("StatefulSet", "apps/v1")]), None, id="pod-of-a-set"
        ),
        pytest.param(
            pod(labels={}, owners=[owner("DaemonSet", "apps/v1")]), "default", id="pod-of-a-daemon"
        ),
    ],
)
def test_objects_without_a_queue_get_that_of_their_namespace_unless_their_owner_could(obj, queue):
    draft = defaulted(obj, JobContext(default_queue=True))

    metadata = draft.object["metadata"]
    assert metadata["labels"].get("kueue.x-k8s.io/queue-name") == queue
    held = draft.object["spec"].get("suspend") or draft.object["spec"].get("schedulingGates")
    assert bool(held) == (queue is not None)


@pytest.mark.parametrize("labels", [{}, QUEUE], ids=["without-a-queue", "with-a-queue"])
def test_a_new_train_job_gets_the_patch_that_cannot_be_added_later(labels):
    api_version = "trainer.kubeflow.org/v1alpha1"
    spec = defaulted({**job(labels), "apiVersion": api_version, "kind": "TrainJob"}).object["spec"]

    assert [each["manager"] for each in spec["runtimePatches"]] == ["kueue.x-k8s.io/manager"]
    assert spec.get("suspend", False) is bool(labels)


def test_a_pod_with_a_queue_is_gated_and_stays_until_the_queue_lets_it_go():
    changed = defaulted(pod()).object

    assert changed["spec"]["schedulingGates"] == GATES
    assert changed["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
    assert changed["metadata"]["annotations"] == {"kueue.x-k8s.io/role-hash": "7aa6c7b8"}
    assert changed["metadata"]["finalizers"] == ["kueue.x-k8s.io/managed"]


@pytest.mark.parametrize(
    ("obj", "gates"),
    [
        pytest.param(pod(labels={}), None, id="without-a-queue"),
        pytest.param(pod(owners=[owner("Job", "batch/v1")]), None, id="of-a-job"),
        pytest.param(pod(owners=[owner("ReplicaSet", "apps/v1")]), GATES, id="of-a-set"),
        pytest.param(
            pod(owners=[owner("Job", "batch/v1", controller=False)]), GATES, id="not-managed"
        ),
        pytest.param(pod(gates=[ADMISSION]), GATES, id="gated-already"),
        pytest.param(
            pod(gates=[{"name": "mine"}]), [{"name": "mine"}, *GATES], id="gated-otherwise"
        ),
        pytest.param(
            pod(annotations={"kueue.x-k8s.io/podset-required-topology": "rack"}),
            GATES,
            id="that-wants-a-place",
        ),
        pytest.param(
            pod(annotations={"kueue.x-k8s.io/pod-suspending-parent": "deployment"}),
            GATES,
            id="of-a-deployment",
        ),
    ],
)
def test_gates_of_pods(obj, gates):
    assert defaulted(obj).object["spec"].get("schedulingGates") == gates


def test_the_label_that_holds_the_index_of_a_pod_is_copied():
    named = {"kueue.x-k8s.io/pod-group-pod-index-label": "rank"}
    changed = defaulted(pod(labels={**QUEUE, "rank": "3"}, annotations=named)).object

    assert changed["metadata"]["labels"]["kueue.x-k8s.io/pod-group-pod-index"] == "3"


@pytest.mark.parametrize("obj", [pod(), job()], ids=["pod", "job"])
def test_doing_it_twice_changes_nothing_more(obj):
    before = copy.deepcopy(obj)
    once = defaulted(obj).object

    assert defaulted(once).operations == []
    assert obj == before


def test_kinds_that_the_queue_does_not_know_are_left_alone():
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"labels": dict(QUEUE)}}

    assert defaulted(service).operations == []


@pytest.mark.parametrize(
    ("obj", "place"),
    [
        pytest.param({**pod(), "spec": {"containers": ["c"]}}, "$.spec.containers[0]", id="text"),
        pytest.param(
            {**pod(), "spec": {"initContainers": [{"resources": 1}]}},
            "$.spec.initContainers[0].resources",
            id="resources",
        ),
        pytest.param({**pod(), "spec": {"resources": []}}, "$.spec.resources", id="of-the-pod"),
        pytest.param(pod(gates=["a"]), "$.spec.schedulingGates[0]", id="gates"),
        pytest.param(pod(annotations=["a"]), "$.metadata.annotations", id="annotations"),
        pytest.param(pod(owners=["a"]), "$.metadata.ownerReferences[0]", id="owners-of-a-pod"),
        pytest.param(job(owners=["a"]), "$.metadata.ownerReferences[0]", id="owners-of-a-job"),
    ],
)
def test_objects_of_another_kind_are_refused_with_their_place(obj, place):
    with pytest.raises(MisshapenError, match=re.escape(f"- at `{place}`")):
        defaulted(obj)


def mpi_job(launcher=None, **spec):
    roles = {"Worker": {"template": {"spec": {}}}}
    if launcher is not None:
        roles["Launcher"] = {"template": {"metadata": {"annotations": launcher}, "spec": {}}}
    metadata = {"name": "m", "labels": dict(QUEUE)}
    spec = {"mpiReplicaSpecs": roles, **spec}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": metadata,
        "spec": spec,
    }


AS_WORKER = {"runLauncherAsWorker": True}
NO_TOPOLOGIES = JobContext(integrations=Integrations(off=frozenset({TOPOLOGIES})))


@pytest.mark.parametrize(
    ("obj", "surroundings", "first"),
    [
        pytest.param(mpi_job({}, **AS_WORKER), NOWHERE, "1", id="after-the-launcher"),
        pytest.param(mpi_job({}), NOWHERE, None, id="beside-the-launcher"),
        pytest.param(mpi_job(**AS_WORKER), NOWHERE, None, id="without-a-launcher"),
        pytest.param(
            mpi_job({POD_SET_GROUP_NAME: "g"}, **AS_WORKER), NOWHERE, None, id="in-its-group"
        ),
        pytest.param(mpi_job({}, **AS_WORKER), NO_TOPOLOGIES, None, id="placed-by-nobody"),
    ],
)
def test_workers_are_counted_from_the_launcher_on(obj, surroundings, first):
    worker = defaulted(obj, surroundings).object["spec"]["mpiReplicaSpecs"]["Worker"]

    notes = worker["template"].get("metadata", {}).get("annotations", {})
    assert notes.get(POD_INDEX_OFFSET) == first

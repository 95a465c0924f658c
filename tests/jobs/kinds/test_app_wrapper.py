"""What AppWrappers request, how they start and stop, and what is refused in them."""

import copy

import msgspec
import pytest

from policyd.jobs.injection import PodInjection, put_back, start
from policyd.jobs.kinds.app_wrapper import APP_WRAPPER
from policyd.jobs.rules.validation import validate_job
from policyd.patch.draft import Draft

PODS = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 3, "template": PODS}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, **PODS}
SERVE = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2, "template": PODS}}
FARM = {"apiVersion": "example.org/v1", "kind": "Farm", "spec": {"groups": [{"template": PODS}]}}
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}
CLUSTER = {"headGroupSpec": {"template": PODS}, "workerGroupSpecs": [{"template": PODS}]}
RAY = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "spec": {"rayClusterSpec": CLUSTER, "submissionMode": "K8sJobMode"},
}
FARMED = {"path": "template.spec.groups[0].template", "replicas": 4}


MPI = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "spec": {
        "mpiReplicaSpecs": {
            "Launcher": {"template": PODS},
            "Worker": {"replicas": 64, "template": PODS},
        }
    },
}
MPI_SETS = [
    {"path": f"template.spec.mpiReplicaSpecs.{role}.template", "replicas": count}
    for role, count in (("Launcher", 1), ("Worker", 64))
]


def submitted(template):
    return {**RAY, "spec": {**RAY["spec"], "submitterPodTemplate": template}}


def wrapper(*components):
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    metadata = {"name": "w", "namespace": "ns", "labels": labels}
    return {"metadata": metadata, "spec": {"components": [*components]}}


def read(body):
    return msgspec.convert(body, APP_WRAPPER.type)


@pytest.mark.parametrize(
    ("component", "counts"),
    [
        pytest.param({"template": JOB}, [3], id="a-job"),
        pytest.param({"template": POD}, [1], id="a-pod"),
        pytest.param({"template": SERVE}, [2], id="a-deployment"),
        pytest.param({"template": RAY}, [1, 1], id="a-ray-job-without-what-submits-it"),
        pytest.param({"template": CONFIG}, [], id="nothing-with-pods"),
        pytest.param({"template": FARM, "podSets": [FARMED]}, [4], id="declared"),
        pytest.param({"template": FARM, "podSets": [{"path": "template.spec"}]}, [1], id="no-pods"),
        pytest.param({"template": FARM, "podSets": [{"path": "template.no[9]"}]}, [], id="nowhere"),
        pytest.param({"template": FARM, "podSets": [{"path": "spec.groups"}]}, [], id="no-path"),
    ],
)
def test_pod_sets_follow_from_the_wrapped_object_or_are_declared(component, counts):
    found = APP_WRAPPER.pod_sets(read(wrapper({"template": CONFIG}, component)))

    assert [each.count for each in found] == counts
    assert [each.name for each in found] == [f"w-{index}" for index in range(len(counts))]


def test_a_start_writes_beside_the_components_and_a_stop_clears_it():
    body = wrapper({"template": CONFIG}, {"template": JOB}, {"template": RAY})
    draft, job = Draft(copy.deepcopy(body)), read(body)
    given = [PodInjection(node_selector={"n": str(i)}, gates=["g"]) for i in range(3)]

    start(draft, job, kind=APP_WRAPPER, given=given, counts={})
    components = draft.object["spec"]["components"]
    infos = [
        [info["nodeSelector"]["n"] for info in each.get("podSetInfos", ())] for each in components
    ]
    put_back(draft, read(draft.object), kind=APP_WRAPPER, pod_sets=APP_WRAPPER.pod_sets(job))

    assert infos == [[], ["0"], ["1", "2"]]
    assert components[1]["podSetInfos"][0]["schedulingGates"] == [{"name": "g"}]
    assert draft.object == body


@pytest.mark.parametrize(
    ("component", "where"),
    [
        pytest.param({"template": JOB}, None, id="fine"),
        pytest.param({"template": CONFIG}, None, id="has-no-pods"),
        pytest.param({"template": FARM, "podSets": [FARMED]}, None, id="declared"),
        pytest.param({"template": FARM}, "podSets", id="undeclared"),
        pytest.param(
            {"template": FARM, "podSets": [{"path": "template.spec.x"}]},
            "podSets[0].path",
            id="no-template",
        ),
        pytest.param(
            {"template": JOB, "podSets": [{"path": "template.spec.template", "replicas": 1}]},
            "podSets",
            id="fewer-than-there-are",
        ),
        pytest.param(
            {"template": JOB, "podSets": [{"path": "template.spec.template", "replicas": 3}]},
            None,
            id="as-many-as-there-are",
        ),
        pytest.param({"template": MPI, "podSets": MPI_SETS}, None, id="as-many-as-declared"),
        pytest.param(
            {"template": MPI, "podSets": [{**each, "replicas": 1} for each in MPI_SETS]},
            "podSets",
            id="fewer-than-the-kind-has",
        ),
        pytest.param({"template": RAY}, None, id="submitted-without-devices"),
        pytest.param({"template": submitted(PODS)}, "template", id="submitted-with-a-gpu"),
        pytest.param(
            {"template": submitted({"spec": {"resourceClaims": [{"name": "a"}]}})},
            "template",
            id="submitted-with-a-claim",
        ),
        pytest.param(
            {
                "template": {
                    "apiVersion": "sparkoperator.k8s.io/v1beta2",
                    "kind": "SparkApplication",
                }
            },
            "template.kind",
            id="pods-of-spark",
        ),
        pytest.param(
            {"template": {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}},
            "template.kind",
            id="pods-of-a-runtime",
        ),
        pytest.param(
            {"template": {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper"}},
            "template.kind",
            id="a-wrapper-in-a-wrapper",
        ),
        pytest.param(
            {"template": {**FARM, "more": [[]] * 20_001}}, "template", id="hidden-by-many-parts"
        ),
        pytest.param(
            {"template": {**CONFIG, "more": [[]] * 19_000}}, None, id="many-parts-without-pods"
        ),
    ],
)
def test_pods_that_would_not_be_counted_are_refused(component, where):
    errors = validate_job(wrapper(component), group="workload.codeflare.dev", kind="AppWrapper")

    expected = [] if where is None else [f"spec.components[0].{where}"]
    assert [each.path for each in errors][:1] == expected


def test_more_pod_sets_than_a_workload_may_have_are_refused():
    body = wrapper(*({"template": POD} for _ in range(19)))

    (error,) = validate_job(body, group="workload.codeflare.dev", kind="AppWrapper")

    assert (error.path, error.problem) == ("spec.components", "TooMany")


@pytest.mark.parametrize(
    ("phase", "deployed", "succeeded"),
    [
        pytest.param("Running", "True", None, id="runs"),
        pytest.param("Succeeded", "True", True, id="done"),
        pytest.param("Failed", "True", None, id="failed-and-still-there"),
        pytest.param("Failed", "False", False, id="failed-and-cleared"),
    ],
)
def test_a_failed_wrapper_has_ended_once_its_resources_are_gone(phase, deployed, succeeded):
    conditions = [{"type": "ResourcesDeployed", "status": deployed}]
    job = read({"status": {"phase": phase, "conditions": conditions}})

    found = APP_WRAPPER.outcome(job)

    assert (None if found is None else found.succeeded) is succeeded

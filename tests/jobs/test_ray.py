"""Ray's clusters and jobs as the queue sees them."""

import msgspec
import pytest

from policyd.jobs.base import SizeError
from policyd.jobs.injection import PodInjection, put_back, start
from policyd.jobs.kinds.ray_cluster import RAY_CLUSTER
from policyd.jobs.kinds.ray_job import RAY_JOB
from policyd.jobs.kinds.ray_service import RAY_SERVICE
from policyd.jobs.rules.defaults import default_on_create
from policyd.jobs.rules.validation import validate_job
from policyd.patch.draft import Draft

QUEUED = {"labels": {"kueue.x-k8s.io/queue-name": "gpu"}}


def template(**requests):
    container = {"name": "ray", "resources": {"requests": requests}}
    return {"spec": {"containers": [container]}}


def cluster(*groups, **more):
    return {"headGroupSpec": {"template": template()}, "workerGroupSpecs": list(groups), **more}


def workers(name="small", **more):
    return {"groupName": name, "template": template(), **more}


def ray_job(spec=None, status=None, **more):
    body = {"rayClusterSpec": cluster(workers()), "shutdownAfterJobFinishes": True}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": QUEUED,
        "spec": {**body, **more, **(spec or {})},
        "status": status or {},
    }


def read(kind, body):
    return msgspec.convert(body, kind.type)


@pytest.mark.parametrize(
    ("groups", "counts"),
    [
        pytest.param([], {"head": 1}, id="a-head-alone"),
        pytest.param([workers()], {"head": 1, "small": 1}, id="one-worker-if-nobody-says"),
        pytest.param([workers(replicas=0)], {"head": 1, "small": 0}, id="none-for-now"),
        pytest.param(
            [workers("Big", replicas=3, numOfHosts=4)], {"head": 1, "big": 12}, id="several-hosts"
        ),
        pytest.param(
            [workers(replicas=0, minReplicas=8, numOfHosts=2)],
            {"head": 1, "small": 16},
            id="no-fewer-than-the-least",
        ),
    ],
)
def test_a_cluster_demands_its_head_and_each_group(groups, counts):
    job = read(RAY_CLUSTER, {"spec": cluster(*groups)})

    assert {each.name: each.count for each in RAY_CLUSTER.pod_sets(job)} == counts
    assert len(RAY_CLUSTER.templates(job)) == len(counts)


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        pytest.param({}, {"cpu": "200m", "memory": "256Mi"}, id="nothing"),
        pytest.param({"cpu": "1"}, {"cpu": "1", "memory": "256Mi"}, id="enough-of-one"),
        pytest.param(
            {"cpu": "much", "memory": "1Ki"},
            {"cpu": "much", "memory": "256Mi"},
            id="no-quantity-stays",
        ),
    ],
)
def test_a_head_that_survives_requests_what_that_takes(requests, expected):
    body = {"spec": {**cluster(), "gcsFaultToleranceOptions": {}}}
    body["spec"]["headGroupSpec"] = {"template": template(**requests)}

    (head,) = RAY_CLUSTER.pod_sets(read(RAY_CLUSTER, body))

    assert head.template.spec.containers[0].resources.requests == expected


RUNNING = {"metadata": {"generation": 3}, "spec": {}}


def autoscaled(spec):
    return read(RAY_JOB, ray_job({"rayClusterSpec": {**spec, "enableInTreeAutoscaling": True}}))


@pytest.mark.parametrize(
    ("live", "counts"),
    [
        pytest.param([workers(replicas=5)], {"small": 5}, id="grown"),
        pytest.param([workers("Small", replicas=0)], {"small": 0}, id="shrunk-to-none"),
        pytest.param([workers(replicas=4, numOfHosts=2)], {"small": 8}, id="several-hosts"),
        pytest.param([], {"small": 2}, id="a-group-that-is-not-there-stays"),
    ],
)
def test_an_elastic_ray_job_is_as_big_as_its_cluster(live, counts):
    job = autoscaled(cluster(workers(replicas=2)))

    sized = RAY_JOB.elastic.sized(job, {**RUNNING, "spec": cluster(*live)})

    assert {each.name: each.count for each in RAY_JOB.pod_sets(sized)[1:]} == counts
    assert RAY_JOB.elastic.notes(sized) == {"kueue.x-k8s.io/raycluster-generation": "3"}
    assert RAY_JOB.elastic.notes(job) == {}


def test_a_ray_job_without_an_autoscaler_says_itself_how_big_it_is():
    job = read(RAY_JOB, ray_job({"rayClusterSpec": cluster(workers(replicas=2))}))

    sized = RAY_JOB.elastic.sized(job, {**RUNNING, "spec": cluster(workers(replicas=5))})

    assert RAY_JOB.pod_sets(sized) == RAY_JOB.pod_sets(job)


def test_a_cluster_of_other_workers_says_nothing_of_a_jobs_size():
    job = autoscaled(cluster(workers()))

    with pytest.raises(SizeError, match="worker group `others`"):
        RAY_JOB.elastic.sized(job, {**RUNNING, "spec": cluster(workers("Others"))})


@pytest.mark.parametrize(
    ("kind", "body", "path"),
    [
        pytest.param("RayCluster", {"spec": cluster(workers())}, (), id="cluster"),
        pytest.param("RayJob", ray_job(), ("rayClusterSpec",), id="job"),
    ],
)
def test_workers_of_an_elastic_cluster_are_gated_and_its_head_is_not(kind, body, path):
    elastic = {**QUEUED, "annotations": {"kueue.x-k8s.io/elastic-job": "true"}}
    draft = Draft({"apiVersion": "ray.io/v1", "kind": kind, **body, "metadata": elastic})

    default_on_create(draft, group="ray.io", kind=kind)

    made = draft.get(("spec", *path))
    (group,) = made["workerGroupSpecs"]
    gates = group["template"]["spec"]["schedulingGates"]
    assert gates == [{"name": "kueue.x-k8s.io/elastic-job"}]
    assert "schedulingGates" not in made["headGroupSpec"]["template"]["spec"]


def test_the_submitter_of_a_job_counts_where_it_runs():
    for mode, names in (("HTTPMode", 1), ("SidecarMode", 2), ("K8sJobMode", 1)):
        job = read(RAY_JOB, ray_job(submissionMode=mode))
        head, *rest = RAY_JOB.pod_sets(job)

        assert len(head.template.spec.containers) == names
        assert [each.name for each in rest][1:] == (["submitter"] if mode == "K8sJobMode" else [])


def test_a_submitter_that_nobody_wrote_is_written_down_and_stays():
    body = ray_job(submissionMode="K8sJobMode", suspend=True)
    draft, job = Draft(body), read(RAY_JOB, body)
    given = [PodInjection(node_selector={"zone": "a"}) for _ in RAY_JOB.pod_sets(job)]

    start(draft, job, kind=RAY_JOB, given=given, counts={})
    submitter = draft.object["spec"]["submitterPodTemplate"]["spec"]
    put_back(draft, read(RAY_JOB, draft.object), kind=RAY_JOB, pod_sets=RAY_JOB.pod_sets(job))

    assert submitter["nodeSelector"] == {"zone": "a"}
    restored = draft.object["spec"]
    assert restored["submitterPodTemplate"]["spec"]["containers"] == submitter["containers"]
    assert "nodeSelector" not in restored["submitterPodTemplate"]["spec"]


@pytest.mark.parametrize(
    ("state", "active", "on_hold", "ended"),
    [
        pytest.param({}, False, False, None, id="new"),
        pytest.param({"jobDeploymentStatus": "Suspended"}, False, False, None, id="suspended"),
        pytest.param({"jobDeploymentStatus": "Running"}, True, False, None, id="running"),
        pytest.param({"jobDeploymentStatus": "ValidationFailed"}, True, True, None, id="wrong"),
        pytest.param(
            {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
            True,
            False,
            True,
            id="succeeded",
        ),
        pytest.param(
            {"jobDeploymentStatus": "Failed", "jobStatus": "RUNNING"}, True, False, False, id="late"
        ),
    ],
)
def test_the_states_of_a_job(state, active, on_hold, ended):
    job = read(RAY_JOB, ray_job(status=state))

    outcome = RAY_JOB.outcome(job)

    assert (RAY_JOB.active(job), RAY_JOB.on_hold(job)) == (active, on_hold)
    assert (None if outcome is None else outcome.succeeded) is ended


NO_HEAD = {"headGroupSpec": {"template": {"spec": {"containers": []}}}}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        pytest.param({}, None, id="nothing"),
        pytest.param({"shutdownAfterJobFinishes": False}, "shutdownAfterJobFinishes", id="stays"),
        pytest.param({"clusterSelector": {"a": "b"}}, "clusterSelector", id="other-cluster"),
        pytest.param(
            {"rayClusterSpec": cluster(workers("head"))},
            "rayClusterSpec.workerGroupSpecs[0].groupName",
            id="the-heads-name",
        ),
        pytest.param(
            {"rayClusterSpec": cluster(workers("Head"))},
            "rayClusterSpec.workerGroupSpecs[0].groupName",
            id="the-heads-name-as-a-pod-set-has-it",
        ),
        pytest.param(
            {"rayClusterSpec": cluster(*(workers(f"w{i}") for i in range(18)))},
            "rayClusterSpec.workerGroupSpecs",
            id="too-many-groups",
        ),
        pytest.param(
            {"rayClusterSpec": {**cluster(), **NO_HEAD, "gcsFaultToleranceOptions": {}}},
            "rayClusterSpec.headGroupSpec.template.spec.containers",
            id="state-in-redis-and-no-head",
        ),
        pytest.param({"rayClusterSpec": {**cluster(), **NO_HEAD}}, None, id="no-head"),
        pytest.param(
            {"rayClusterSpec": cluster(enableInTreeAutoscaling=True)},
            "rayClusterSpec.enableInTreeAutoscaling",
            id="scales-itself",
        ),
    ],
)
def test_refusals_of_the_webhooks(spec, path):
    found = validate_job(ray_job(spec), group="ray.io", kind="RayJob")

    assert [each.path for each in found] == ([] if path is None else [f"spec.{path}"])


@pytest.mark.parametrize(
    ("requests", "refused"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"cpu": "8"}, False, id="processors"),
        pytest.param({"nvidia.com/gpu": "0"}, False, id="no-gpus"),
        pytest.param({"nvidia.com/gpu": "1"}, True, id="a-gpu"),
        pytest.param({"example.com/fpga": "some"}, True, id="no-quantity"),
    ],
)
def test_a_job_on_a_cluster_that_exists_may_have_no_devices_of_its_own(requests, refused):
    body = ray_job(clusterSelector={"a": "b"}, submitterPodTemplate=template(**requests))
    del body["spec"]["rayClusterSpec"]

    found = validate_job(body, group="ray.io", kind="RayJob")

    assert [each.path for each in found] == (["spec.submitterPodTemplate"] if refused else [])


@pytest.mark.parametrize("selector", [None, {}])
def test_a_job_that_says_no_cluster_is_refused(selector):
    body = ray_job(clusterSelector=selector) if selector is not None else ray_job()
    del body["spec"]["rayClusterSpec"]

    found = validate_job(body, group="ray.io", kind="RayJob")

    assert [each.path for each in found] == ["spec.rayClusterSpec"]


def test_a_head_that_is_no_pod_is_refused():
    head = {"template": {"spec": {"containers": "none"}}}

    found = validate_job(
        ray_job(rayClusterSpec={"headGroupSpec": head}), group="ray.io", kind="RayJob"
    )

    assert [each.path for each in found] == ["spec"]
    assert "the queue cannot read it" in found[0].words


def test_a_job_for_a_cluster_that_is_there_has_no_pods_to_hold():
    body = ray_job(clusterSelector={"a": "b"})
    del body["spec"]["rayClusterSpec"]
    draft = Draft(body)

    default_on_create(draft, group="ray.io", kind="RayJob")

    assert not draft.changed


def ray_service(config=None, status=None, **annotations):
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {**QUEUED, "annotations": annotations},
        "spec": {"rayClusterConfig": cluster(workers(replicas=2)) | (config or {})},
        "status": status or {},
    }


def test_a_service_is_held_and_started_by_its_cluster():
    draft = Draft(ray_service())

    default_on_create(draft, group="ray.io", kind="RayService")
    assert draft.object["spec"]["rayClusterConfig"]["suspend"] is True
    job = read(RAY_SERVICE, draft.object)
    assert RAY_SERVICE.suspended(job)
    assert {each.name: each.count for each in RAY_SERVICE.pod_sets(job)} == {"head": 1, "small": 2}

    given = [PodInjection(node_selector={"gpu": kind}) for kind in ("none", "h100")]
    start(draft, job, kind=RAY_SERVICE, given=given, counts={})
    RAY_SERVICE.resume(draft)
    config = draft.object["spec"]["rayClusterConfig"]
    assert config["suspend"] is False
    assert config["workerGroupSpecs"][0]["template"]["spec"]["nodeSelector"] == {"gpu": "h100"}


def test_a_service_serves_until_it_is_suspended():
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}

    for status, serves in ((ready, True), ({}, False)):
        job = read(RAY_SERVICE, ray_service(status=status))
        assert (RAY_SERVICE.active(job), RAY_SERVICE.ready(job)) == (serves, serves)
        assert RAY_SERVICE.outcome(job) is None


def test_an_elastic_service_is_as_big_as_the_cluster_that_serves():
    status = {"activeServiceStatus": {"rayClusterName": "serving"}}
    job = read(RAY_SERVICE, ray_service({"enableInTreeAutoscaling": True}, status))

    basis = RAY_SERVICE.elastic.sized_by(job)
    sized = RAY_SERVICE.elastic.sized(job, {**RUNNING, "spec": cluster(workers(replicas=7))})

    assert (basis.kind, basis.name) == ("RayCluster", "serving")
    assert RAY_SERVICE.elastic.selector(job) == "ray.io/cluster=serving"
    assert [each.count for each in RAY_SERVICE.pod_sets(sized)] == [1, 7]
    assert RAY_SERVICE.elastic.notes(sized) == {"kueue.x-k8s.io/raycluster-generation": "3"}


def test_errors_in_the_cluster_of_a_service_are_reported_at_their_place():
    (error,) = validate_job(
        ray_service({"enableInTreeAutoscaling": True}), None, group="ray.io", kind="RayService"
    )

    assert error.path == "spec.rayClusterConfig.enableInTreeAutoscaling"


def test_a_service_that_keeps_its_state_in_redis_cleans_up_when_it_goes():
    kept = {"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}}

    assert RAY_SERVICE.lingers(read(RAY_SERVICE, ray_service(kept)))
    assert not RAY_SERVICE.lingers(read(RAY_SERVICE, ray_service()))

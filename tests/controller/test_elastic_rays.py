"""Ray clusters that grow and shrink while they run, alone or as what a RayJob runs on."""

import copy

import pytest

from policyd.controller.watch.mirrors import job_resource
from policyd.jobs.kinds.ray_cluster import RAY_CLUSTER
from policyd.jobs.kinds.ray_job import RAY_JOB
from policyd.jobs.kinds.ray_service import RAY_SERVICE
from policyd.jobs.rules.defaults import default_on_create
from policyd.kube import resources as r
from policyd.patch.draft import Draft
from tests.controller.world import QUEUE, World, gates, held_gpus, pod_spec, running

pytestmark = pytest.mark.anyio

ELASTIC = "kueue.x-k8s.io/elastic-job"
CLUSTERS, RAY_JOBS = job_resource(RAY_CLUSTER), job_resource(RAY_JOB)
MARKED = {"labels": {QUEUE: "lq-cq"}, "annotations": {ELASTIC: "true"}}
AUTOSCALED = {
    "enableInTreeAutoscaling": True,
    "autoscalerOptions": {"resources": {"requests": {"nvidia.com/gpu": "0"}}},
}
KINDS = [pytest.param(RAY_CLUSTER, id="cluster"), pytest.param(RAY_JOB, id="job")]


def cluster_spec(replicas):
    group = {"groupName": "workers", "replicas": replicas, "template": {"spec": pod_spec(1)}}
    return {"headGroupSpec": {"template": {"spec": pod_spec(0)}}, "workerGroupSpecs": [group]}


def submit(world, kind, replicas):
    """Create an elastic job of one GPU a worker, as the webhook lets it in."""
    spec = cluster_spec(replicas)
    if kind is RAY_JOB:
        spec = {"rayClusterSpec": {**spec, **AUTOSCALED}, "shutdownAfterJobFinishes": True}
    metadata = {"name": "train", **copy.deepcopy(MARKED)}
    draft = Draft(
        {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
    )
    default_on_create(draft, group=kind.group, kind=kind.kind)
    world.create(job_resource(kind), draft.object)


def operate(world, kind):
    """Do what the operator does with a job that was let go. Returns the name of its cluster."""
    if kind is RAY_CLUSTER:
        return "train"
    job = world.get(RAY_JOBS, "train")
    assert not job["spec"]["suspend"]
    owner = {
        "apiVersion": RAY_JOB.api_version,
        "kind": "RayJob",
        "name": "train",
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    metadata = {"name": "train-1", **copy.deepcopy(MARKED), "ownerReferences": [owner]}
    spec = copy.deepcopy(job["spec"]["rayClusterSpec"])
    body = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}
    world.create(CLUSTERS, body)
    world.set_status(RAY_JOBS, "train", rayClusterName="train-1", jobDeploymentStatus="Running")
    return "train-1"


def scale(world, cluster, replicas):
    """Have a cluster want other workers, as its autoscaler does, and make those that are new."""
    found = world.get(CLUSTERS, cluster)
    generation = found["metadata"].get("generation", 0) + 1
    spec = copy.deepcopy(found["spec"])
    spec["workerGroupSpecs"][0]["replicas"] = replicas
    world.put(
        CLUSTERS,
        {**found, "metadata": {**found["metadata"], "generation": generation}, "spec": spec},
    )
    make_workers(world, cluster, replicas)


def make_workers(world, cluster, replicas):
    template = world.get(CLUSTERS, cluster)["spec"]["workerGroupSpecs"][0]["template"]
    for index in range(len(world.all(r.PODS)), replicas):
        metadata = copy.deepcopy(template.get("metadata", {}))
        metadata.setdefault("labels", {})["ray.io/cluster"] = cluster
        metadata["name"] = f"worker-{index}"
        spec = copy.deepcopy(template["spec"])
        world.create(
            r.PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )
    world.set_status(CLUSTERS, cluster, state="ready", availableWorkerReplicas=replicas)


def waiting(world):
    return {each["metadata"]["name"] for each in world.all(r.PODS) if ELASTIC in gates(each)}


def gpus_held(world):
    return sum(held_gpus(each) for each in world.all(r.WORKLOADS))


async def running_cluster(world, kind, *, workers):
    submit(world, kind, workers)
    await world.pass_time(2)
    cluster = operate(world, kind)
    make_workers(world, cluster, workers)
    await world.pass_time(2)
    assert not waiting(world)
    assert gpus_held(world) == workers
    return cluster


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cluster_that_grows_gets_a_bigger_slice_and_its_new_workers_go_then(kind):
    world = World()
    world.furnish(gpus=4)
    async with running(world):
        cluster = await running_cluster(world, kind, workers=2)

        scale(world, cluster, 4)
        await world.pass_time(3)

        assert not world.get(job_resource(kind), "train")["spec"]["suspend"]
        assert not world.get(CLUSTERS, cluster)["spec"].get("suspend")
        assert not waiting(world)
        assert gpus_held(world) == 4
        old, new = sorted(world.all(r.WORKLOADS), key=held_gpus)
        assert old["status"]["conditions"][-1]["reason"] == "WorkloadSliceReplaced"
        chain = "kueue.x-k8s.io/workload-slice-name"
        assert new["metadata"]["annotations"][chain] == old["metadata"]["name"]


@pytest.mark.parametrize("kind", KINDS)
async def test_workers_for_which_there_is_no_quota_wait_while_the_others_run_on(kind):
    world = World()
    world.furnish(gpus=3)
    async with running(world):
        cluster = await running_cluster(world, kind, workers=2)

        scale(world, cluster, 4)
        await world.pass_time(3)

        assert not world.get(CLUSTERS, cluster)["spec"].get("suspend")
        assert waiting(world) == {"worker-2", "worker-3"}
        assert gpus_held(world) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cluster_that_shrinks_gives_back_at_once(kind):
    world = World()
    world.furnish(gpus=4)
    async with running(world):
        cluster = await running_cluster(world, kind, workers=4)
        world.job("next", gpus=2)
        await world.pass_time(2)
        assert world.suspended("next")

        scale(world, cluster, 2)
        await world.pass_time(3)

        assert not world.suspended("next")


async def test_a_cluster_stops_when_the_slice_of_its_job_is_evicted():
    world = World()
    world.furnish(gpus=4)
    async with running(world):
        cluster = await running_cluster(world, RAY_JOB, workers=2)
        scale(world, cluster, 4)
        await world.pass_time(3)

        (held,) = [each for each in world.all(r.WORKLOADS) if held_gpus(each)]
        world.put(r.WORKLOADS, {**held, "spec": {**held["spec"], "active": False}})
        await world.pass_time(3)

        world.set_status(CLUSTERS, cluster, state="unknown")
        await world.pass_time(1)

        assert world.get(RAY_JOBS, "train")["spec"]["suspend"]
        assert world.get(CLUSTERS, cluster)["spec"]["suspend"]
        world.set_status(RAY_JOBS, "train", jobDeploymentStatus="Suspended", rayClusterName="")
        await world.pass_time(3)
        assert gpus_held(world) == 0


@pytest.mark.parametrize(
    ("more", "held"),
    [
        pytest.param({"gcsFaultToleranceOptions": {}}, 1, id="that-cleans-up"),
        pytest.param({}, 0, id="any-other"),
    ],
)
async def test_a_service_that_goes_keeps_its_quota_while_it_cleans_up(more, held):
    quotas = {"nvidia.com/gpu": "4", "cpu": "1", "memory": "1Gi"}  # a head that survives asks
    resources = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
    flavor = {"name": "h100", "resources": resources}
    world = World()
    world.furnish(resourceGroups=[{"coveredResources": list(quotas), "flavors": [flavor]}])
    services = job_resource(RAY_SERVICE)
    async with running(world):
        metadata = {"name": "serve", "labels": {QUEUE: "lq-cq"}, "finalizers": ["ray.io/cleanup"]}
        spec = {"rayClusterConfig": {**cluster_spec(1), **more}}
        draft = Draft(
            {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": metadata, "spec": spec}
        )
        default_on_create(draft, group="ray.io", kind="RayService")
        world.create(services, draft.object)
        await world.pass_time(2)
        assert world.get(services, "serve")["spec"]["rayClusterConfig"]["suspend"] is False
        assert gpus_held(world) == 1

        world.delete(services, "serve")
        await world.pass_time(2)
        assert gpus_held(world) == held

        found = world.get(services, "serve")
        world.put(services, {**found, "metadata": {**found["metadata"], "finalizers": []}})
        await world.pass_time(2)
        assert gpus_held(world) == 0

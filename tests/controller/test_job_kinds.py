"""Every kind of job goes the same way: held, started, stopped, started again, and finished."""

import msgspec
import pytest

from policyd.controller.jobs.job_reconciler import STOPPING
from policyd.controller.watch.mirrors import job_resource
from policyd.jobs.ancestors import LONGEST_CHAIN
from policyd.jobs.integrations import Integrations
from policyd.jobs.kinds.job_set import JOB_SET
from policyd.jobs.kinds.registry import KINDS
from policyd.jobs.rules.defaults import default_on_create
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError
from policyd.kube.resources import Resource
from policyd.patch.draft import Draft
from tests.controller.world import QUEUE, World, condition, held_gpus, pod_spec, running

pytestmark = pytest.mark.anyio

BY_KIND = {kind.kind: kind for kind in KINDS}


def template(gpus):
    return {"metadata": {"labels": {"app": "train"}}, "spec": pod_spec(gpus)}


def job_set(gpus):
    jobs = [
        {"name": "a", "replicas": 2, "template": {"spec": {"template": template(gpus // 4)}}},
        {"name": "b", "template": {"spec": {"parallelism": 2, "template": template(gpus // 4)}}},
    ]
    return {"replicatedJobs": jobs}


def training(specs, *roles):
    def spec(gpus):
        replicas = {
            role: {"replicas": 2, "template": template(gpus // (2 * len(roles)))} for role in roles
        }
        return {specs: replicas, "runPolicy": {}}

    return spec


def ray(*, submitted=False, **more):
    def spec(gpus):
        head = {"template": template(gpus // 2)}
        group = {"groupName": "small", "replicas": 2, "template": template(gpus // 4)}
        cluster = {"headGroupSpec": head, "workerGroupSpecs": [group]}
        return {"rayClusterSpec": cluster, **more} if submitted else cluster

    return spec


def train(gpus):
    return {
        "runtimeRef": {"name": "torch"},
        "trainer": {"numNodes": 2, "resourcesPerNode": gpus_of(gpus // 2)},
    }


def gpus_of(gpus):
    return {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}}


RUNTIME = Resource(
    "trainer.kubeflow.org",
    "v1alpha1",
    "clustertrainingruntimes",
    "ClusterTrainingRuntime",
    namespaced=False,
)


def runtime():
    steps = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    pods = {"spec": {"containers": [{"name": "node", "image": "torch:1"}]}}
    node = {"name": "node", "template": {"metadata": steps, "spec": {"template": pods}}}
    template = {"spec": {"replicatedJobs": [node]}}
    return {
        "metadata": {"name": "torch"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": template},
    }


def done(kind):
    return {"conditions": [{"type": kind, "status": "True", "message": "the end"}]}


JOBS = [
    pytest.param("JobSet", job_set, done("Completed"), id="job-set"),
    pytest.param("JAXJob", training("jaxReplicaSpecs", "Worker"), done("Succeeded"), id="jax"),
    pytest.param(
        "MPIJob", training("mpiReplicaSpecs", "Launcher", "Worker"), done("Succeeded"), id="mpi"
    ),
    pytest.param(
        "PaddleJob",
        training("paddleReplicaSpecs", "Master", "Worker"),
        done("Succeeded"),
        id="paddle",
    ),
    pytest.param(
        "PyTorchJob",
        training("pytorchReplicaSpecs", "Master", "Worker"),
        done("Succeeded"),
        id="pytorch",
    ),
    pytest.param(
        "TFJob", training("tfReplicaSpecs", "Chief", "Worker"), done("Succeeded"), id="tensorflow"
    ),
    pytest.param(
        "XGBoostJob", training("xgbReplicaSpecs", "Master", "Worker"), done("Succeeded"), id="xgb"
    ),
    pytest.param("RayCluster", ray(), None, id="ray-cluster"),
    pytest.param(
        "RayJob",
        ray(
            submitted=True,
            shutdownAfterJobFinishes=True,
            submissionMode="K8sJobMode",
            submitterPodTemplate=template(0),
        ),
        {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "the end"},
        id="ray-job",
    ),
    pytest.param("TrainJob", train, done("Complete"), id="train-job"),
]


@pytest.fixture
async def world():
    made = World()
    made.furnish()
    made.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10})
    within = {"withinClusterQueue": "LowerPriority"}
    made.queue(preemption=within)
    made.put(RUNTIME, runtime())
    async with running(made):
        yield made


def submit(world, name, spec, **labels):
    """Create a job as the API server would, once the webhook has seen it."""
    body = {
        "apiVersion": name.api_version,
        "kind": name.kind,
        "metadata": {"name": "train", "labels": {QUEUE: "lq-cq", **labels}},
        "spec": spec,
    }
    draft = Draft(body)
    default_on_create(draft, group=name.group, kind=name.kind)
    return world.create(job_resource(name), draft.object)


def templates(world, kind):
    found = world.get(job_resource(kind), "train")
    draft = Draft(found)
    job = msgspec.convert(found, kind.type)
    if kind.basis(job) is not None:
        job = kind.on_basis(job, runtime())
    return [draft.get(path) for path in kind.templates(job)]


def suspended(world, kind):
    return Draft(world.get(job_resource(kind), "train")).get(kind.suspend_path)


@pytest.mark.parametrize(("name", "spec", "end"), JOBS)
async def test_the_way_of_a_job(world, name, spec, end):
    kind = BY_KIND[name]
    submit(world, kind, spec(8))
    before = templates(world, kind)
    assert suspended(world, kind) is True

    await world.pass_time(2)
    assert suspended(world, kind) is False
    assert all(each["spec"]["nodeSelector"] == {"gpu": "h100"} for each in templates(world, kind))
    assert templates(world, kind)

    world.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})
    await world.pass_time(2)
    assert suspended(world, kind) is True
    assert templates(world, kind) == before
    assert not world.suspended("urgent")

    world.end_job("urgent")
    await world.pass_time(2)
    assert suspended(world, kind) is False

    if end is None:
        return
    world.set_status(job_resource(kind), "train", **end)
    await world.pass_time(2)
    finished = condition(world.workload_of("train"), "Finished")
    assert (finished["reason"], finished["message"]) == ("Succeeded", "the end")


@pytest.mark.parametrize("ends", [True, False], ids=["it-ends", "it-is-preempted"])
async def test_a_job_whose_runtime_is_gone_still_gives_its_quota_back(world, ends):
    kind = BY_KIND["TrainJob"]
    submit(world, kind, train(8))
    await world.pass_time(2)
    assert suspended(world, kind) is False

    world.store.delete(RUNTIME, world.store.get(RUNTIME, "", "torch"), dry_run=False)
    if ends:
        world.set_status(job_resource(kind), "train", **done("Complete"))
    world.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})
    await world.pass_time(7)

    assert not world.suspended("urgent")
    assert suspended(world, kind) is not ends
    assert world.is_true("train", "Finished") is ends


@pytest.mark.parametrize("lasts", [4, 99])
async def test_a_job_stops_though_its_template_cannot_be_put_back(world, monkeypatch, lasts):
    kind, original = BY_KIND["RayCluster"], world.client.patch
    error = ForbiddenError("denied by a policy")
    error.code = 403
    submit(world, kind, ray()(8))
    await world.pass_time(2)
    until = world.clock.now() + lasts

    async def patch(resource, key, body, **options):
        paths = {each.path for each in body} if isinstance(body, list) else set()
        templates = any(p.startswith("/spec/") and p != "/spec/suspend" for p in paths)
        if resource == job_resource(kind) and templates and world.clock.now() < until:
            raise error
        return await original(resource, key, body, **options)

    monkeypatch.setattr(world.client, "patch", patch)
    world.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})
    await world.pass_time(2)

    def stopped():
        job = world.get(job_resource(kind), "train")
        template = job["spec"]["headGroupSpec"]["template"]["spec"]
        return STOPPING in job["metadata"].get("annotations", {}), "nodeSelector" in template

    assert suspended(world, kind) is True
    assert stopped() == (True, True)
    await world.pass_time(20)

    assert stopped() == (False, lasts > 20)
    assert not world.suspended("urgent")


async def test_the_priority_class_of_a_run_policy_counts(world):
    world.put(r.PRIORITY_CLASSES, {"metadata": {"name": "soon"}, "value": 7})
    spec = training("pytorchReplicaSpecs", "Master")(8)
    spec["runPolicy"] = {"schedulingPolicy": {"priorityClass": "soon"}}

    submit(world, BY_KIND["PyTorchJob"], spec)
    await world.pass_time(2)

    assert world.workload_of("train")["spec"]["priority"] == 7


def nested(world, name, owner, kind="Job", version="batch/v1"):
    """Create a job in the queue that belongs to another one."""
    reference = {"apiVersion": version, "kind": kind, "controller": True}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    metadata = {"name": name, "labels": {QUEUE: "lq-cq"}, "ownerReferences": [reference]}
    spec = {"suspend": False, "parallelism": 1, "template": {"spec": pod_spec(1)}}
    return world.create(r.JOBS, {"metadata": metadata, "spec": spec})


GONE = {"metadata": {"name": "gone", "uid": "gone"}}


async def test_the_owner_of_the_last_of_many_nested_jobs_is_unknown(world):
    owner, last = world.job("job-0"), LONGEST_CHAIN + 1
    for index in range(1, last + 1):
        owner = nested(world, f"job-{index}", owner)
    await world.pass_time(2)

    (event,) = world.events("JobNestingTooDeep")
    assert event["involvedObject"]["name"] == f"job-{last}"
    assert world.workload_of(f"job-{last}") is None


@pytest.mark.parametrize(
    ("uid", "by_itself"),
    [
        pytest.param(None, False, id="of-the-queued-job"),
        pytest.param("of-one-that-is-gone", True, id="of-another-that-had-its-name"),
    ],
)
async def test_a_job_follows_the_queued_one_above_one_whose_kind_is_off(uid, by_itself):
    world = World()
    world.integrations = Integrations(kinds=frozenset({("batch", "Job")}))
    world.furnish()
    async with running(world):
        top = world.job("top", gpus=16)
        above = top if uid is None else {"metadata": {**top["metadata"], "uid": uid}}
        owners = nested(world, "template", above)["metadata"]["ownerReferences"]
        middle = {"metadata": {"name": "middle", "namespace": "ns", "ownerReferences": owners}}
        middle = world.create(job_resource(JOB_SET), {**middle, "spec": {}})
        child = nested(world, "child", middle, kind="JobSet", version="jobset.x-k8s.io/v1alpha2")
        await world.pass_time(2)

        assert world.suspended("child") is not by_itself
        assert (world.workload_of("child") is not None) is by_itself
        assert child["metadata"]["ownerReferences"][0]["kind"] == "JobSet"


async def test_objects_made_by_an_external_kind_are_left_to_it():
    world = World()
    wrapper = ("workload.codeflare.dev", "AppWrapper")
    world.integrations = Integrations(external=frozenset({wrapper}), manages_all=True)
    world.furnish()
    async with running(world):
        nested(world, "part", GONE, kind=wrapper[1], version=f"{wrapper[0]}/v1beta2")
        await world.pass_time(2)

        assert not world.suspended("part")
        assert world.workload_of("part") is None


async def test_a_job_follows_the_one_it_belongs_to_though_that_belongs_to_one_in_no_queue(world):
    middle = nested(world, "middle", GONE)
    nested(world, "last", middle)
    await world.pass_time(2)

    assert world.workload_of("middle")
    assert world.workload_of("last") is None


@pytest.mark.parametrize("killed", [False, True], ids=["at-once", "while-the-controller-was-away"])
@pytest.mark.parametrize(("name", "spec", "end"), JOBS)
async def test_a_pending_job_that_leaves_its_queue_leaves_no_workload(
    world, name, spec, end, killed
):
    resource = job_resource(BY_KIND[name])
    world.job("first")
    await world.pass_time(2)
    submit(world, BY_KIND[name], spec(8))
    await world.pass_time(2)
    assert held_gpus(world.workload_of("train")) == 0

    if killed:
        await world.kill()
    job = world.get(resource, "train")
    job["metadata"]["labels"] = {}
    world.store.replace(resource, world.store.get(resource, "ns", "train"), job)
    if killed:
        await world.start()
    await world.pass_time(5)

    assert world.workload_of("train") is None
    assert held_gpus(world.workload_of("first")) == 8

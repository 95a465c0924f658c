"""Jobs of kinds that come with an operator of their own: held, started, stopped and finished."""

from functools import partial

import pytest

from tests.scenarios import foreign
from tests.scenarios.api import Refused, condition, eventually
from tests.scenarios.test_queue import admitted, preempting, waiting, workload_of

ELASTIC = "kueue.x-k8s.io/elastic-job"
PRIORITY = "kueue.x-k8s.io/priority-class"


@pytest.fixture(scope="session")
def operated(cluster):
    """The cluster, with the foreign kinds installed while policyd runs."""
    foreign.install(cluster.api)
    return cluster


@pytest.fixture
def with_kinds(operated, api):
    yield api
    for kind in foreign.SPECS:
        for item in api.find(kind, "team-a"):
            api.delete(kind, item["metadata"]["name"], "team-a", missing_is_fine=True)
    # It takes the garbage collector half a minute to learn of a new kind that owns something.
    eventually(partial(nothing_left, api), within=120, what="no workload is left")


def nothing_left(api):
    return not api.find("Workload", "team-a")


def submit(api, kind, name, gpus=8, **labels):
    item = foreign.foreign(kind, name, foreign.SPECS[kind](gpus))
    item["metadata"]["labels"].update(labels)
    return api.create(item)


def started(api, kind, name):
    job = api.get(kind, name, "team-a")
    return job if not foreign.suspended(job) else None


def phases(api, name):
    pods = api.find("Pod", "team-a")
    mine = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]
    return [pod.get("status", {}).get("phase") for pod in mine]


@pytest.mark.parametrize("kind", list(foreign.SPECS))
def test_a_job_is_held_placed_stopped_resumed_and_finished(with_kinds, kind):
    api, name = with_kinds, kind.lower()
    assert foreign.suspended(submit(api, kind, name, **{PRIORITY: "research"}))
    before = foreign.templates(api.get(kind, name, "team-a"))

    job = eventually(lambda: started(api, kind, name), what="the job is started")
    foreign.operate(api, job)
    running = ["Running"] * len(foreign.templates(job))
    eventually(lambda: phases(api, name) == running, what="its pods are bound and run")

    with preempting(api, "team-a", withinClusterQueue="LowerPriority"):
        submit(api, kind, "urgent", **{PRIORITY: "production"})
        eventually(lambda: not started(api, kind, name), what="the job is stopped")
        clear_pods(api, name)
        eventually(lambda: started(api, kind, "urgent"), what="the urgent one is started")
    restored = lambda: foreign.templates(api.get(kind, name, "team-a")) == before  # noqa: E731
    eventually(restored, what="its templates are as they were")
    assert waiting(api, name)

    api.delete(kind, "urgent", "team-a")
    eventually(lambda: started(api, kind, name), what="the job is resumed")
    status = foreign.done(kind)
    if status is None:
        return
    api.call(
        "PATCH",
        f"{path(kind)}/{name}/status",
        {"status": status},
        content_type="application/merge-patch+json",
    )
    eventually(
        lambda: condition(workload_of(api, name), "Finished").get("reason") == "Succeeded",
        what="its workload is finished",
    )


def test_a_ray_cluster_grows_while_it_runs(with_kinds):
    api, item = with_kinds, foreign.foreign("RayCluster", "grows", foreign.ray_cluster(4))
    item["metadata"]["annotations"] = {ELASTIC: "true"}
    workers = item["spec"]["workerGroupSpecs"][0]["template"]
    workers["metadata"]["labels"] = {"ray.io/cluster": "grows"}
    api.create(item)
    job = eventually(lambda: started(api, "RayCluster", "grows"), what="the cluster is started")
    foreign.operate(api, job)
    set_workers(api, 1)
    eventually(lambda: phases(api, "grows") == ["Running"] * 2, what="head and worker run")

    groups = job["spec"]["workerGroupSpecs"]
    bigger = {"spec": {"workerGroupSpecs": [{**groups[0], "replicas": 3}]}}
    api.patch("RayCluster", "grows", bigger, namespace="team-a")
    foreign.operate(api, job, first=2, templates_of=[groups[0]["template"]] * 2)
    set_workers(api, 3)

    eventually(lambda: phases(api, "grows") == ["Running"] * 4, what="the new workers run")
    assert started(api, "RayCluster", "grows")
    reasons = {
        condition(each, "Finished").get("reason"): [p["count"] for p in each["spec"]["podSets"]]
        for each in api.find("Workload", "team-a")
    }
    assert reasons == {"WorkloadSliceReplaced": [1, 1], None: [1, 3]}


def set_workers(api, count):
    """Have the operator say how many workers there are: a job tells by it that it has more."""
    api.call(
        "PATCH",
        f"{path('RayCluster')}/grows/status",
        {"status": {"state": "ready", "availableWorkerReplicas": count}},
        content_type="application/merge-patch+json",
    )


def path(kind):
    group, version = foreign.GROUPS[kind]
    return f"apis/{group}/{version}/namespaces/team-a/{foreign.plural(kind)}"


def gone(api):
    return not (workload_of(api, "runs") or workload_of(api, "waits"))


def clear_pods(api, name):
    for pod in api.find("Pod", "team-a"):
        if pod["metadata"]["name"].startswith(f"{name}-"):
            api.delete("Pod", pod["metadata"]["name"], "team-a", missing_is_fine=True)


def test_deleted_while_it_waits_or_runs_it_leaves_nothing_behind(with_kinds):
    api = with_kinds
    for running, held in zip(foreign.SPECS, [*foreign.SPECS][1:], strict=False):
        submit(api, running, "runs")
        eventually(lambda: admitted(api, "runs"), what=f"a {running} is admitted")
        submit(api, held, "waits")
        eventually(lambda: workload_of(api, "waits"), what=f"a {held} queues")
        assert not admitted(api, "waits")
        for kind, name in ((held, "waits"), (running, "runs")):
            api.delete(kind, name, "team-a")
        eventually(lambda: gone(api), within=120, what=f"{running} and {held} are gone")

    eventually(partial(nothing_left, api), within=120, what="no workload is left")


def test_a_job_that_is_scaled_while_it_runs_stops(with_kinds):
    """The webhooks are not asked about the subresource: the controller sees what came of it."""
    api = with_kinds
    submit(api, "PyTorchJob", "scaled")
    eventually(lambda: started(api, "PyTorchJob", "scaled"), what="the job is started")

    scale = f"{path('PyTorchJob')}/scaled/scale"
    merge = "application/merge-patch+json"
    api.acting_as("alice").call("PATCH", scale, {"spec": {"replicas": 64}}, content_type=merge)

    eventually(lambda: not started(api, "PyTorchJob", "scaled"), within=10, what="it is suspended")
    eventually(lambda: waiting(api, "scaled"), what="the larger job waits for quota")


def test_a_running_job_does_not_grow_behind_what_cannot_be_read(with_kinds):
    """The schema takes `null` in annotations, and so does the operator."""
    api = with_kinds
    submit(api, "MPIJob", "grows")
    eventually(lambda: started(api, "MPIJob", "grows"), what="the job is started")
    worker = "/spec/mpiReplicaSpecs/Worker"
    changes = [
        {"op": "replace", "path": f"{worker}/replicas", "value": 64},
        {"op": "add", "path": f"{worker}/template/metadata/annotations/a", "value": None},
    ]

    tenant = api.acting_as("alice")
    with pytest.raises(Refused) as raised:
        tenant.patch("MPIJob", "grows", changes, namespace="team-a", by="json")

    assert raised.value.code == 403
    assert "the queue cannot read it" in raised.value.message


def test_a_ray_job_names_a_cluster_of_its_own_or_one_that_exists(with_kinds):
    api = with_kinds
    with pytest.raises(Refused, match=r"spec\.rayClusterSpec: Required") as refused:
        api.create(foreign.foreign("RayJob", "neither", {"shutdownAfterJobFinishes": True}))
    assert refused.value.code == 403

    selects = {"clusterSelector": {"ray.io/cluster": "exists"}}
    made = api.create(foreign.foreign("RayJob", "selects", selects))

    assert not foreign.suspended(made)

"""Jobs that run on other clusters: a manager and two workers, each with a controller of its own."""

import dataclasses
import json

import pytest
from msgspec.structs import replace

from policyd.alloc.settings import Gates
from policyd.api.kueue.names import PRIORITY_CLASS
from policyd.kube import resources as r
from policyd.multikueue.copies import status_back
from policyd.multikueue.settings import INCREMENTAL, ORIGIN, gated
from tests.controller.clusters import Manager, clusters, job, kubeconfig, where
from tests.controller.world import World, condition

pytestmark = pytest.mark.anyio


async def test_a_job_runs_on_the_worker_that_has_room_and_its_status_comes_back():
    manager = Manager(0, 8)
    job(manager, "train")
    async with clusters(manager):
        assert where(manager, "train") == "west"
        (sent,) = manager.remote(r.JOBS)["west"]
        assert sent["spec"].get("managedBy") is None
        assert sent["metadata"]["labels"][ORIGIN] == "multikueue"
        assert not manager.workers["west"].suspended("train")
        assert not manager.suspended("train")
        assert manager.remote(r.WORKLOADS)["east"] == []
        manager.workers["west"].end_job("train")
        await manager.pass_time(10)
        assert manager.is_true("train", "Finished")
        assert condition(manager.get(r.JOBS, "train"), "Complete")["status"] == "True"
        assert manager.remote(r.JOBS)["west"] == []
        assert manager.remote(r.WORKLOADS)["west"] == []


async def test_a_worker_that_is_cut_off_keeps_its_job_until_it_has_been_away_for_long():
    manager = Manager(8, 0)
    job(manager, "train")
    async with clusters(manager):
        assert where(manager, "train") == "east"
        manager.cut.add("east")
        await manager.pass_time(40)
        assert state(manager, "east") == ("False", "ClientConnectionFailed")
        assert where(manager, "train") == "east"
        manager.cut.clear()
        await manager.pass_time(120)
        assert state(manager, "east") == ("True", "Active")
        manager.workers["east"].end_job("train")
        await manager.pass_time(10)
        assert manager.is_true("train", "Finished")
        assert manager.remote(r.JOBS)["east"] == []


async def test_after_a_restart_a_worker_that_is_not_reached_is_waited_for_as_if_just_lost():
    manager = Manager(8, 0)
    job(manager, "train")
    async with clusters(manager):
        await manager.pass_time(400)
        assert where(manager, "train") == "east"
        await manager.kill()
        manager.add_secret("east", exec={"command": "steal"})
        await manager.start()
        await manager.pass_time(20)
        assert state(manager, "east")[0] == "False"
        assert where(manager, "train") == "east"
        assert not manager.is_true("train", "Evicted")
        await manager.pass_time(2000)
        assert where(manager, "train") is None


async def test_a_worker_that_was_reached_since_a_restart_is_waited_for_anew():
    manager = Manager(8, 0)
    job(manager, "train")
    async with clusters(manager):
        await manager.kill()
        manager.add_secret("east", exec={"command": "steal"})
        await manager.start()
        await manager.pass_time(20)
        manager.delete(r.JOBS, "train")
        await manager.pass_time(20)
        manager.add_secret("east")
        await manager.pass_time(2000)
        job(manager, "next")
        await manager.pass_time(20)
        assert where(manager, "next") == "east"
        manager.delete(r.MULTIKUEUE_CLUSTERS, "east")
        await manager.pass_time(100)
        assert where(manager, "next") == "east"
        await manager.pass_time(400)
        assert where(manager, "next") is None


async def test_a_job_of_a_worker_that_stays_away_runs_elsewhere_and_is_removed_there_later():
    manager = Manager(8, 8)
    job(manager, "train")
    async with clusters(manager):
        first = where(manager, "train")
        manager.workers[first].set_status(r.JOBS, "train", active=1, ready=1)
        await manager.pass_time(5)
        assert manager.get(r.JOBS, "train")["status"]["active"] == 1
        second = next(name for name in manager.workers if name != first)
        manager.cut.add(first)
        await manager.pass_time(500)
        assert where(manager, "train") == second
        manager.cut.clear()
        await manager.pass_time(400)
        assert where(manager, "train") == second
        assert manager.remote(r.JOBS)[first] == []
        assert manager.remote(r.WORKLOADS)[first] == []
        assert [j["metadata"]["name"] for j in manager.remote(r.JOBS)[second]] == ["train"]


async def test_a_job_that_its_worker_evicts_is_sent_again():
    manager = Manager(8, 0)
    job(manager, "train")
    async with clusters(manager):
        east = manager.workers["east"]
        east.queue(gpus=8, stopPolicy="HoldAndDrain")
        await manager.pass_time(5)
        assert "Workload evicted on worker cluster" in str(manager.workload_of("train"))
        east.queue(gpus=8)
        await manager.pass_time(60)
        assert where(manager, "train") == "east"
        assert not east.suspended("train")


async def test_a_job_that_is_stopped_here_stops_on_its_worker():
    manager = Manager(8, 0)
    job(manager, "train")
    async with clusters(manager):
        workload = manager.workload_of("train")
        manager.put(r.WORKLOADS, {**workload, "spec": {**workload["spec"], "active": False}})
        await manager.pass_time(30)
        assert manager.suspended("train")
        assert not manager.is_true("train", "QuotaReserved")
        assert manager.remote(r.JOBS)["east"] == []
        assert manager.remote(r.WORKLOADS)["east"] == []


async def test_a_job_that_is_deleted_here_is_deleted_on_its_worker():
    manager = Manager(8, 0)
    job(manager, "train")
    async with clusters(manager):
        manager.delete(r.JOBS, "train")
        await manager.pass_time(5)
        assert manager.remote(r.JOBS)["east"] == []
        assert manager.remote(r.WORKLOADS)["east"] == []


async def test_orphans_of_a_controller_that_died_are_collected_but_nobody_elses():
    manager = Manager(8, 0)
    job(manager, "train")
    async with clusters(manager):
        await manager.kill()
        manager.delete(r.JOBS, "train")
        for workload in manager.all(r.WORKLOADS):
            manager.put(
                r.WORKLOADS, {**workload, "metadata": {**workload["metadata"], "finalizers": []}}
            )
            manager.collect_garbage()
        manager.workers["east"].job("local")
        await manager.start()
        await manager.pass_time(130)
        assert [j["metadata"]["name"] for j in manager.remote(r.JOBS)["east"]] == ["local"]


async def test_a_job_that_was_not_handed_over_is_rejected():
    manager = Manager(8, 0)
    manager.job("train")
    async with clusters(manager):
        workload = manager.workload_of("train")
        (check,) = workload["status"]["admissionChecks"]
        assert check["state"] == "Rejected"
        assert check["message"] == (
            'The owner is not managed by Kueue: Expecting spec.managedBy to be "kueue.x-k8s.io/'
            'multikueue" not "", Previously: "Pending"'
        )
        assert manager.suspended("train")
        assert manager.remote(r.JOBS)["east"] == []


async def test_a_job_of_a_kind_that_is_off_is_rejected():
    manager = Manager(8, 0)
    job(manager, "train")
    async with clusters(manager):
        kinds = frozenset({("jobset.x-k8s.io", "JobSet")})
        manager.controller.cache.integrations = dataclasses.replace(
            manager.controller.cache.integrations, kinds=kinds
        )
        await manager.pass_time(1)
        manager.put(r.WORKLOADS, {**manager.workload_of("train")})
        await manager.pass_time(10)
        (check,) = manager.workload_of("train")["status"]["admissionChecks"]
        wanted = 'No multikueue adapter found for owner kind "batch/v1, Kind=Job", Previously: '
        assert check["message"].startswith(wanted)


async def test_a_cluster_has_a_status_before_there_is_a_check():
    manager = Manager(8, 0)
    manager.queue(gpus=64)
    manager.delete(r.ADMISSION_CHECKS, "away")
    manager.cut.add("west")
    async with clusters(manager):
        assert state(manager, "east") == ("True", "Active")
        assert state(manager, "west") == ("False", "ClientConnectionFailed")


async def test_a_job_that_runs_elsewhere_without_a_known_cluster_is_sent_again():
    manager = Manager(8, 0)
    job(manager, "train")
    async with clusters(manager):
        manager.cut.add("east")
        await manager.pass_time(40)
        workload = manager.workload_of("train")
        status = {k: v for k, v in workload["status"].items() if k != "clusterName"}
        manager.put(r.WORKLOADS, {**workload, "status": status})
        await manager.pass_time(10)
        eviction = condition(manager.workload_of("train"), "Evicted")
        assert "no admitting cluster is recorded" in eviction["message"]
        assert where(manager, "train") is None


async def test_a_job_of_the_same_name_that_others_made_is_left_alone():
    manager = Manager(8, 0)
    manager.workers["east"].job("train", gpus=1)
    job(manager, "train")
    async with clusters(manager):
        (found,) = manager.remote(r.JOBS)["east"]
        assert ORIGIN not in found["metadata"]["labels"]
        manager.delete(r.JOBS, "train")
        await manager.pass_time(100)
        assert len(manager.remote(r.JOBS)["east"]) == 1


async def test_a_kubeconfig_is_renewed_without_a_restart_and_one_that_runs_a_program_is_refused():
    manager = Manager(8, 0)
    async with clusters(manager):
        before = manager.controller.multikueue.remotes.by_name["east"].source
        manager.add_secret("east", token="another")
        await manager.pass_time(5)
        assert manager.controller.multikueue.remotes.by_name["east"].source != before
        assert state(manager, "east") == ("True", "Active")
        manager.add_secret("east", exec={"command": "steal"})
        await manager.pass_time(5)
        assert state(manager, "east") == ("False", "InsecureKubeConfig")
        assert state(manager, "away", r.ADMISSION_CHECKS) == ("True", "SomeActiveClusters")
        job(manager, "train")
        await manager.pass_time(5)
        assert manager.remote(r.WORKLOADS)["east"] == []


class Reads(World.client_type):
    """A client that notes which Secrets are asked for."""

    selected = set()

    def watch(self, resource, **given):
        self._note_secret(resource, given)
        return super().watch(resource, **given)

    async def page(self, resource, **given):
        self._note_secret(resource, given)
        return await super().page(resource, **given)

    def _note_secret(self, resource, given):
        if resource == r.SECRETS:
            self.selected.add((given["namespace"], given["field_selector"]))


async def test_no_secret_is_read_but_those_that_clusters_name():
    manager = Manager(8, 0)
    manager.client_type = Reads
    manager.add_secret("other")
    make_cluster(manager, "odd", "a,metadata.name!=b")
    async with clusters(manager):
        make_cluster(manager, "late", "late")
        await manager.pass_time(5)
        assert state(manager, "late") == ("False", "BadKubeConfig")
        manager.add_secret("late", exec={"command": "steal"})
        await manager.pass_time(5)
        assert state(manager, "late") == ("False", "InsecureKubeConfig")
        manager.delete(r.MULTIKUEUE_CLUSTERS, "late")
        await manager.pass_time(5)
        followed = manager.controller.multikueue._secrets

        names = ("east", "west", "late")
        assert Reads.selected == {("policyd", f"metadata.name={name}") for name in names}
        assert followed.keys() == {"east", "west"}


def make_cluster(manager, name, secret):
    source = {"kubeConfig": {"location": secret, "locationType": "Secret"}}
    spec = {"clusterSource": source}
    manager.create(r.MULTIKUEUE_CLUSTERS, {"metadata": {"name": name}, "spec": spec})


async def test_a_dispatcher_of_others_says_where_a_job_goes():
    manager = Manager(8, 8, dispatcher="example.com/nearest")
    job(manager, "train")
    async with clusters(manager):
        assert manager.remote(r.WORKLOADS) == {"east": [], "west": []}
        workload = manager.workload_of("train")
        names = {"nominatedClusterNames": ["west"]}
        manager.set_status(r.WORKLOADS, workload["metadata"]["name"], **names)
        await manager.pass_time(5)
        assert where(manager, "train") == "west"


@pytest.mark.parametrize(("keeps", "first"), [(True, "west"), (False, "east")], ids=["on", "off"])
@pytest.mark.gate("MultiKueueIncrementalDispatcherRespectConfigOrder")
async def test_workers_are_tried_in_the_order_of_the_config(keeps, first):
    gates = {"MultiKueueIncrementalDispatcherRespectConfigOrder": keeps}
    manager = Manager(0, 0, dispatcher=INCREMENTAL, step=1, gates=gates)
    manager.put(
        r.MULTIKUEUE_CONFIGS, {"metadata": {"name": "all"}, "spec": {"clusters": ["west", "east"]}}
    )
    job(manager, "train")
    async with clusters(manager):
        nominated = manager.workload_of("train")["status"]["nominatedClusterNames"]
        assert nominated == [first]
        await manager.pass_time(310)
        assert len(manager.workload_of("train")["status"]["nominatedClusterNames"]) == 2


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.gate("MultiKueue")
async def test_no_job_is_sent_where_the_gate_is_off(on):
    manager = Manager(8, 0, gates={"MultiKueue": on})
    job(manager, "train")
    async with clusters(manager):
        assert len(manager.remote(r.WORKLOADS)["east"]) == (1 if on else 0)


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.gate("MultiKueueManagerQuotaAutomation")
async def test_quota_here_follows_the_workers_where_the_config_says_so(on):
    manager = Manager(8, 4, gates={"MultiKueueManagerQuotaAutomation": on})
    spec = {"clusters": ["east", "west"], "quotaManagement": "Automated"}
    manager.put(r.MULTIKUEUE_CONFIGS, {"metadata": {"name": "all"}, "spec": spec})
    async with clusters(manager):
        queue = manager.get(r.CLUSTER_QUEUES, "cq")
        (resource,) = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
        assert resource["nominalQuota"] == ("12" if on else "64")
        if on:
            east = manager.workers["east"]
            east.queue(gpus=5)
            changed = east.store.get(r.CLUSTER_QUEUES, "", "cq")
            east.put(
                r.CLUSTER_QUEUES,
                {**changed, "metadata": {**changed["metadata"], "generation": 2}},
            )
            await manager.pass_time(3)
            assert quota_here(manager) == "9"
            manager.workers["west"].delete(r.LOCAL_QUEUES, "lq-cq")
            await manager.pass_time(3)
            assert quota_here(manager) == "5"


def quota_here(manager):
    queue = manager.get(r.CLUSTER_QUEUES, "cq")
    return queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"]


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.gate("MultiKueueOrchestratedPreemption")
async def test_one_worker_may_preempt_at_a_time(on):
    """With the gate, the copy of a job preempts on one worker; without it, on all of them."""
    manager = Manager(8, 8, gates={"MultiKueueOrchestratedPreemption": on})
    for world in (manager, *manager.workers.values()):
        for name, value in (("high", 100), ("low", -100)):
            world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    for worker in manager.workers.values():
        gates = Gates(multi_kueue_orchestrated_preemption=on)
        worker.queueing = replace(worker.queueing, gates=gates)
        worker.queue(gpus=8, preemption={"withinClusterQueue": "LowerPriority"})
        worker.job("victim", **{PRIORITY_CLASS: "low"})
    async with clusters(manager):
        job(manager, "train", **{PRIORITY_CLASS: "high"})
        await manager.pass_time(20)
        preempted = [bool(w.events("Preempted")) for w in manager.workers.values()]
        assert sum(preempted) == (1 if on else 2)
        assert not manager.workers[where(manager, "train")].suspended("train")


def state(manager, name, resource=r.MULTIKUEUE_CLUSTERS):
    active = condition(manager.get(resource, name), "Active")
    return active["status"], active["reason"]


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.gate("MultiKueueKubeConfigPathValidation")
async def test_a_file_anywhere_is_read_only_where_the_gate_is_off(on, tmp_path):
    manager = Manager(8, 0, gates={"MultiKueueKubeConfigPathValidation": on})
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig("east")))
    source = {"kubeConfig": {"location": str(file), "locationType": "Path"}}
    cluster = {"metadata": {"name": "east"}, "spec": {"clusterSource": source}}
    manager.put(r.MULTIKUEUE_CLUSTERS, cluster)
    async with clusters(manager):
        wanted = ("False", "BadKubeConfig") if on else ("True", "Active")
        assert state(manager, "east") == wanted
        assert bool(manager.events("DeprecatedPathUsage")) is not on


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.gate("MultiKueueRemoteSpecSync")
def test_a_service_that_changes_does_so_on_its_worker(on):
    settings = gated({"MultiKueueRemoteSpecSync": on})
    local, copy = (
        {"kind": "RayService", "metadata": {}, "spec": {"serveConfigV2": text}}
        for text in ("new", "old")
    )

    back = status_back(local, copy, "w", settings)

    assert back.forwarded == ({"spec": {"serveConfigV2": "new"}} if on else None)


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.gate("MultiKueueBatchJobClearingTTLSecondsAfterFinishedOnWorkerCluster")
async def test_a_job_that_ended_stays_on_its_worker_until_that_is_known_here(on):
    gate = "MultiKueueBatchJobClearingTTLSecondsAfterFinishedOnWorkerCluster"
    manager = Manager(8, 0, gates={gate: on})
    job(manager, "train")
    local = manager.get(r.JOBS, "train")
    manager.put(r.JOBS, {**local, "spec": {**local["spec"], "ttlSecondsAfterFinished": 0}})
    async with clusters(manager):
        (copy,) = manager.remote(r.JOBS)["east"]
        assert ("ttlSecondsAfterFinished" in copy["spec"]) is not on
        assert manager.get(r.JOBS, "train")["spec"]["ttlSecondsAfterFinished"] == 0

"""Devices that pods get by ResourceClaims: nobody counts them, so nobody gets them from a queue."""

import copy

import msgspec
import pytest

from policyd.alloc.settings import Gates, QueueingSettings
from policyd.api.configuration.kinds import ResourcesConfiguration
from policyd.api.kueue.names import POD_SET
from policyd.controller.watch.workload_values import DEVICES_OFF
from policyd.kube import resources as r
from tests.controller.watch.test_claimed_devices import (
    DRIVER,
    claiming_pod,
    furnished,
    mapped,
    offer_class,
    offer_template,
    reported,
    spent,
    usage,
)
from tests.controller.watch.test_claimed_devices import claiming as job_claiming
from tests.controller.world import GPU, QUEUE, World, pod_spec, running

pytestmark = pytest.mark.anyio

MAPPED = msgspec.convert(
    {"deviceClassMappings": [{"name": GPU, "deviceClassNames": ["gpu.example.com"]}]},
    ResourcesConfiguration,
)
CLAIMS = [
    pytest.param({"name": "gpu", "resourceClaimTemplateName": "gpus"}, id="from-a-template"),
    pytest.param({"name": "gpu", "resourceClaimName": "shared"}, id="by-name"),
]
OFF = Gates(kueue_dra_integration=False)
FREE = QueueingSettings(
    gates=Gates(kueue_dra_integration=False, kueue_dra_reject_workloads_when_dra_disabled=False)
)


def claiming(claim, gpus=0):
    return {**pod_spec(gpus), "resourceClaims": [claim]}


@pytest.mark.parametrize("claim", CLAIMS)
async def test_a_job_with_claimed_devices_is_held_and_gets_a_remedy(claim):
    world = World()
    world.furnish()
    async with running(world):
        job = world.job("claims")
        world.delete(r.JOBS, "claims")
        job["spec"]["template"]["spec"] = claiming(claim, gpus=1)
        del job["metadata"]["resourceVersion"], job["metadata"]["uid"]
        world.create(r.JOBS, job)
        await world.pass_time(2)

        condition = world.condition("claims", "QuotaReserved")
        assert world.suspended("claims") is True
        assert (condition["status"], condition["reason"]) == ("False", "Misconfigured")
        assert (
            "pod set `main` (`gpu`) would get devices by `resourceClaims`" in condition["message"]
        )
        assert "ask for them by resource in `resources.limits`" in condition["message"]


async def test_nobody_behind_it_waits_for_it_in_a_queue_that_keeps_its_order():
    world = World()
    world.furnish(queueingStrategy="StrictFIFO")
    async with running(world):
        world.put(r.JOBS, claiming_job("claims"))
        await world.pass_time(2)
        world.job("plain")
        await world.pass_time(2)

        assert world.suspended("claims") is True
        assert world.suspended("plain") is False


async def test_pods_of_a_group_are_held_too():
    world = World()
    world.furnish()
    async with running(world):
        pod = world.pod("plain")
        pod["metadata"]["name"] = "claims"
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
        del pod["metadata"]["resourceVersion"], pod["metadata"]["uid"]
        world.create(r.PODS, pod)
        await world.pass_time(2)

        assert world.condition("claims", "QuotaReserved")["reason"] == "Misconfigured"
        assert world.get(r.PODS, "claims")["spec"]["schedulingGates"]


@pytest.mark.gate("KueueDRAIntegration")
async def test_where_the_integration_is_off_they_are_held_in_kueues_words():
    world = World(QueueingSettings(gates=OFF), resources=MAPPED)
    world.furnish()
    async with running(world):
        world.put(r.JOBS, claiming_job("claims"))
        await world.pass_time(2)

        condition = world.condition("claims", "QuotaReserved")
        assert condition["reason"] == "Misconfigured"
        assert condition["message"] == DEVICES_OFF


@pytest.mark.gate("KueueDRARejectWorkloadsWhenDRADisabled")
async def test_where_the_gate_is_off_they_are_free_as_in_kueue():
    world = World(FREE)
    world.furnish()
    async with running(world):
        world.put(r.JOBS, claiming_job("claims"))
        await world.pass_time(2)

        assert world.suspended("claims") is False


async def test_a_workload_made_by_hand_does_not_hide_the_claims_of_its_job():
    world = World()
    world.furnish()
    prebuilt = {
        "metadata": {"name": "by-hand", "namespace": "ns"},
        "spec": {
            "queueName": "lq-cq",
            "podSets": [{"name": "main", "count": 1, "template": {"spec": pod_spec(0)}}],
        },
    }
    async with running(world):
        world.put(r.WORKLOADS, prebuilt)
        job = claiming_job("claims")
        job["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = "by-hand"
        world.put(r.JOBS, job)
        await world.pass_time(2)

        assert world.suspended("claims") is True
        assert world.condition("by-hand", "Finished")["reason"] == "OutOfSync"


async def test_pods_that_claim_more_than_their_workload_are_reported_as_outside_of_quota():
    world = World()
    world.furnish()
    async with running(world):
        job = world.job("train", gpus=2)
        await world.pass_time(2)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
        for name, spec in (("plain", pod_spec(1)), ("claims", claiming({"name": "gpu"}))):
            metadata = {
                "name": name,
                "labels": {POD_SET: "main"},
                "ownerReferences": [{**owner, "uid": job["metadata"]["uid"]}],
            }
            world.create(r.PODS, {"metadata": metadata, "spec": copy.deepcopy(spec)})
        await world.pass_time(30)

        messages = {e["involvedObject"]["name"]: e["message"] for e in world.events("OutsideQuota")}
        assert "claims" in messages
        assert "takes 1 resourceclaims" in messages["claims"]


async def test_admitted_pods_are_within_quota_whatever_is_published_or_deleted_since():
    world = furnished(
        resources=mapped(counter={"name": "memory", "driver": DRIVER}),
        templates=(("part", 1),),
        gpus=16,
    )
    world.put(r.RESOURCE_SLICES, spent("4"))
    world.deletes_outside_quota = True
    async with running(world):
        await world.pass_time(2)
        job = job_claiming("train", template="part", pods=2)
        world.put(r.JOBS, job)
        await world.pass_time(3)
        assert usage(world, "train") == {GPU: "8"}

        claiming_pod(world, "before", template="part")
        world.put(r.RESOURCE_SLICES, spent("6", generation=2))
        await world.pass_time(3)
        claiming_pod(world, "larger-devices", template="part")
        await world.pass_time(40)
        assert reported(world) == set()

        world.delete(r.RESOURCE_CLAIM_TEMPLATES, "part")
        await world.pass_time(40)
        assert reported(world) == set()

        offer_template(world, "part", 9)
        claiming_pod(world, "of-another-template", template="part")
        await world.pass_time(40)
        assert "of-another-template" in reported(world)


async def test_an_extended_resource_of_an_admitted_pod_is_within_quota_without_its_template():
    world = furnished(on={"kueue_dra_integration_extended_resource": True}, templates=())
    offer_class(world, extendedResourceName="example.com/gpu")
    (queue,) = world.all(r.CLUSTER_QUEUES)
    (group,) = queue["spec"]["resourceGroups"]
    group["coveredResources"].append("example.com/gpu")
    group["flavors"][0]["resources"].append({"name": "example.com/gpu", "nominalQuota": 0})
    world.put(r.CLUSTER_QUEUES, queue)
    offer_template(world, "two", 2)
    async with running(world):
        await world.pass_time(2)
        job = job_claiming("train", template="two")
        resources = {"limits": {"example.com/gpu": "3"}}
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
        world.put(r.JOBS, job)
        await world.pass_time(3)
        assert usage(world, "train") == {GPU: "5"}

        world.delete(r.RESOURCE_CLAIM_TEMPLATES, "two")
        await world.pass_time(2)
        claiming_pod(world, "within", template="two", limits=resources["limits"])
        await world.pass_time(40)
        assert reported(world) == set()


def claiming_job(name):
    claim = {"name": "gpu", "resourceClaimTemplateName": "gpus"}
    metadata = {"name": name, "namespace": "ns", "labels": {QUEUE: "lq-cq"}}
    template = {"spec": claiming(claim)}
    spec = {"suspend": True, "parallelism": 1, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

"""Workloads whose nodes an autoscaler is asked for, before their jobs start."""

import pytest

from policyd.alloc.settings import Gates, QueueingSettings
from policyd.api.kueue.names import PROVISIONING
from policyd.kube import resources as r
from tests.controller.world import World, condition, running

pytestmark = pytest.mark.anyio

CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"


@pytest.fixture
def world():
    world = World()
    strategy = {"admissionChecks": [{"name": "nodes"}]}
    world.furnish(gpus=8, admissionChecksStrategy=strategy)
    reference = {
        "apiGroup": "kueue.x-k8s.io",
        "kind": "ProvisioningRequestConfig",
        "name": "fast",
    }
    spec = {"controllerName": PROVISIONING, "parameters": reference}
    world.create(r.ADMISSION_CHECKS, {"metadata": {"name": "nodes"}, "spec": spec})
    return world


def configure(world, **spec):
    spec = {"provisioningClassName": "check-capacity", **spec}
    world.create(r.PROVISIONING_CONFIGS, {"metadata": {"name": "fast"}, "spec": spec})


def answer(world, name, kind, message=""):
    reason = {"type": kind, "status": "True", "reason": kind, "message": message}
    world.set_status(r.PROVISIONING_REQUESTS, name, conditions=[reason])


def requests(world):
    return [each["metadata"]["name"] for each in world.all(r.PROVISIONING_REQUESTS)]


async def test_a_job_starts_on_the_nodes_that_were_made_for_it(world):
    configure(world)
    world.job("train")
    async with running(world):
        (name,) = requests(world)
        assert world.suspended("train")
        (template,) = world.all(r.POD_TEMPLATES)
        assert template["metadata"]["ownerReferences"][0]["kind"] == "ProvisioningRequest"
        answer(world, name, "Provisioned")
        await world.pass_time(1)
        assert not world.suspended("train")
        pods = world.get(r.JOBS, "train")["spec"]["template"]
        assert pods["metadata"]["annotations"][CONSUMES] == name
        world.end_job("train")
        await world.pass_time(1)
        assert requests(world) == []


async def test_a_failed_request_is_repeated_up_to_a_limit(world):
    configure(world, retryStrategy={"backoffLimitCount": 1, "backoffBaseSeconds": 60})
    world.job("train")
    async with running(world):
        (first,) = requests(world)
        answer(world, first, "Failed", "no nodes")
        await world.pass_time(1)
        assert requests(world) == []
        await world.pass_time(120)
        (second,) = requests(world)
        assert (first[-2:], second[-2:]) == ("-1", "-2")
        answer(world, second, "Failed", "no nodes")
        await world.pass_time(10)
        assert world.workload_of("train")["spec"]["active"] is False


async def test_a_check_without_its_parameters_keeps_its_queue_closed(world):
    world.job("train")
    async with running(world):
        active = condition(world.get(r.ADMISSION_CHECKS, "nodes"), "Active")
        assert (active["status"], active["reason"]) == ("False", "BadParametersRef")
        assert requests(world) == []
        configure(world)
        await world.pass_time(1)
        assert condition(world.get(r.ADMISSION_CHECKS, "nodes"), "Active")["status"] == "True"
        assert len(requests(world)) == 1


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.gate("CleanupProvisioningRequestsOnEviction")
async def test_nodes_are_asked_for_no_longer_when_the_job_is_evicted(world, on):
    world.queueing = QueueingSettings(gates=Gates(cleanup_provisioning_requests_on_eviction=on))
    configure(world)
    world.job("train")
    async with running(world):
        (name,) = requests(world)
        workload = world.workload_of("train")
        world.put(r.WORKLOADS, {**workload, "spec": {**workload["spec"], "active": False}})
        await world.pass_time(2)

        assert world.is_true("train", "Evicted")
        assert requests(world) == ([] if on else [name])

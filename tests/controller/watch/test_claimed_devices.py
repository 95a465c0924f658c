"""Devices of ResourceClaims are counted in quota where their class is mapped to a resource."""

import msgspec
import pytest

from policyd.alloc.settings import Gates, QueueingSettings
from policyd.api.configuration.kinds import ResourcesConfiguration
from policyd.api.kueue.names import POD_SET
from policyd.devices.rations import TURN
from policyd.kube import resources as r
from tests.controller.test_elastic_jobs import elastic_job, make_pods, waiting
from tests.controller.world import GPU, QUEUE, World, condition, gates, running
from tests.questions.test_unqueued_jobs import owned

pytestmark = pytest.mark.anyio

CLASS, DRIVER = "gpu.example.com", "gpu.example.com"
SELECTED = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}


def mapped(**sources):
    source = [{kind: {**each, "deviceSelector": SELECTED}} for kind, each in sources.items()]
    mapping = {"name": GPU, "deviceClassNames": [CLASS], "sources": source}
    return msgspec.convert({"deviceClassMappings": [mapping]}, ResourcesConfiguration)


COUNTED = mapped()


def furnished(*, on=None, resources=COUNTED, templates=(("two", 2),), **queue):
    """Return a world with a class, templates by name and number of devices, and a queue."""
    world = World(QueueingSettings(gates=Gates(**(on or {}))), resources=resources)
    world.furnish(**queue)
    offer_class(world)
    for name, count in templates:
        offer_template(world, name, count)
    return world


def offer_class(world, **spec):
    world.put(r.DEVICE_CLASSES, {"metadata": {"name": CLASS}, "spec": spec})


def offer_template(world, name, count, **fields):
    world.put(
        r.RESOURCE_CLAIM_TEMPLATES,
        {"metadata": {"name": name, "namespace": "ns"}, "spec": {"spec": claim(count, **fields)}},
    )


def claim(count, **fields):
    asked = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": count, **fields}
    return {"devices": {"requests": [{"name": "gpus", "exactly": asked}]}}


def offer_slice(world, *devices):
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": list(devices)}
    world.put(r.RESOURCE_SLICES, {"metadata": {"name": "n1"}, "spec": spec})


def claiming(name, *, template="", shared="", pods=1):
    given = {"resourceClaimTemplateName": template, "resourceClaimName": shared}
    asked = {"name": "gpus", **{key: text for key, text in given.items() if text}}
    spec = {"containers": [{"name": "main", "image": "train:1"}], "resourceClaims": [asked]}
    metadata = {"name": name, "namespace": "ns", "labels": {QUEUE: "lq-cq"}}
    body = {"suspend": True, "parallelism": pods, "template": {"spec": spec}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}


def usage(world, name):
    admission = world.workload_of(name)["status"]["admission"]
    (assigned,) = admission["podSetAssignments"]
    return assigned["resourceUsage"]


@pytest.mark.gate("KueueDRAIntegration")
async def test_devices_of_a_template_count_for_each_pod_and_the_quota_holds():
    world = furnished(on={"kueue_dra_integration": True}, gpus=8)
    async with running(world):
        world.put(r.JOBS, claiming("first", template="two", pods=3))
        world.put(r.JOBS, claiming("second", template="two", pods=2))
        await world.pass_time(3)

        assert world.suspended("first") is False
        assert usage(world, "first") == {GPU: "6"}
        assert world.suspended("second") is True
        assert "insufficient unused quota" in world.condition("second", "QuotaReserved")["message"]


@pytest.mark.parametrize(("count", "used"), [(6, "6"), (4, "6")], ids=["even", "rounded-up"])
async def test_a_claim_that_pods_share_counts_once_as_a_multiple_of_the_pods(count, used):
    world = furnished()
    shared = {"metadata": {"name": "shared", "namespace": "ns"}, "spec": claim(count)}
    world.put(r.RESOURCE_CLAIMS, shared)
    async with running(world):
        world.put(r.JOBS, claiming("share", shared="shared", pods=3))
        await world.pass_time(3)

        assert usage(world, "share") == {GPU: used}


async def test_a_shared_claim_keeps_its_quota_until_the_last_pod_has_ended():
    world = furnished(gpus=8)
    for name in ("c", "d"):
        put_claim(world, name, 4)
    async with running(world):
        world.put(r.JOBS, claiming("first", shared="c", pods=4))
        world.put(r.JOBS, claiming("plain", template="two", pods=2))
        world.put(r.JOBS, claiming("second", shared="d", pods=1))
        await world.pass_time(3)
        world.set_status(r.JOBS, "first", active=1, succeeded=3)
        await world.pass_time(3)
        assert world.suspended("second") is True

        world.set_status(r.JOBS, "plain", active=1, succeeded=1)
        world.end_job("first")
        await world.pass_time(3)
        assert world.suspended("second") is False


async def test_a_pod_set_without_pods_does_not_stand_for_the_claim_of_others():
    world = furnished(gpus=8)
    put_claim(world, "c", 64)
    template = claiming("x", shared="c")["spec"]["template"]
    sizes = {"none": 0, "all": 1}
    pod_sets = [{"name": name, "count": n, "template": template} for name, n in sizes.items()]
    body = {"metadata": {"name": "w"}, "spec": {"queueName": "lq-cq", "podSets": pod_sets}}
    async with running(world):
        world.create(r.WORKLOADS, body)
        await world.pass_time(3)

        assert (
            "nvidia.com/gpu" in condition(world.get(r.WORKLOADS, "w"), "QuotaReserved")["message"]
        )


async def test_pods_of_a_group_count_their_claims():
    world = furnished(gpus=4)
    async with running(world):
        pod = world.pod("another", gpus=0, group="other", total=9)
        pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = "g"
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "2"
        asked = {"name": "gpus", "resourceClaimTemplateName": "two"}
        pod["spec"]["resourceClaims"] = [asked]
        del pod["metadata"]["resourceVersion"], pod["metadata"]["uid"]
        for name in ("a", "b"):
            pod["metadata"]["name"] = name
            world.create(r.PODS, pod)
            make_claims(world, name)
        await world.pass_time(3)

        assert usage(world, "g")[GPU] == "4"
        assert not any(gates(world.get(r.PODS, name)) for name in ("a", "b"))


async def test_a_claim_that_says_it_was_made_for_a_pod_is_not_free():
    world = furnished()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}
    metadata = {"name": "shared", "namespace": "ns", "ownerReferences": [owner]}
    world.put(r.RESOURCE_CLAIMS, {"metadata": metadata, "spec": claim(8)})
    async with running(world):
        world.put(r.JOBS, claiming("share", shared="shared"))
        await world.pass_time(3)

        assert world.condition("share", "QuotaReserved")["reason"] == "Misconfigured"


async def test_a_template_that_comes_later_admits_the_job():
    world = furnished(templates=())
    async with running(world):
        world.put(r.JOBS, claiming("early", template="two"))
        await world.pass_time(3)
        condition = world.condition("early", "QuotaReserved")
        assert condition["reason"] == "Misconfigured"
        assert 'resourceclaimtemplates.resource.k8s.io "two" not found' in condition["message"]

        offer_template(world, "two", 2)
        await world.pass_time(3)
        assert world.suspended("early") is False


async def test_a_class_that_nobody_mapped_is_refused_and_nobody_waits_behind_it():
    world = furnished(queueingStrategy="StrictFIFO")
    offer_template(world, "other", 1, deviceClassName="other")
    async with running(world):
        world.put(r.JOBS, claiming("other", template="other"))
        await world.pass_time(3)
        world.put(r.JOBS, claiming("counted", template="two"))
        await world.pass_time(3)

        message = world.condition("other", "QuotaReserved")["message"]
        assert "DeviceClass other is not mapped in DRA configuration for podset main" in message
        assert world.suspended("other") is True
        assert world.suspended("counted") is False


async def test_devices_that_a_selector_needs_may_come():
    world = furnished()
    offer_template(world, "picky", 1, selectors=[SELECTED])
    async with running(world):
        world.put(r.JOBS, claiming("picky", template="picky"))
        await world.pass_time(3)
        message = world.condition("picky", "QuotaReserved")["message"]
        assert "0 device(s) match in the cluster but 1 requested" in message

        offer_slice(world, {"name": "gpu-0"})
        await world.pass_time(3)
        assert world.suspended("picky") is False


PART = "kueue_dra_integration_partitionable_devices"
CAPACITY = "kueue_dra_integration_consumable_capacity"
SPENT = {"counterSet": "gpu-0", "counters": {"memory": {"value": "10"}}}


@pytest.mark.gate("KueueDRAIntegrationPartitionableDevices")
@pytest.mark.gate("KueueDRAIntegrationConsumableCapacity")
@pytest.mark.parametrize(
    ("gate", "source", "part", "used"),
    [
        pytest.param(PART, "counter", ({}, {"consumesCounters": [SPENT]}), "10", id="a-partition"),
        pytest.param(
            CAPACITY,
            "capacity",
            (
                {"capacity": {"requests": {"memory": "4"}}},
                {"capacity": {"memory": {"value": "80"}}},
            ),
            "4",
            id="a-share-of-capacity",
        ),
    ],
)
@pytest.mark.parametrize("on", [True, False])
async def test_a_part_of_a_device_is_charged_by_what_it_takes_of_it(gate, source, part, used, on):
    asked, device = part
    world = furnished(
        on={gate: on},
        resources=mapped(**{source: {"name": "memory", "driver": DRIVER}}),
        templates=(),
        gpus=16,
    )
    offer_template(world, "part", 1, **asked)
    offer_slice(world, {"name": "gpu-0", **device})
    async with running(world):
        world.put(r.JOBS, claiming("part", template="part"))
        await world.pass_time(3)

        assert usage(world, "part") == {GPU: used if on else "1"}


def spent(memory, *, generation=1, name="n1", of=1):
    counters = {"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}
    pool = {"name": "n1", "generation": generation, "resourceSliceCount": of}
    devices = [{"name": f"gpu-{name}", "consumesCounters": [counters]}]
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": devices}
    return {"metadata": {"name": name}, "spec": spec}


ENORMOUS = spent("9" * 40)
OVER = "insufficient quota for"
NONE_MATCH = "insufficient matching devices for counter driver: 0 device(s) match but 1 requested"


@pytest.mark.parametrize(
    ("slices", "used"),
    [
        pytest.param([spent("10")], "10", id="good"),
        pytest.param([spent("-10")], "0", id="below-zero"),
        pytest.param([spent("-10"), spent("4", generation=2, name="n2")], "4", id="newer"),
        pytest.param([spent("9", generation=2), spent("1", name="n2")], "9", id="older-beside-it"),
        pytest.param([spent("9"), spent("1", name="n2")], None, id="more-slices-than-the-pool"),
        pytest.param([spent("9", of=2)], None, id="a-slice-is-missing"),
        pytest.param([ENORMOUS], None, id="beyond-the-quota"),
    ],
)
async def test_the_newest_complete_pool_counts_and_contradicting_slices_admit_nothing(slices, used):
    world = furnished(
        resources=mapped(counter={"name": "memory", "driver": DRIVER}),
        templates=(("part", 1),),
        gpus=16,
    )
    for each in slices:
        world.put(r.RESOURCE_SLICES, each)
    async with running(world):
        world.put(r.JOBS, claiming("part", template="part"))
        await world.pass_time(3)

        assert world.suspended("part") is (used is None)
        if used is not None:
            assert usage(world, "part") == {GPU: used}
        else:
            wanted = OVER if slices == [ENORMOUS] else NONE_MATCH
            assert wanted in world.condition("part", "QuotaReserved")["message"]


@pytest.mark.gate("KueueDRAIntegrationExtendedResource")
@pytest.mark.parametrize("kueue_dra_integration_extended_resource", [True, False])
async def test_an_extended_resource_is_charged_to_the_resource_of_its_class(
    kueue_dra_integration_extended_resource,
):
    on = kueue_dra_integration_extended_resource
    world = furnished(on={"kueue_dra_integration_extended_resource": on})
    offer_class(world, extendedResourceName="example.com/gpu")
    async with running(world):
        job = claiming("extended", template="two")
        amounts = {"example.com/gpu": "3"}
        resources = {"requests": amounts, "limits": amounts}
        spec = {"containers": [{"name": "main", "image": "train:1", "resources": resources}]}
        job["spec"]["template"]["spec"] = spec
        world.put(r.JOBS, job)
        await world.pass_time(3)

        assert world.suspended("extended") is not on  # no queue covers `example.com/gpu`
        if on:
            assert usage(world, "extended") == {GPU: "3"}


async def test_pods_within_their_claims_are_within_quota_and_others_are_reported():
    world = furnished()
    async with running(world):
        world.put(r.JOBS, claiming("train", template="two"))
        await world.pass_time(3)
        offer_template(world, "four", 4)
        claiming_pod(world, "within", template="two")
        claiming_pod(world, "beyond", template="four")
        await world.pass_time(30)

        assert reported(world) == {"beyond"}


@pytest.mark.parametrize(
    "count", [4, "All"], ids=["more-devices", "devices-that-cannot-be-counted"]
)
@pytest.mark.parametrize("owned_by", ["", "Pod"], ids=["", "as-if-made-for-a-pod"])
async def test_a_claim_that_is_another_one_since_the_admission_is_reported(count, owned_by):
    world = furnished()
    put_claim(world, "c", 2)
    async with running(world):
        world.put(r.JOBS, claiming("train", shared="c", pods=2))
        await world.pass_time(3)
        for name in ("a", "b"):
            claiming_pod(world, name, shared="c")
        await world.pass_time(30)
        assert reported(world) == set()

        world.delete(r.RESOURCE_CLAIMS, "c")
        put_claim(world, "c", count, owners=owned(owned_by, "p", api="v1") if owned_by else ())
        await world.pass_time(10)
        assert reported(world) == {"a", "b"}


@pytest.mark.parametrize("after", ["restored", "deleted"])
async def test_devices_of_a_template_that_was_another_one_for_a_moment_are_reported(after):
    world = furnished()
    async with running(world):
        world.put(r.JOBS, claiming("train", template="two", pods=2))
        await world.pass_time(3)
        world.delete(r.RESOURCE_CLAIM_TEMPLATES, "two")
        if after == "restored":
            offer_template(world, "two", 2)
        for name, count in (("within", 2), ("beyond", 8)):
            pod = claiming_pod(world, name, template="two")
            put_claim(world, f"{name}-gpus-x", count, owners=owned("Pod", name, api="v1"))
            made = [{"name": "gpus", "resourceClaimName": f"{name}-gpus-x"}]
            world.put(r.PODS, pod | {"status": {"resourceClaimStatuses": made}})
        await world.pass_time(10)

        assert reported(world) == {"beyond"}


async def test_a_pod_in_no_queue_takes_the_devices_of_the_claim_that_it_names():
    world = furnished()
    put_claim(world, "c", 4)
    async with running(world):
        pod = {
            "metadata": {"name": "p"},
            "spec": claiming("p", shared="c")["spec"]["template"]["spec"],
        }
        world.create(r.PODS, pod)
        await world.pass_time(10)

        assert f"takes 4 {GPU}" in world.events("OutsideQuota")[0]["message"]


def put_claim(world, name, count, owners=()):
    """Create a claim of a number of devices, or of all that there are."""
    metadata = {"name": name, "namespace": "ns", "ownerReferences": list(owners)}
    every = {"deviceClassName": CLASS, "allocationMode": "All"}
    spec = {"devices": {"requests": [{"name": "gpus", "exactly": every}]}}
    spec = spec if count == "All" else claim(count)
    world.put(r.RESOURCE_CLAIMS, {"metadata": metadata, "spec": spec})


def claiming_pod(world, name, job="train", *, limits=None, **asked):
    """Create a pod of a job as it comes past the webhooks."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "controller": True}
    spec = claiming(name, **asked)["spec"]["template"]["spec"]
    spec["containers"][0]["resources"] = {"limits": limits or {}}
    metadata = {
        "name": name,
        "labels": {POD_SET: "main"},
        "ownerReferences": [{**owner, "uid": world.get(r.JOBS, job)["metadata"]["uid"]}],
    }
    return world.create(r.PODS, {"metadata": metadata, "spec": spec})


def reported(world):
    return {e["involvedObject"]["name"] for e in world.events("OutsideQuota")}


SHORT = [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]


async def test_a_namespace_whose_claims_took_much_work_waits_with_the_reason_and_goes_on():
    world = furnished(templates=())
    offer_template(world, "plain", 1)
    offer_template(world, "first", 1, selectors=SHORT)
    offer_slice(world, {"name": "gpu-0"}, {"name": "gpu-1"})
    async with running(world):
        await world.pass_time(2)
        world.controller.cache.devices.rations.spend("ns", 5 * TURN)
        for name in ("plain", "first"):
            world.put(r.JOBS, claiming(name, template=name))
        await world.pass_time(2)
        assert world.suspended("plain") is False, "it takes no look at devices"
        assert world.suspended("first") is True
        waiting = world.condition("first", "QuotaReserved")
        assert waiting["reason"] == "Misconfigured"
        assert "counted in a later turn: those of the namespace `ns`" in waiting["message"]

        await world.pass_time(5)
        assert world.suspended("first") is False
        assert not world.controller.cache.devices.rations.busy


async def test_pods_are_not_reported_while_their_claims_wait_to_be_counted():
    world = furnished(templates=())
    offer_template(world, "c", 1, selectors=SHORT)
    offer_slice(world, {"name": "gpu-0"})
    async with running(world):
        await world.pass_time(2)
        world.put(r.JOBS, claiming("train", template="c"))
        await world.pass_time(3)
        world.controller.cache.devices.rations.spend("ns", 20 * TURN)
        offer_slice(world, {"name": "gpu-0"}, {"name": "gpu-1"})  # all is counted anew
        claiming_pod(world, "within", template="c")
        make_claims(world, "within")
        await world.pass_time(10)
        assert reported(world) == set()

        put_claim(world, "more", 4)
        claiming_pod(world, "beyond", shared="more")
        await world.pass_time(20)
        assert reported(world) == {"beyond"}


def make_claims(world, *pods):
    """Make the claims of pods from their templates, as Kubernetes does also for held pods."""
    for name in pods:
        made = []
        for each in world.get(r.PODS, name)["spec"]["resourceClaims"]:
            if template := each.get("resourceClaimTemplateName"):
                spec = world.get(r.RESOURCE_CLAIM_TEMPLATES, template)["spec"]["spec"]
                made.append({"name": each["name"], "resourceClaimName": f"{name}-{each['name']}"})
                metadata = {"name": f"{name}-{each['name']}", "namespace": "ns"}
                metadata["ownerReferences"] = owned("Pod", name, api="v1")
                world.put(r.RESOURCE_CLAIMS, {"metadata": metadata, "spec": spec})
        world.set_status(r.PODS, name, resourceClaimStatuses=made)


def elastic_claiming(world, **asked):
    """Create an elastic job of two pods with a claim each."""
    elastic_job(world, 2)
    job = world.get(r.JOBS, "train")
    template = job["spec"]["template"]
    claims = claiming("train", **asked)["spec"]["template"]["spec"]["resourceClaims"]
    spec = {**template["spec"], "containers": [{"name": "main"}], "resourceClaims": claims}
    world.put(r.JOBS, {**job, "spec": {**job["spec"], "template": {**template, "spec": spec}}})


def claiming_members(world, **asked):
    """Create a group of two pods with a claim each."""
    for name in ("a", "b"):
        claiming_member(world, name, **asked)
        make_claims(world, name)


def claiming_member(world, name, *, total=2, **asked):
    """Create a pod of a group as it comes past the webhooks, with a claim."""
    pod = world.pod(f"{name}-as-made", gpus=0, group="g", total=total)
    world.delete(r.PODS, f"{name}-as-made")
    del pod["metadata"]["resourceVersion"], pod["metadata"]["uid"]
    pod["metadata"]["name"] = name
    pod["spec"]["resourceClaims"] = claiming(name, **asked)["spec"]["template"]["spec"][
        "resourceClaims"
    ]
    return world.create(r.PODS, pod)


def is_held(world, name):
    return bool(gates(world.get(r.PODS, name)))


def replace_member(world, old, new, **asked):
    """Have a pod of the group fail, and create another one in its place."""
    world.set_status(r.PODS, old, phase="Failed")
    return claiming_member(world, new, **asked)


async def test_a_pod_whose_template_became_more_stays_held_and_another_one_goes():
    world = furnished()
    async with running(world):
        claiming_members(world, template="two")
        await world.pass_time(3)
        assert not is_held(world, "a")
        world.delete(r.RESOURCE_CLAIM_TEMPLATES, "two")
        offer_template(world, "two", 8)
        replace_member(world, "b", "d", template="two")
        make_claims(world, "d")
        await world.pass_time(10)
        assert is_held(world, "d")
        assert {e["involvedObject"]["name"] for e in world.events("MoreThanAdmitted")} == {"d"}

        world.delete(r.RESOURCE_CLAIM_TEMPLATES, "two")
        offer_template(world, "two", 2)
        replace_member(world, "d", "e", template="two")
        make_claims(world, "e")
        await world.pass_time(10)
        assert is_held(world, "d")
        assert not is_held(world, "e")


async def test_a_pod_whose_shared_claim_became_more_stays_held_until_it_is_as_admitted():
    world = furnished()
    put_claim(world, "c", 2)
    async with running(world):
        claiming_members(world, shared="c")
        await world.pass_time(3)
        assert not is_held(world, "a")
        world.delete(r.RESOURCE_CLAIMS, "c")
        put_claim(world, "c", 8)
        await world.pass_time(1)
        replace_member(world, "b", "d", shared="c")
        await world.pass_time(10)
        assert is_held(world, "d")

        world.delete(r.RESOURCE_CLAIMS, "c")
        put_claim(world, "c", 2)
        await world.pass_time(10)
        assert not is_held(world, "d")


async def test_a_pod_for_which_no_claim_can_be_made_goes_once_one_is_made_as_admitted():
    world = furnished()
    async with running(world):
        claiming_members(world, template="two")
        await world.pass_time(3)
        world.delete(r.RESOURCE_CLAIM_TEMPLATES, "two")
        replace_member(world, "b", "d", template="two")
        await world.pass_time(15)
        assert is_held(world, "d")
        assert "cannot be counted any more" in world.events("MoreThanAdmitted")[-1]["message"]
        offer_template(world, "two", 2)
        await world.pass_time(5)
        assert is_held(world, "d"), "the template may be replaced again until the claim is made"

        make_claims(world, "d")
        await world.pass_time(3)
        assert not is_held(world, "d")


async def test_a_held_pod_waits_for_its_claim_where_others_have_theirs():
    world = furnished()
    async with running(world):
        await world.pass_time(2)
        claiming_members(world, template="two")
        await world.pass_time(3)
        replace_member(world, "b", "late", template="two")
        await world.pass_time(60)
        assert is_held(world, "late")

        make_claims(world, "late")
        await world.pass_time(12)
        assert not is_held(world, "late")


async def test_a_held_pod_goes_without_a_claim_where_none_is_made_for_it():
    world = furnished()
    async with running(world):
        for name in ("a", "b"):
            claiming_member(world, name, template="two")
        await world.pass_time(5)
        assert is_held(world, "a")

        await world.pass_time(10)
        assert not is_held(world, "a")


async def test_a_claim_that_was_made_for_a_held_pod_counts_and_not_its_template():
    world = furnished()
    async with running(world):
        claiming_members(world, template="two")
        await world.pass_time(3)
        for old, name, count in (("a", "within", 2), ("b", "beyond", 8)):
            put_claim(world, f"{name}-gpus-x", count, owners=owned("Pod", name, api="v1"))
            replace_member(world, old, name, template="two")
            made = [{"name": "gpus", "resourceClaimName": f"{name}-gpus-x"}]
            world.set_status(r.PODS, name, resourceClaimStatuses=made)
        await world.pass_time(10)

        assert not is_held(world, "within")
        assert is_held(world, "beyond")
        (event,) = world.events("MoreThanAdmitted")
        assert f"it would take 8 of {GPU}, and was admitted with 2" in event["message"]


async def test_a_pod_goes_with_the_template_of_before_whatever_its_devices_became():
    world = furnished(
        resources=mapped(counter={"name": "memory", "driver": DRIVER}), templates=(), gpus=16
    )
    offer_template(world, "c", 1)
    world.put(r.RESOURCE_SLICES, spent("2"))
    async with running(world):
        await world.pass_time(2)
        claiming_members(world, template="c")
        await world.pass_time(3)
        assert not is_held(world, "a")
        world.put(r.RESOURCE_SLICES, spent("12", generation=2))
        replace_member(world, "b", "d", template="c")
        make_claims(world, "d")
        await world.pass_time(10)

        assert not is_held(world, "d")


async def test_a_pod_that_is_added_to_an_elastic_job_stays_held_while_it_would_get_more_devices():
    world = furnished()
    async with running(world):
        elastic_claiming(world, template="two")
        await world.pass_time(3)
        make_pods(world, "a")
        make_claims(world, "a")
        await world.pass_time(2)
        assert waiting(world) == set()
        world.delete(r.RESOURCE_CLAIM_TEMPLATES, "two")
        offer_template(world, "two", 8)
        make_pods(world, "b")
        make_claims(world, "b")
        await world.pass_time(2)
        assert waiting(world) == {"b"}
        assert "was admitted with 2" in world.events("MoreThanAdmitted")[0]["message"]


async def test_without_a_mapping_nothing_about_devices_is_read():
    world = World()
    world.furnish()
    async with running(world):
        world.job("plain", gpus=1)
        await world.pass_time(3)

        assert world.suspended("plain") is False
        assert all(len(mirror) == 0 for mirror in world.controller.mirrors.devices.all())
        assert world.controller.cache.devices is None


async def test_the_devices_of_nodes_follow_slices_classes_and_claims():
    world = furnished()
    async with running(world):
        devices = world.controller.cache.devices
        offer_slice(world, {"name": "a"}, {"name": "b"})
        await world.pass_time(1)
        assert (await devices.on_nodes()).of_node("n1") == ({GPU: 2}, {GPU: 2})

        allocated(world, "a", owners=owned("Pod", "p", api="v1"))
        await world.pass_time(1)
        assert (await devices.on_nodes()).of_node("n1") == ({GPU: 2}, {GPU: 1})

        offer_class(world, selectors=[{"cel": {"expression": "device.driver == 'other'"}}])
        await world.pass_time(1)
        assert (await devices.on_nodes()).of_node("n1") == ({}, {})


def allocated(world, *devices, owners=()):
    results = [{"driver": DRIVER, "pool": "n1", "device": each} for each in devices]
    metadata = {"name": "c", "namespace": "ns", "ownerReferences": list(owners)}
    status = {"allocation": {"devices": {"results": results}}}
    world.put(r.RESOURCE_CLAIMS, {"metadata": metadata, "status": status})

"""What pods are charged for devices: by claims made for them, shared claims, extended resources."""

from dataclasses import replace

import msgspec
import pytest

from policyd.api.configuration.kinds import DeviceClassMapping
from policyd.api.meta import ObjectMeta
from policyd.api.pods import PodSpec
from policyd.devices.amounts import CountedLaterError, DeviceCountError
from policyd.devices.claims import ChargeRules, DeviceGates
from policyd.devices.counting import DeviceCounter
from policyd.devices.inventory import Inventory
from policyd.devices.mappings import DeviceMappings
from policyd.devices.matching import COST_LIMIT, MOST_SEEN
from policyd.devices.objects import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from policyd.devices.rations import Rations

DRIVER = "gpu.example.com"
WHERE = "spec.podSets[0].template.spec"
PLAIN = {"name": "gpus", "deviceClassNames": ["gpu", "mig"]}
MEMORY = {
    "name": "gpu-memory",
    "deviceClassNames": ["gpu"],
    "sources": [
        {
            "counter": {
                "name": "memory",
                "driver": DRIVER,
                "deviceSelector": {"cel": {"expression": f"device.driver == '{DRIVER}'"}},
            }
        }
    ],
}
SHARED_MEMORY = {
    "name": "gpu-memory",
    "deviceClassNames": ["gpu"],
    "sources": [
        {
            "capacity": {
                "name": "memory",
                "driver": DRIVER,
                "deviceSelector": {"cel": {"expression": "device.allowMultipleAllocations"}},
            }
        }
    ],
}


def device_class(name, *, worst=False, **spec):
    annotations = {"policyd.io/count-worst-case": "true"} if worst else {}
    body = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
    return msgspec.convert(body, DeviceClass)


def exactly(number=1, *, of="gpu", selector="", **fields):
    selectors = [{"cel": {"expression": selector}}] if selector else []
    asked = {"deviceClassName": of, "allocationMode": "ExactCount", "count": number}
    return {"exactly": {**asked, "selectors": selectors, **fields}}


def one_of(*alternatives):
    return {"firstAvailable": [each["exactly"] for each in alternatives]}


def offer(*devices, node="n1", slices=1):
    pool = {"name": node, "generation": 1, "resourceSliceCount": slices}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(devices)}
    return msgspec.convert({"metadata": {"name": node}, "spec": spec}, ResourceSlice)


def gpu(name, memory="80Gi", **fields):
    attributes = {"model": {"string": "a100"}, "driverVersion": {"version": "1.2.3"}}
    spent = [{"counterSet": "set", "counters": {"memory": {"value": memory}}}]
    capacity = {"memory": {"value": memory}}
    body = {"attributes": attributes, "capacity": capacity, "consumesCounters": spent}
    return {"name": name, **body, **fields}


def counter(*requests, mappings=(PLAIN,), classes=(), slices=(), consumable=False, **gates):
    """Return a counter of a cluster with one template, `t`, and one claim, `c`."""
    spec = {"devices": {"requests": list(requests)}}
    named = {"name": "t", "namespace": "ns", "uid": "u"}
    template = msgspec.convert({"metadata": named, "spec": {"spec": spec}}, ResourceClaimTemplate)
    claim = msgspec.convert(
        {"metadata": {"name": "c", "namespace": "ns"}, "spec": spec}, ResourceClaim
    )
    given = classes or (device_class("gpu"), device_class("mig"))
    return DeviceCounter(
        rules=ChargeRules(
            DeviceMappings.of(msgspec.convert(list(mappings), list[DeviceClassMapping])),
            DeviceGates(consumable=consumable, **gates),
        ),
        classes={each.metadata.name: each for each in given}.get,
        templates={"ns/t": template}.get,
        claims={"ns/c": claim}.get,
        backing=lambda name: [c for c in given if c.spec.extended_resource_name == name],
        inventory=Inventory(slices),
    )


def pod(**spec):
    return msgspec.convert({"resourceClaims": [claimed()], **spec}, PodSpec)


def claimed(template="t"):
    return {"name": "gpus", "resourceClaimTemplateName": template}


def charge(found, spec=None):
    return found.of_templates(spec or pod(), "ns", WHERE, "main")


def refusal(found, spec=None):
    with pytest.raises(DeviceCountError) as error:
        charge(found, spec)
    return str(error.value)


OF_CLASS = "deviceclass.resource.kubernetes.io/"


@pytest.mark.parametrize(
    ("requests", "wanted"),
    [
        pytest.param([exactly(2), exactly(1)], {"gpu": 3}, id="exact"),
        pytest.param([exactly(2), exactly(1, of="mig")], {"gpu": 2, "mig": 1}, id="two-classes"),
        pytest.param([exactly(8, adminAccess=True)], {}, id="admin-access"),
        pytest.param([one_of(exactly(4), exactly(2))], {"gpu": 2}, id="the-fewest-of-alternatives"),
        pytest.param([one_of(exactly(4), exactly(2, of="mig"))], {"gpu": 0, "mig": 0}, id="either"),
        pytest.param([exactly(allocationMode="All")], {"gpu": 2}, id="all-of-the-fullest-node"),
    ],
)
def test_a_pod_takes_devices_of_its_node(requests, wanted):
    classes = [device_class(name, worst=True) for name in ("gpu", "mig")]
    slices = [offer(gpu("a"), gpu("b")), offer(gpu("c"), node="n2")]
    found = counter(*requests, classes=classes, slices=slices)

    amounts = found.of_node(pod(), "ns")
    assert amounts == {OF_CLASS + name: amount for name, amount in wanted.items()}


def test_a_pod_takes_the_devices_of_extended_resources_of_its_node_and_none_that_pods_share():
    classes = [device_class("gpu", extendedResourceName="x.io/gpu")]
    found = counter(exactly(2), classes=classes)
    container = {"name": "c", "resources": {"requests": {"x.io/gpu": "3"}}}
    shared = {"name": "s", "resourceClaimName": "c"}

    spec = pod(containers=[container], resourceClaims=[claimed(), shared])
    assert found.of_node(spec, "ns") == {"x.io/gpu": 5}


@pytest.mark.parametrize(
    ("requests", "wanted"),
    [
        pytest.param([exactly(2)], {"gpus": 2}, id="exact"),
        pytest.param([exactly(2), exactly(1, of="mig")], {"gpus": 3}, id="two-classes"),
        pytest.param([exactly(8, adminAccess=True)], {}, id="admin-access-is-free"),
        pytest.param([exactly(2**63 - 1), exactly(5)], {"gpus": 2**63 - 1}, id="huge"),
        pytest.param([exactly(-3)], {"gpus": 0}, id="negative"),
    ],
)
def test_counts_of_a_template(requests, wanted):
    assert charge(counter(*requests)) == wanted


def test_two_claims_of_one_template_count_twice():
    assert charge(counter(exactly(2)), pod(resourceClaims=[claimed(), claimed()])) == {"gpus": 4}


def test_a_named_claim_is_shared_and_not_charged_to_each_pod():
    spec = pod(resourceClaims=[{"name": "gpus", "resourceClaimName": "c"}])
    found = counter(exactly(2))

    assert charge(found, spec) == {}
    assert found.of_shared_claims(spec, "ns", WHERE, "main") == {"gpus": 2}


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        pytest.param(
            exactly(of="unknown"),
            'resourceClaims[0].resourceClaimTemplateName: Not found: "DeviceClass unknown is not'
            ' mapped in DRA configuration for podset main"',
            id="unmapped",
        ),
        pytest.param(
            exactly(allocationMode="All"),
            'requests[0].exactly.allocationMode: Invalid value: "All": ResourceClaimTemplate t:'
            " AllocationMode 'All' is not supported",
            id="all",
        ),
        pytest.param(
            one_of(exactly(1)),
            "requests[0]: Invalid value: null: ResourceClaimTemplate t: FirstAvailable device"
            " selection is not supported",
            id="alternatives",
        ),
        pytest.param({}, "Exactly must be set if FirstAvailable is nil", id="neither"),
        pytest.param(
            exactly(selector="device.nothing"), "CEL compilation failed", id="selector-unknown"
        ),
        pytest.param(exactly(selector="1 + 1"), "CEL compilation failed", id="selector-no-bool"),
        pytest.param(
            exactly(9, selector="device.driver.startsWith('gpu')"),
            "2 device(s) match in the cluster but 9 requested",
            id="too-few",
        ),
        pytest.param(
            exactly(selector="device.attributes['gpu.example.com'].absent == 1"),
            "CEL evaluation failed for DeviceClass gpu: no such key: absent",
            id="no-such-attribute",
        ),
        pytest.param(
            exactly(selector="[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b,"
            " [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e,"
            " [1,2,3,4,5,6,7,8,9].all(f, a+b+c+d+e+f > 0))))))"),
            "CEL evaluation failed for DeviceClass gpu: operation cancelled: actual cost limit",
            id="too-expensive",
        ),
    ],
)  # fmt: skip
def test_refusals(request_, wanted):
    slices = [offer(gpu("a"), gpu("b"))]

    assert wanted in refusal(counter(request_, slices=slices))


def test_looks_at_many_devices_cost_even_if_the_selectors_do_not():
    slices = [offer(*(gpu(f"g{number}") for number in range(500)))]
    requests = [exactly(selector=f"false && {number} > 0") for number in range(32)]

    assert "500 requested" not in refusal(counter(*requests, slices=slices))
    many = [offer(*(gpu(f"g{number}") for number in range(20_000)))]
    assert "actual cost limit" in refusal(counter(*requests, slices=many))


def many_gpus(number):
    return [offer(*(gpu(f"g{each}") for each in range(number)))]


def work_of(found):
    """Count the claim of a counter; return the work that it took, and the verdict."""
    before = found.inventory.seen.work
    try:
        verdict = charge(found)
    except DeviceCountError as error:
        verdict = str(error)
    return found.inventory.seen.work - before, verdict


ANOTHER = "device.driver == 'another'"


def test_a_selector_looks_once_at_each_device_whatever_claims_it_is_in():
    first = counter(exactly(selector=ANOTHER), slices=many_gpus(1_000))
    second = counter(exactly(selector=ANOTHER), exactly(2, of="mig", selector=ANOTHER))
    second = replace(second, inventory=first.inventory)

    whole, verdict = work_of(first)
    again, _ = work_of(second)

    assert "0 device(s) match" in verdict
    assert whole > 1_000 * 100
    assert again == 2 * 1_000 * 3


def test_claims_that_are_alike_are_counted_once_whoever_has_them():
    found = counter(exactly(selector=ANOTHER), slices=many_gpus(100))
    twin = msgspec.structs.replace(found.templates("ns/t"), metadata=ObjectMeta(uid="other"))

    work_of(found)
    again, _ = work_of(replace(found, templates=lambda _key: twin))

    assert again == 0


@pytest.mark.parametrize("devices", [500, 30_000])
def test_the_work_of_one_claim_is_bounded_however_many_devices_there_are(devices):
    requests = [exactly(selector=f"{ANOTHER} && {number} > 0") for number in range(32)]

    work, _ = work_of(counter(*requests, slices=many_gpus(devices)))

    assert work <= COST_LIMIT + 100 * min(devices, MOST_SEEN) + 1_000


def test_the_verdict_on_a_claim_does_not_depend_on_what_was_counted_before():
    requests = [exactly(selector=f"{ANOTHER} && {number} > 0") for number in range(32)]
    alone = counter(*requests, slices=many_gpus(5_000))
    _, verdict = work_of(alone)
    assert "actual cost limit" in verdict

    for each in requests:
        work_of(replace(counter(each), inventory=alone.inventory))
    again = replace(counter(*requests), inventory=alone.inventory)
    work, found = work_of(again)

    assert found == verdict
    assert work < COST_LIMIT // 5


def test_a_namespace_that_had_its_share_waits_unless_nothing_is_to_be_looked_at():
    rations = Rations()
    rations.spend("ns", 2 * COST_LIMIT)
    looks = counter(exactly(selector=ANOTHER), slices=many_gpus(1))

    assert charge(replace(counter(exactly(3)), rations=rations)) == {"gpus": 3}
    with pytest.raises(CountedLaterError, match="namespace `ns`"):
        charge(replace(looks, rations=rations))
    while rations.busy:
        rations.next_turn()
    assert "0 device(s) match" in refusal(replace(looks, rations=rations))
    assert rations.busy


def test_the_selectors_of_a_claim_have_a_length_together():
    long = f"device.driver != '{'x' * 9_000}'"

    assert charge(counter(exactly(selector=long), slices=[offer(gpu("a"))])) == {"gpus": 1}
    found = refusal(counter(exactly(selector=long), exactly(selector=long)))
    assert "all selectors together have at most 16,384 characters" in found


def test_a_template_that_is_not_there_may_come():
    with pytest.raises(DeviceCountError) as error:
        charge(counter(exactly()), pod(resourceClaims=[claimed("absent")]))

    (found,) = error.value.errors
    assert found.problem == "Internal"
    assert 'resourceclaimtemplates.resource.k8s.io "absent" not found' in str(found)


@pytest.mark.parametrize(
    "selector",
    [
        "device.attributes['gpu.example.com'].model == 'a100'",
        "device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('40Gi'))",
        "device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('1.0.0'))",
        "device.attributes['other.example.com'].?model.orValue('none') == 'none'",
    ],
)
def test_selectors_see_attributes_and_capacity_by_domain(selector):
    slices = [offer(gpu("a"))]

    assert charge(counter(exactly(selector=selector), slices=slices)) == {"gpus": 1}


class TestWorstCase:
    CLASSES = (device_class("gpu", worst=True), device_class("mig", worst=True))

    def test_all_devices_of_the_node_with_the_most(self):
        slices = [offer(gpu("a"), gpu("b")), offer(gpu("c"), node="n2")]
        found = counter(exactly(allocationMode="All"), classes=self.CLASSES, slices=slices)

        assert charge(found) == {"gpus": 2}

    def test_devices_that_nodes_share_come_on_top(self):
        slices = [offer(gpu("a")), offer(gpu("b"), node="")]
        found = counter(exactly(allocationMode="All"), classes=self.CLASSES, slices=slices)

        assert charge(found) == {"gpus": 2}

    def test_all_of_none_waits_for_devices(self):
        found = counter(exactly(allocationMode="All"), classes=self.CLASSES)

        assert "no device of DeviceClass gpu matches" in refusal(found)

    def test_the_largest_alternative_counts_for_each_resource(self):
        other = {"name": "parts", "deviceClassNames": ["mig"]}
        alternatives = one_of(exactly(1), exactly(4, of="mig"), exactly(2))
        mappings = ({**PLAIN, "deviceClassNames": ["gpu"]}, other)

        found = counter(alternatives, classes=self.CLASSES, mappings=mappings)
        assert charge(found) == {"gpus": 2, "parts": 4}

    def test_one_class_that_does_not_allow_it_refuses_all_alternatives(self):
        classes = (device_class("gpu", worst=True), device_class("mig"))
        found = counter(one_of(exactly(1), exactly(1, of="mig")), classes=classes)

        assert "FirstAvailable device selection is not supported" in refusal(found)


class TestCounters:
    def test_the_largest_device_counts_times_the_number(self):
        slices = [offer(gpu("a", "10Gi"), gpu("b", "40Gi"))]
        found = counter(exactly(2), mappings=[MEMORY], slices=slices)

        assert charge(found) == {"gpu-memory": 80 * 2**30}

    def test_a_pool_of_which_slices_are_missing_has_no_devices(self):
        slices = [offer(gpu("a"), slices=2)]
        found = counter(exactly(), mappings=[MEMORY], slices=slices)

        assert "0 device(s) match but 1 requested" in refusal(found)

    def test_an_older_generation_does_not_count(self):
        new = msgspec.to_builtins(offer(gpu("a", "10Gi")))
        new["spec"]["pool"]["generation"] = 2
        slices = [offer(gpu("a", "40Gi")), msgspec.convert(new, ResourceSlice)]

        found = counter(exactly(), mappings=[MEMORY], slices=slices)
        assert charge(found) == {"gpu-memory": 10 * 2**30}

    def test_an_amount_that_is_none_is_the_drivers_fault(self):
        slices = [offer(gpu("a", "much"))]

        assert "Internal error" in refusal(counter(exactly(), mappings=[MEMORY], slices=slices))

    def test_devices_without_the_counter(self):
        slices = [offer({"name": "a"})]
        found = counter(exactly(), mappings=[MEMORY], slices=slices)

        assert 'no consumesCounters entry for counter "memory"' in refusal(found)

    def test_without_the_gate_devices_are_counted(self):
        found = counter(exactly(2), mappings=[MEMORY], partitionable=False)

        assert charge(found) == {"gpu-memory": 2}


class TestCapacity:
    SLICES = (offer(gpu("a", allowMultipleAllocations=True)),)

    def test_what_a_request_takes_counts(self):
        asked = exactly(capacity={"requests": {"memory": "10Gi"}})
        found = counter(asked, mappings=[SHARED_MEMORY], slices=self.SLICES, consumable=True)

        assert charge(found) == {"gpu-memory": 10 * 2**30}

    def test_without_an_amount_all_of_the_device_counts(self):
        found = counter(exactly(), mappings=[SHARED_MEMORY], slices=self.SLICES, consumable=True)

        assert charge(found) == {"gpu-memory": 80 * 2**30}


class TestExtendedResources:
    CLASSES = (
        device_class("gpu", extendedResourceName="example.com/gpu"),
        device_class("mig"),
    )

    def found(self, *, requests, **fields):
        resources = {"requests": requests}
        spec = pod(resourceClaims=[], containers=[{"name": "c", "resources": resources}], **fields)
        return counter(classes=self.CLASSES, **self.given).of_extended_resources(spec, WHERE)[:2]

    given = {}

    def test_they_are_charged_to_the_resource_of_the_class(self):
        amounts, replaced = self.found(requests={"example.com/gpu": "2", "cpu": "1"})

        assert (amounts, replaced) == ({"gpus": 2}, {"example.com/gpu"})

    def test_a_class_has_an_extended_resource_by_its_name(self):
        name = "deviceclass.resource.kubernetes.io/mig"
        amounts, replaced = self.found(requests={name: "2"})

        assert (amounts, replaced) == ({"gpus": 2}, {name})

    def test_a_sidecar_has_its_devices_beside_the_others(self):
        sidecar = {
            "name": "s",
            "restartPolicy": "Always",
            "resources": {"limits": {"example.com/gpu": "1"}},
        }
        amounts, _ = self.found(requests={"example.com/gpu": "2"}, initContainers=[sidecar])

        assert amounts == {"gpus": 3}

    def test_without_the_gate_they_count_as_themselves(self):
        self.given = {"extended_resources": False}

        assert self.found(requests={"example.com/gpu": "2"}) == ({}, frozenset())

    def test_no_class_with_counters_can_back_one(self):
        self.given = {"mappings": [MEMORY]}
        with pytest.raises(DeviceCountError, match="with counters configured"):
            self.found(requests={"example.com/gpu": "2"})

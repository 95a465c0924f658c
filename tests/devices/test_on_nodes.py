"""Devices of nodes that pods get by claims: how many, which are free, and which claim has them."""

import msgspec
import pytest

from policyd.api.configuration.kinds import DeviceClassMapping
from policyd.devices.mappings import DeviceMappings
from policyd.devices.objects import ResourceClaim, ResourceSlice
from policyd.devices.on_nodes import device_offer
from tests.devices.test_counting import DRIVER, MEMORY, device_class, gpu, offer

GPU, CLASS = "nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu"
A100 = {"cel": {"expression": f"device.attributes['{DRIVER}'].model == 'a100'"}}


def mapped(*given):
    return DeviceMappings.of(msgspec.convert(list(given), list[DeviceClassMapping]))


def claim(name, *devices, pods=("p",), node="n1", **fields):
    """Return a claim that has devices of a node."""
    results = [{"driver": DRIVER, "pool": node, "device": each, **fields} for each in devices]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": each} for each in pods],
    }
    body = {"metadata": {"name": name, "namespace": "ns"}, "status": status}
    return msgspec.convert(body, ResourceClaim)


def counted(offered, *claims, node="n1"):
    return offered.use(claims).of_node(node)


def whole(name, **fields):
    """Return a GPU that is not divided."""
    return gpu(name, consumesCounters=[], **fields)


def two(**fields):
    return [offer(whole("a", **fields), whole("b", **fields))]


def test_devices_of_a_node_are_free_until_a_claim_has_them():
    found = device_offer(two(), [device_class("gpu", selectors=[A100])])

    assert counted(found) == ({CLASS: 2}, {CLASS: 2})
    assert counted(found, claim("c", "a")) == ({CLASS: 2}, {CLASS: 1})
    assert counted(found, claim("c", "a"), node="n2") == ({}, {})
    (held,) = found.use([claim("c", "a", "b", pods=("p", "q"))]).held
    assert held == ("ns/c", ("ns/p", "ns/q"), "n1", {CLASS: 2})


@pytest.mark.parametrize(
    ("class_", "mappings", "resource"),
    [
        pytest.param({}, mapped(), CLASS, id="by-its-class"),
        pytest.param({"extendedResourceName": GPU}, mapped(), GPU, id="by-the-extended-resource"),
        pytest.param(
            {"extendedResourceName": "x.io/gpu"},
            mapped({"name": GPU, "deviceClassNames": ["gpu"]}),
            GPU,
            id="by-the-configuration",
        ),
        pytest.param({}, mapped(MEMORY), CLASS, id="charged-by-a-counter"),
        pytest.param(
            {}, mapped({"name": "cpu", "deviceClassNames": ["gpu"]}), CLASS, id="mapped-to-cpu"
        ),
    ],
)  # fmt: skip
def test_devices_are_counted_as_what_pods_request(class_, mappings, resource):
    found = device_offer(two(), [device_class("gpu", **class_)], mappings)

    assert counted(found).total == {resource: 2}


def test_a_device_that_two_claims_share_is_in_use_once_and_admin_access_uses_none():
    found = device_offer(two(allowMultipleAllocations=True), [device_class("gpu")])

    use = found.use([claim("admin", "b", adminAccess=True), claim("c", "a"), claim("d", "a")])
    assert [(each.claim, each.amounts) for each in use.held] == [("ns/c", {CLASS: 1})]
    assert use.of_node("n1").free == {CLASS: 1}


@pytest.mark.parametrize(
    ("held", "charged", "left"),
    [
        pytest.param([], {}, 2, id="nothing-in-use"),
        pytest.param([("c", "a", ("p",))], {}, 1, id="of-a-pod-of-others"),
        pytest.param([("c", "a", ("p",))], {"ns/p": 1}, 2, id="of-a-pod-that-is-charged"),
        pytest.param([("c", "ab", ("p",))], {"ns/p": 1}, 1, id="more-than-is-charged"),
        pytest.param(
            [("c", "a", ("p",)), ("d", "b", ("p",))], {"ns/p": 2}, 2, id="two-claims-of-a-pod"
        ),
        pytest.param([("c", "a", ("p", "q"))], {"ns/p": 1, "ns/q": 1}, 1, id="pods-share-it"),
        pytest.param([("c", "a", ())], {}, 1, id="of-no-pod"),
    ],
)
def test_devices_are_left_for_placed_pods_as_far_as_others_have_none(held, charged, left):
    found = device_offer(two(), [device_class("gpu")])
    use = found.use([claim(name, *devices, pods=pods) for name, devices, pods in held])

    rooms = use.rooms(lambda pod, resource: charged.get(pod, 0) if resource == CLASS else 0)
    assert rooms == {"n1": ({CLASS: 2}, {CLASS: left})}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(offer(whole("net"), node=""), id="one-that-nodes-share"),
        pytest.param(offer(whole("c", allowMultipleAllocations=True)), id="one-that-claims-share"),
    ],
)
def test_nodes_have_no_number_of_devices_that_several_can_use(more):
    one = offer(whole("a"), node="n2")

    assert device_offer([one], [device_class("gpu")]).use([]).bounded == {CLASS}
    assert device_offer([one, more], [device_class("gpu")]).use([]).bounded == set()


def test_a_device_of_two_classes_counts_for_both():
    classes = [device_class("gpu"), device_class("big", selectors=[A100])]
    found = device_offer(two(), classes)
    big = "deviceclass.resource.kubernetes.io/big"

    assert counted(found, claim("c", "a")) == ({CLASS: 2, big: 2}, {CLASS: 1, big: 1})


def partition(name, memory, kind):
    return gpu(name, memory, attributes={"kind": {"string": kind}})


def test_partitions_of_a_gpu_are_free_as_far_as_the_rest_of_it_goes():
    body = offer(
        partition("whole", "80Gi", "gpu"),
        *(partition(f"half-{n}", "40Gi", "mig") for n in range(3)),
        *(partition(f"tenth-{n}", "8Gi", "mig") for n in range(2)),
    )
    counters = [{"name": "set", "counters": {"memory": {"value": "80Gi"}}}]
    raw = msgspec.to_builtins(body)
    raw["spec"]["sharedCounters"] = counters
    kind = f"device.attributes['{DRIVER}'].kind == "
    classes = [
        device_class(name, selectors=[{"cel": {"expression": f"{kind}'{name}'"}}])
        for name in ("gpu", "mig")
    ]
    found = device_offer([msgspec.convert(raw, ResourceSlice)], classes)
    mig = "deviceclass.resource.kubernetes.io/mig"

    assert counted(found).total == {CLASS: 1, mig: 3}, "two tenths and a half"
    assert counted(found, claim("c", "half-0")) == ({CLASS: 0, mig: 3}, {CLASS: 0, mig: 2})
    assert counted(found, claim("c", "whole")) == ({CLASS: 1, mig: 0}, {CLASS: 0, mig: 0})


def test_a_device_that_takes_less_than_nothing_of_a_counter_makes_no_room_for_others():
    body = offer(
        partition("odd", "-80Gi", "mig"), *(partition(f"half-{n}", "40Gi", "mig") for n in range(4))
    )
    raw = msgspec.to_builtins(body)
    raw["spec"]["sharedCounters"] = [{"name": "set", "counters": {"memory": {"value": "80Gi"}}}]

    found = device_offer([msgspec.convert(raw, ResourceSlice)], [device_class("gpu")])

    assert counted(found).total == {CLASS: 2}


def test_a_tainted_device_counts_only_while_it_is_in_use():
    found = device_offer(
        two(taints=[{"key": "sick", "effect": "NoSchedule"}]), [device_class("gpu")]
    )

    assert counted(found) == ({CLASS: 0}, {CLASS: 0})
    assert counted(found, claim("c", "a")) == ({CLASS: 1}, {CLASS: 0})


@pytest.mark.parametrize(
    ("selector", "reason"),
    [
        pytest.param("device.nothing", "devices of DeviceClass gpu: ", id="does-not-compile"),
        pytest.param(
            f"device.attributes['{DRIVER}'].absent == 1",
            "devices of DeviceClass gpu: its selector fails on device a: no such key: absent",
            id="fails",
        ),
    ],
)
def test_a_class_whose_selector_fails_is_left_out_with_the_reason(selector, reason):
    classes = [device_class("gpu", selectors=[{"cel": {"expression": selector}}])]
    found = device_offer(two(), classes)

    assert counted(found) == ({}, {})
    (sentence,) = found.left_out
    assert sentence.startswith(reason)


def test_devices_that_nodes_share_and_older_generations_are_no_devices_of_a_node():
    old, shared = offer(whole("old")), offer(whole("net"), node="")
    raw = msgspec.to_builtins(offer(whole("new")))
    raw["spec"]["pool"]["generation"] = 2
    found = device_offer([old, msgspec.convert(raw, ResourceSlice), shared], [device_class("gpu")])

    assert counted(found).total == {CLASS: 1}
    assert found.left_out == (f"devices of {DRIVER} that are not of one node",)
    assert found.backed == {CLASS}

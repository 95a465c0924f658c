"""The claims of a pod that is held, against what its workload was admitted with."""

from types import MappingProxyType

import msgspec
import pytest

from policyd.api.configuration.kinds import DeviceClassMapping
from policyd.api.kueue import Workload
from policyd.api.meta import rfc3339
from policyd.devices.claims import ChargeRules
from policyd.devices.counting import DeviceCounter
from policyd.devices.mappings import DeviceMappings
from policyd.devices.objects import DeviceClass, ResourceClaim, ResourceClaimTemplate
from policyd.jobs.pods import QueuedPod
from policyd.jobs.requests import RequestRules
from policyd.workload.admitted_claims import HeldClaims, Hold

CREATED = 1_800_000_000.0
CHANGED = Hold("a template of its claims has changed since, and its claim is not made yet", 10)
BEFORE, RESERVED, AFTER = (f"2026-01-01T00:00:0{second}Z" for second in (1, 2, 3))
CLASSES = {"gpu": "gpus", "fpga": "fpgas"}


def claim_spec(count, of="gpu"):
    asked = {"deviceClassName": of, "allocationMode": "ExactCount", "count": count}
    return {"devices": {"requests": [{"exactly": asked}]}}


def template(count, created=AFTER, of="gpu"):
    body = {"metadata": {"creationTimestamp": created}, "spec": {"spec": claim_spec(count, of)}}
    return msgspec.convert(body, ResourceClaimTemplate)


def claim(count, created=AFTER, of="gpu"):
    body = {"metadata": {"creationTimestamp": created}, "spec": claim_spec(count, of)}
    return msgspec.convert(body, ResourceClaim)


def pod(*claims):
    """A pod with claims: `+name` is one that pods share, `name` one from a template."""
    asked = [
        {"name": each, "resourceClaimName": each[1:]}
        if each.startswith("+")
        else {"name": each, "resourceClaimTemplateName": each}
        for each in claims
    ]
    return {"spec": {"containers": [{"name": "main"}], "resourceClaims": asked}}


def held(pod_sets, objects, *, free=False, always=False):
    """Return what decides in a cluster with these objects.

    Args:
        pod_sets: Their pods, numbers and usage, by name.
        objects: Claims and templates by name.
        free: Whether resources without quota are free.
        always: Whether Kubernetes is known to make the claims of held pods.
    """
    assignments = [
        {"name": name, "count": count, "resourceUsage": usage}
        for name, (_, count, usage) in pod_sets.items()
    ]
    reserved = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": RESERVED}
    workload = {
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {
            "podSets": [
                {"name": name, "count": count, "template": template}
                for name, (template, count, _) in pod_sets.items()
            ]
        },
        "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": assignments},
            "conditions": [reserved],
        },
    }
    mappings = [
        msgspec.convert({"name": resource, "deviceClassNames": [name]}, DeviceClassMapping)
        for name, resource in CLASSES.items()
    ]
    classes = {name: msgspec.convert({"metadata": {"name": name}}, DeviceClass) for name in CLASSES}
    by_key = {
        kind: {f"ns/{name}": each for name, each in objects.items() if isinstance(each, kind)}
        for kind in (ResourceClaim, ResourceClaimTemplate)
    }
    devices = DeviceCounter(
        rules=ChargeRules(DeviceMappings.of(mappings)),
        classes=classes.get,
        templates=by_key[ResourceClaimTemplate].get,
        claims=by_key[ResourceClaim].get,
    )
    return HeldClaims(
        workload=msgspec.convert(workload, Workload),
        rules=RequestRules(devices=devices, namespace="ns"),
        devices=devices,
        free_if_undeclared=free,
        always_made=always,
    )


def queued(*claims, named=()):
    made = [{"name": each, "resourceClaimName": f"p-{each}"} for each in named]
    metadata = {"namespace": "ns", "name": "p", "creationTimestamp": rfc3339(CREATED)}
    body = {"metadata": metadata, **pod(*claims), "status": {"resourceClaimStatuses": made}}
    return msgspec.convert(body, QueuedPod)


def why(decides, *claims, pod_set="main", made=MappingProxyType({})):
    """Return why a pod stays held whose claims are made, unless it is not."""
    objects = {f"ns/p-{name}": each for name, each in made.items()}
    waiting = queued(*claims, named=made)
    found = decides.hold(waiting, pod_set, objects.get, now=CREATED + 99)
    return "" if found in {None, CHANGED} else found.why


@pytest.mark.parametrize(
    ("claims", "objects", "reason"),
    [
        pytest.param(["t"], {"t": template(2)}, "", id="as-many"),
        pytest.param(["t"], {"t": template(3)}, "it would take 3 of gpus", id="more"),
        pytest.param(["t"], {"t": template(9, BEFORE)}, "", id="counted-otherwise-since"),
        pytest.param(["t"], {"t": template(9, RESERVED)}, "take 9 of gpus", id="in-that-second"),
        pytest.param(["t"], {"t": template(1, of="fpga")}, "take 1 of fpgas", id="another-class"),
        pytest.param(["t"], {"t": template(1, of="none")}, "cannot be counted", id="no-class"),
        pytest.param(["t"], {}, "cannot be counted", id="gone"),
        pytest.param(
            ["t", "u"],
            {"t": template(1, BEFORE), "u": template(2)},
            "it would take 3 of gpus",
            id="one-of-two-became-more",
        ),
        pytest.param(
            ["t", "u"], {"t": template(1, BEFORE), "u": template(1)}, "", id="one-of-two-changed"
        ),
        pytest.param(["+c"], {"c": claim(4)}, "", id="shared-by-two-pods"),
        pytest.param(["+c"], {"c": claim(5)}, "it would take 3 of gpus", id="shared-and-more"),
    ],
)
def test_claims_are_held_to_what_each_pod_was_admitted_with(claims, objects, reason):
    decides = held({"main": (pod(*claims), 2, {"gpus": "4"})}, objects)

    found = why(decides, *claims)

    assert reason in found
    assert bool(reason) == bool(found)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        pytest.param(2, "", id="as-admitted"),
        pytest.param(8, "it would take 8 of gpus", id="made-of-another-template"),
    ],
)
@pytest.mark.parametrize("objects", [{}, {"t": template(2, BEFORE)}], ids=["gone", "restored"])
def test_a_claim_that_is_made_counts_in_place_of_its_template(made, reason, objects):
    decides = held({"main": (pod("t"), 1, {"gpus": "2"})}, objects)

    found = why(decides, "t", made={"t": claim(made)})

    assert reason in found
    assert bool(reason) == bool(found)


def test_a_claim_that_another_pod_set_is_charged_for_holds_all_that_share_it():
    pod_sets = {"a": (pod("+c"), 1, {"gpus": "2"}), "b": (pod("+c"), 1, {})}

    for count, beyond in ((2, False), (8, True)):
        decides = held(pod_sets, {"c": claim(count)})

        assert bool(why(decides, "+c", pod_set="b")) is beyond


def test_a_resource_without_quota_is_free_where_the_configuration_says_so():
    objects = {"t": template(8, of="fpga")}
    main = {"main": (pod("t"), 1, {"gpus": "2"})}
    made = {"t": claim(8, of="fpga")}

    assert why(held(main, objects, free=True), "t", made=made) == ""
    assert "fpgas" in why(held(main, objects), "t", made=made)


@pytest.mark.parametrize(
    ("age", "named", "objects", "expected"),
    [
        pytest.param(9, False, {"t": template(2, BEFORE)}, Hold(seconds=1), id="not-yet"),
        pytest.param(10, False, {"t": template(2, BEFORE)}, None, id="nothing-makes-claims"),
        pytest.param(10, False, {"t": template(2, RESERVED)}, None, id="of-that-second"),
        pytest.param(10, False, {"t": template(2)}, CHANGED, id="the-template-is-another-one"),
        pytest.param(99, True, {"t": template(2, BEFORE)}, Hold(seconds=10), id="not-seen-yet"),
    ],
)
def test_a_pod_waits_for_the_claims_that_are_made_for_it(age, named, objects, expected):
    decides = held({"main": (pod("t"), 1, {"gpus": "2"})}, objects)
    waiting = queued("t", named=["t"] if named else [])

    found = decides.hold(waiting, "main", lambda _key: None, now=CREATED + age)

    assert found == expected


@pytest.mark.parametrize(
    ("created", "expected"),
    [
        pytest.param(BEFORE, Hold(seconds=10), id="as-admitted"),
        pytest.param(RESERVED, Hold(seconds=10), id="of-that-second"),
        pytest.param(AFTER, CHANGED, id="another-one"),
    ],
)
def test_no_pod_goes_without_its_claim_where_kubernetes_makes_them(created, expected):
    """It may be late, and the template another one by then."""
    objects = {"t": template(2, created)}
    decides = held({"main": (pod("t"), 1, {"gpus": "2"})}, objects, always=True)

    assert decides.hold(queued("t"), "main", lambda _key: None, now=CREATED + 3_600) == expected

"""Config maps, secrets, namespaces, nodes, priority classes, leases, events and their like."""

import dataclasses

from tests.e2e.likeness.asking import create, find, patch, read, remove, replace
from tests.e2e.likeness.objects import config_map, make, pod

INVOLVED = {"kind": "Pod", "name": "web", "namespace": "{namespace}", "apiVersion": "v1"}
MOMENT = "2026-01-01T00:00:00.000000Z"
LEASE = make("Lease", "lock", spec={"holderIdentity": "me", "leaseDurationSeconds": 15})
EVENT = make(
    "Event", "web.1", involvedObject=INVOLVED, reason="Because", type="Normal", message="x"
)
NEW_EVENT = {
    **make("NewEvent", "web.2"),
    "kind": "Event",
    "regarding": INVOLVED,
    "reason": "Because",
    "note": "a note",
    "type": "Normal",
    "action": "Waiting",
    "eventTime": MOMENT,
    "reportingController": "example.com/controller",
    "reportingInstance": "one",
}
NEW_EVENTS = "NewEvent"


def new_event(**more):
    ask = create({**NEW_EVENT, **more, "kind": "NewEvent"})
    return type(ask)(
        method="POST",
        path=ask.path,
        body={**NEW_EVENT, **more},
    )


def once_pods_have(priority):
    """Ask for a pod until it gets this priority: admission hears of classes a little later."""
    asked = create(pod(), dryRun="All")
    return dataclasses.replace(asked, until=lambda body: body["spec"]["priority"] == priority)


def node(name, **more):
    return make("Node", name, **more)


def claim(name, *, firstAvailable=False, **more):  # noqa: N803 - as the field is written
    exactly = {"deviceClassName": "gpu.example.com", **more}
    asked = {"exactly": exactly}
    if firstAvailable:
        asked = {"firstAvailable": [{"name": "large", **exactly}]}
    requests = [{"name": "other", "exactly": {"deviceClassName": "other"}}, {"name": "a", **asked}]
    return make("ResourceClaim", name, spec={"devices": {"requests": requests}})


def template(name, **more):
    return make("ResourceClaimTemplate", name, spec={"spec": claim(name, **more)["spec"]})


def permit_admin_access(value):
    labels = {"resource.kubernetes.io/admin-access": value}
    return patch("Namespace", "{namespace}", {"metadata": {"labels": labels}})


STORIES = {
    "config-maps": [
        create(config_map()),
        create(config_map()),
        create(config_map("bad", **{"a b": "c"})),
        create(config_map("bad", **{"..": "c"})),
        create(make("ConfigMap", "bad", data={"a": 1})),
        create(make("ConfigMap", "bad", data={"a": "b"}, binaryData={"a": "eA=="})),
        create(make("ConfigMap", "bad", binaryData={"a": "not base64!"})),
        create(make("ConfigMap", "final", data={"a": "b"}, immutable=True)),
        patch("ConfigMap", "final", {"data": {"a": "c"}}),
        patch("ConfigMap", "final", {"immutable": None}),
        patch("ConfigMap", "final", {"metadata": {"labels": {"a": "b"}}}),
        patch("ConfigMap", "web", {"data": {"a": None, "b": "c"}}),
        find("ConfigMap"),
        remove("ConfigMap", "web"),
        remove("ConfigMap", "web"),
        read("ConfigMap", "web"),
        create(config_map("Bad")),
    ],
    "secrets": [
        create(make("Secret", "web", stringData={"a": "b"}, data={"c": "eA=="})),
        create(make("Secret", "tls", type="kubernetes.io/tls", data={"tls.crt": "eA=="})),
        create(make("Secret", "bad", data={"a": "not base64!"})),
        create(make("Secret", "bad", data={"a b": "eA=="})),
        patch("Secret", "web", {"type": "other"}),
        patch("Secret", "web", {"stringData": {"a": "c"}}),
        read("Secret", "web"),
        remove("Secret", "web"),
    ],
    "namespaces": [
        create(make("Namespace", "tale", metadata={"labels": {"a": "b"}})),
        create(make("Namespace", "tale")),
        create(make("Namespace", "Bad_")),
        create(make("Namespace", "a.b")),
        create(make("Namespace", "a" * 64)),
        patch("Namespace", "tale", {"metadata": {"labels": {"kubernetes.io/metadata.name": "x"}}}),
        patch("Namespace", "tale", {"metadata": {"labels": {"kubernetes.io/metadata.name": None}}}),
        patch("Namespace", "tale", {"status": {"phase": "Terminating"}}, part="status"),
        remove("Namespace", "default"),
        remove("Namespace", "nowhere"),
        create(config_map(metadata={"namespace": "nowhere"})),
        create(pod(), dryRun="All"),
    ],
    "claims-of-devices": [
        create(claim("plain")),
        create(claim("admin", adminAccess=True)),
        create(claim("refused", adminAccess=False)),
        create(template("plain")),
        create(template("admin", adminAccess=True)),
        permit_admin_access("false"),
        create(claim("admin", adminAccess=True)),
        permit_admin_access("true"),
        create(claim("admin", adminAccess=True)),
        create(template("admin", adminAccess=True)),
        create(claim("first", firstAvailable=True)),
        permit_admin_access(None),
        patch("ResourceClaim", "admin", {"metadata": {"labels": {"a": "b"}}}),
        patch("ResourceClaim", "plain", {"spec": {"devices": {"requests": []}}}),
        replace("ResourceClaim", "plain", claim("plain", adminAccess=True)),
        replace("ResourceClaimTemplate", "plain", template("plain", adminAccess=True)),
        patch("ResourceClaimTemplate", "admin", {"metadata": {"labels": {"a": "b"}}}),
        read("ResourceClaim", "plain"),
    ],
    "a-namespace-that-is-not-there": [
        type(read("Pod", "x"))(
            method="POST", path="/api/v1/namespaces/nowhere/pods", body=pod("lost")
        ),
        type(read("Pod", "x"))(method="GET", path="/api/v1/namespaces/nowhere/pods"),
        type(read("Pod", "x"))(method="GET", path="/api/v1/namespaces/nowhere/pods/x"),
    ],
    "nodes": [
        create(
            node(
                "tale-node",
                spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}], "unschedulable": True},
                status={"capacity": {"cpu": "8", "nvidia.com/gpu": "8", "pods": 110}},
            )
        ),
        create(node("bad", spec={"taints": [{"key": "a b", "effect": "NoSchedule"}]})),
        create(node("bad", spec={"taints": [{"key": "a", "effect": "Sometimes"}]})),
        create(node("Bad_")),
        patch("Node", "tale-node", {"spec": {"unschedulable": False}}),
        patch("Node", "tale-node", {"spec": {"podCIDR": "10.0.0.0/24"}}),
        patch("Node", "tale-node", {"status": {"capacity": {"cpu": "9"}}}, part="status"),
        patch("Node", "tale-node", {"metadata": {"labels": {"a": "b c"}}}),
        read("Node", "tale-node"),
        remove("Node", "tale-node"),
    ],
    "priority-classes": [
        create(make("PriorityClass", "tale-high", value=1000, description="high")),
        create(make("PriorityClass", "tale-never", value=-5, preemptionPolicy="Never")),
        create(make("PriorityClass", "tale-bad", value=2_000_000_000)),
        create(make("PriorityClass", "system-tale", value=1)),
        create(make("PriorityClass", "tale-bad", value=1, preemptionPolicy="Sometimes")),
        create(make("PriorityClass", "tale-bad", value="x")),
        patch("PriorityClass", "tale-high", {"value": 1}),
        patch("PriorityClass", "tale-high", {"preemptionPolicy": "Never"}),
        patch("PriorityClass", "tale-high", {"description": "higher"}),
        create(pod("high", priorityClassName="tale-high")),
        create(pod("never", priorityClassName="tale-never")),
        create(pod("given", priorityClassName="tale-high", priority=1000)),
        create(pod("other", priorityClassName="tale-high", priority=5)),
        create(pod("zero", priority=0)),
        create(pod("five", priority=5)),
        create(pod("policy", priorityClassName="tale-high", preemptionPolicy="Never")),
        create(pod("system", priorityClassName="system-node-critical")),
        read("PriorityClass", "system-cluster-critical"),
        patch("Pod", "high", {"spec": {"priorityClassName": "tale-never"}}),
        remove("PriorityClass", "system-cluster-critical", dryRun="All"),
        remove("PriorityClass", "tale-high"),
        remove("PriorityClass", "tale-never"),
    ],
    "a-default-priority-class": [
        create(make("PriorityClass", "tale-default", value=10, globalDefault=True)),
        once_pods_have(10),
        create(make("PriorityClass", "tale-default-2", value=20, globalDefault=True)),
        remove("PriorityClass", "tale-default"),
        remove("PriorityClass", "tale-default-2"),
        once_pods_have(0),
    ],
    "leases": [
        create(LEASE),
        replace("Lease", "lock", lambda lease: lease | {"spec": {"renewTime": MOMENT}}),
        replace("Lease", "lock", {**LEASE, "metadata": {"name": "lock", "resourceVersion": "1"}}),
        replace("Lease", "lock", LEASE),
        replace("Lease", "nobody", LEASE | {"metadata": {"name": "nobody"}}),
        patch("Lease", "lock", {"spec": {"leaseDurationSeconds": 0}}),
        patch("Lease", "lock", {"spec": {"leaseTransitions": -1}}),
        patch("Lease", "lock", {"spec": {"renewTime": "now"}}),
        patch("Lease", "lock", {"spec": {"renewTime": "2026-01-01T00:00:00Z"}}),
        read("Lease", "lock"),
        remove("Lease", "lock"),
    ],
    "events": [
        create(EVENT),
        create({**EVENT, "involvedObject": {**INVOLVED, "namespace": "other"}}),
        new_event(),
        new_event(metadata={"name": "b"}, reason=""),
        new_event(metadata={"name": "c"}, type="Loud"),
        new_event(metadata={"name": "e"}, reportingController="a b"),
        new_event(metadata={"name": "f"}, action=""),
        new_event(metadata={"name": "g"}, note="x" * 1025),
        patch("Event", "web.1", {"count": 2}),
        patch("NewEvent", "web.2", {"note": "another"}),
        patch("NewEvent", "web.2", {"series": {"count": 2, "lastObservedTime": MOMENT}}),
        find("Event"),
        find("NewEvent"),
        find("Event", fieldSelector="involvedObject.name=web,reason=Because"),
        find("Event", fieldSelector="type=Warning"),
    ],
    "services": [
        create(make("ServiceAccount", "runner")),
        create(make("Service", "headless", spec={"clusterIP": "None", "ports": [{"port": 80}]})),
        remove("ServiceAccount", "runner"),
        remove("Service", "headless"),
    ],
}

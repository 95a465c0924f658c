"""Every field that decides on membership, on every kind: what a tenant may send to get out.

The table is made of kinds and fields, so that a kind that is added is tried with all of them.
"""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from policyd.jobs.integrations import Integrations
from policyd.jobs.kinds.registry import KINDS, PARENTS
from policyd.jobs.rules.leaving import GATES
from policyd.patch.draft import Draft
from tests.matrix.kinds import templates_in
from tests.scenarios.foreign import SPECS

P = "kueue.x-k8s.io/"
QUEUE, MANAGED, POD_SET = f"{P}queue-name", f"{P}managed", f"{P}podset"
GROUP, TOTAL, PREBUILT = (
    f"{P}pod-group-name",
    f"{P}pod-group-total-count",
    f"{P}prebuilt-workload-name",
)
SUSPENDER = f"{P}pod-suspending-parent"
OWNER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "admitted",
    "uid": "1",
    "controller": True,
}
CONTAINERS = [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]

Object = dict[str, Any]


class Attempt(NamedTuple):
    """One change that would take an object out of its queue.

    Attributes:
        name: The kind, and what is changed.
        group: API group of the object.
        kind: Its kind.
        plural: Its resource.
        old: As it is stored.
        new: As it would be.
        only_required: Whether it is refused only where a queue is required.
        only_parts: Whether it is refused only where parts of GPUs are counted.
        subresource: By which it is changed.
    """

    name: str
    group: str
    kind: str
    plural: str
    old: Object
    new: Object
    only_required: bool = False
    only_parts: bool = False
    subresource: str = ""


def tries() -> Iterator[Attempt]:
    """Yield every change of the table, of what waits and of what is being deleted."""
    for made in (*_of_pods(), *_of_jobs(), *_of_parents()):
        yield made
        if made.only_parts:
            continue  # no pod that is deleted is sent to a node
        old, new = copy.deepcopy((made.old, made.new))
        for each in (old, new):
            each["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
        name = f"{made.name}, while it is deleted"
        yield made._replace(name=name, old=old, new=new, only_required=False)


def _of_pods() -> Iterator[Attempt]:
    waiting = _pod(gates=sorted(GATES))
    member = _pod(gates=[f"{P}admission"])
    member["metadata"]["annotations"] |= {GROUP: "g", TOTAL: "2", f"{P}role-hash": "a"}
    of_a_set = _pod(gates=[f"{P}admission"], labels={MANAGED: "true"})
    of_a_set["metadata"]["annotations"] = {SUSPENDER: "statefulset"}
    of_a_job = _pod(gates=[f"{P}elastic-job"], labels={POD_SET: "main"})
    running = _pod(gates=[])
    let_go = _pod(gates=[], labels={POD_SET: "main"})
    pods = {
        "a pod that waits": waiting,
        "a pod of a group": member,
        "a pod of a StatefulSet": of_a_set,
        "a pod of an elastic job": of_a_job,
        "a pod that runs": running,
    }
    for what, pod in pods.items():
        for field, new in _pod_changes(pod):
            yield Attempt(f"{what}: {field}", "", "Pod", "pods", pod, new)
    for what, pod in {"a pod that runs": running, "a pod of a job": let_go}.items():
        yield from _larger_parts(what, pod)
    for what, pod in pods.items():
        grown = copy.deepcopy(pod)
        grown["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "64"
        yield Attempt(f"{what}: resize", "", "Pod", "pods", pod, grown, subresource="resize")
        whole = copy.deepcopy(pod)
        whole["spec"]["resources"] = {"requests": {"cpu": "64"}}
        yield Attempt(
            f"{what}: resize as a whole", "", "Pod", "pods", pod, whole, subresource="resize"
        )


def _larger_parts(what: str, pod: Object) -> Iterator[Attempt]:
    small = _with(pod, ("spec", "containers"), [{"name": "main"}])
    small = _with(small, ("metadata", "annotations", "gpu-fraction"), "0.1")
    changes = {
        "a larger part": {"gpu-fraction": "0.9"},
        "memory in place of a part": {"gpu-memory": "80000"},
        "parts of several GPUs": {"gpu-fraction": "0.1", "gpu-fraction-num-devices": "8"},
        "no part": {},
    }
    for field, annotations in changes.items():
        new = _with(small, ("metadata", "annotations"), annotations)
        name = f"{what}: {field}"
        yield Attempt(name, "", "Pod", "pods", small, new, only_parts=True)


def _pod(*, gates: list[str], labels: dict[str, str] | None = None) -> Object:
    labels = {QUEUE: "lq", MANAGED: "true"} if labels is None else labels
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "ns", "labels": labels, "annotations": {}},
        "spec": {"schedulingGates": [{"name": each} for each in gates], "containers": CONTAINERS},
    }


def _pod_changes(pod: Object) -> Iterator[tuple[str, Object]]:
    metadata = pod["metadata"]
    for gate in pod["spec"]["schedulingGates"]:
        gates = [each for each in pod["spec"]["schedulingGates"] if each != gate]
        yield f"without {gate['name']}", _with(pod, ("spec", "schedulingGates"), gates)
    if pod["spec"]["schedulingGates"]:
        yield "without gates", _with(pod, ("spec", "schedulingGates"), [])
        bare = _with(pod, ("spec", "schedulingGates"), None)
        bare["metadata"]["labels"] = {}
        yield "without gates and labels", bare
    for name in metadata["labels"]:
        kept = {key: text for key, text in metadata["labels"].items() if key != name}
        yield f"without {name}", _with(pod, ("metadata", "labels"), kept)
        if name != QUEUE:
            yield f"with another {name}", _with(pod, ("metadata", "labels", name), "x")
    yield "without labels", _with(pod, ("metadata", "labels"), None)
    for name in (GROUP, TOTAL, PREBUILT, f"{P}role-hash", SUSPENDER, f"{P}workload"):
        yield f"with another {name}", _with(pod, ("metadata", "annotations", name), "other")
    for name in (f"{P}pod-group-fast-admission", f"{P}pod-group-serving"):
        yield f"with {name}", _with(pod, ("metadata", "annotations", name), "true")
    yield "with an owner", _with(pod, ("metadata", "ownerReferences"), [OWNER])


def _of_jobs() -> Iterator[Attempt]:
    for kind in KINDS:
        old = _job(kind.group, kind.version, kind.kind)
        draft = Draft(old)
        kind.suspend(draft)
        old = draft.object
        resumed = Draft(copy.deepcopy(old))
        kind.resume(resumed)
        without = _with(old, kind.suspend_path, None)
        both = copy.deepcopy(resumed.object)
        both["metadata"]["labels"] = {}
        named = kind.group, kind.kind, kind.plural
        yield Attempt(f"{kind.kind}: suspend is false", *named, old, resumed.object)
        yield Attempt(f"{kind.kind}: suspend is gone", *named, old, without)
        yield Attempt(f"{kind.kind}: neither queue nor suspend", *named, old, both)
        yield from _of_all(named, old, only_required=True)
        yield from _unreadable(kind)
    yield from _of_others_clusters()


def _of_others_clusters() -> Iterator[Attempt]:
    """Yield the change of a job that needs no quota, as it has no pods, into one that does."""
    bare = _job("ray.io", "v1", "RayJob")
    runs = {**bare, "spec": {"clusterSelector": {"a": "b"}}}
    held = {**bare, "spec": {"clusterSelector": {"a": "b"}, "suspend": True}}
    named = "ray.io", "RayJob", "rayjobs"
    for what, old in (("runs", runs), ("is suspended", held)):
        yield Attempt(f"RayJob that {what}: a cluster of its own", *named, old, bare)


def _unreadable(kind: Any) -> Iterator[Attempt]:
    """Yield changes that a schema without types lets pass, and that the queue cannot read."""
    if kind.kind not in SPECS:
        return
    old = _job(kind.group, kind.version, kind.kind) | {"spec": SPECS[kind.kind](2)}
    new = copy.deepcopy(old)
    for template in templates_in(new["spec"]):
        template["metadata"]["annotations"]["a"] = None
    if kind.kind == "TrainJob":
        new["spec"]["trainer"]["numNodes"] = "many"
    named = kind.group, kind.kind, kind.plural
    yield Attempt(f"{kind.kind}: what cannot be read", *named, old, new)


def _of_parents() -> Iterator[Attempt]:
    for parent in PARENTS:
        old = _job(parent.group, parent.version, parent.kind)
        named = parent.group, parent.kind, parent.plural
        yield from _of_all(named, old, only_required=False)
        yield from _unreadable(parent)
        template = parent.templates(_decoded(parent, old))[0]
        other = _with(old, (*template, "metadata", "annotations", SUSPENDER), "other")
        other["metadata"]["labels"] = {}
        yield Attempt(f"{parent.kind}: no queue, and held by others", *named, old, other)
        owned = _with(old, ("metadata", "ownerReferences"), [OWNER])
        owned["metadata"]["labels"] = {}
        yield Attempt(f"{parent.kind}: no queue, but an owner", *named, old, owned)


def _of_all(named: tuple[str, str, str], old: Object, *, only_required: bool) -> Iterator[Attempt]:
    kind = named[1]
    for what, labels in (("no queue", {}), ("an empty queue", {QUEUE: ""})):
        new = _with(old, ("metadata", "labels"), labels)
        yield Attempt(f"{kind}: {what}", *named, old, new, only_required=only_required)
    owned = _with(old, ("metadata", "ownerReferences"), [OWNER])
    yield Attempt(f"{kind}: an owner", *named, old, owned)


def _job(group: str, version: str, kind: str) -> Object:
    template = {"metadata": {}, "spec": {"containers": CONTAINERS}}
    spec: Object = {"template": template} if group in {"batch", "apps"} else {}
    if group == "batch.volcano.sh":
        spec = {"tasks": [{"replicas": 1, "template": template}]}
    if kind == "RayJob":
        spec = {"rayClusterSpec": {}, "shutdownAfterJobFinishes": True}
    return {
        "apiVersion": f"{group}/{version}",
        "kind": kind,
        "metadata": {"name": "j", "namespace": "ns", "labels": {QUEUE: "lq"}},
        "spec": spec,
    }


def _decoded(parent: Any, obj: Object) -> Any:
    import msgspec  # noqa: PLC0415 - only here

    return msgspec.convert(obj, parent.type)


def _with(obj: Object, path: tuple[Any, ...], value: object) -> Object:
    """Return a copy with a value at `path`, or with nothing there for None."""
    draft = Draft(copy.deepcopy(obj))
    if value is None:
        draft.remove(path)
    else:
        draft.set(path, copy.deepcopy(value))
    return draft.object


def review(made: Attempt, *, user: str = "alice", groups: tuple[str, ...] = ()) -> bytes:
    """Return the review that the API server would send of a change."""
    version = made.old["apiVersion"].rpartition("/")[2]
    request = {
        "uid": "u",
        "kind": {"group": made.group, "version": version, "kind": made.kind},
        "resource": {"group": made.group, "version": version, "resource": made.plural},
        "subResource": made.subresource,
        "name": made.old["metadata"]["name"],
        "namespace": "ns",
        "operation": "UPDATE",
        "userInfo": {"username": user, "groups": [*groups, "system:authenticated"]},
        "object": made.new,
        "oldObject": made.old,
    }
    envelope = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps(envelope | {"request": request}).encode()


Allowed = Callable[[bytes, Integrations], bool]
"""Sends a review, and tells whether it was let in."""

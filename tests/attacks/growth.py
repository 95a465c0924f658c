"""GPUs without a queue in two steps: what is harmless when it is created, and grows afterwards.

Every kind is created without a queue: without pods, or with pods that ask for nothing. Then it is
given pods or GPUs by an update, or scaled by its subresource, which nobody is asked about. Its pods
belong to it, so that nobody is asked about them either.
"""

import copy
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from policyd.engine.objects.workloads import KINDS
from tests.attacks.figures import Figures
from tests.attacks.ownership import GPUS, MADE, QUEUE, Object, owned_by, pod, unqueued
from tests.scenarios import foreign

COUNTS = frozenset(("completions", "minReplicas", "numNodes", "numOfHosts", "parallelism"))
"""Fields that say how many pods there are, besides `replicas`."""

SCALED = frozenset(
    ("StatefulSet", "LeaderWorkerSet", "JAXJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob")
)
"""Kinds that have a `scale` subresource, and whose pods are theirs: a review of it has no pods."""


def _changed(part: Any, change: Callable[[dict[str, Any]], None]) -> Any:
    if isinstance(part, list):
        return [_changed(each, change) for each in part]
    if not isinstance(part, dict):
        return part
    made = {key: _changed(each, change) for key, each in part.items()}
    change(made)
    return made


def _without_pods(part: dict[str, Any]) -> None:
    part.update({key: 0 for key in (*COUNTS, "replicas") if type(part.get(key)) is int})
    if "template" in part and "containers" not in part:
        part["replicas"] = 0


def _without_gpus(part: dict[str, Any]) -> None:
    part.pop("resources", None)


def _smallest(part: dict[str, Any]) -> None:
    _without_pods(part)
    _without_gpus(part)


def seeds(kind: str) -> Iterator[tuple[str, Object, Object]]:
    """Yield what is created of a kind, and what it is made into."""
    large = MADE[kind](name="x", namespace="team-a")
    for description, change in (
        ("no pods", _without_pods),
        ("no GPUs", _without_gpus),
        ("neither", _smallest),
    ):
        yield description, {**large, "spec": _changed(large["spec"], change)}, large


def extras() -> Iterator[tuple[str, Object]]:
    """Yield objects whose pods ask for GPUs in a place other than their templates."""
    ray = MADE["RayCluster"](name="x", namespace="team-a")
    bare = _changed(ray["spec"], _without_gpus)
    options = {"resources": {"limits": {"nvidia.com/gpu": GPUS}}}
    scaling = {**bare, "enableInTreeAutoscaling": True, "autoscalerOptions": options}
    yield "the autoscaler of a RayCluster", {**ray, "spec": scaling}
    job = MADE["RayJob"](name="x", namespace="team-a")
    submitter = {"submissionMode": "K8sJobMode", "submitterPodTemplate": foreign.template(GPUS)}
    selects = {"clusterSelector": {"ray.io/cluster": "other"}, **submitter}
    yield "the submitter of a RayJob", {**job, "spec": selects}
    inner = _changed(job["spec"], _without_gpus)["rayClusterSpec"]
    yield "the submitter beside a cluster", {**job, "spec": {"rayClusterSpec": inner, **submitter}}
    service = MADE["RayService"](name="x", namespace="team-a")
    yield (
        "the autoscaler of a RayService",
        {**service, "spec": {**service["spec"], "rayClusterConfig": scaling}},
    )


def growing() -> Figures:
    """Create each kind small, and make it large, by an update or by scaling it."""
    tried, through = 0, list[str]()
    grown = sorted(MADE.keys() & {each.kind for each in KINDS} - {"Pod", "Deployment"})
    for (name, scene), kind in product(unqueued().items(), grown):
        for description, small, large in seeds(kind):
            tried += 1
            admitted, stored = scene.admit(small, "alice")
            if not admitted:
                continue
            if kind in SCALED and description == "no pods":
                through.append(f"{name}: {kind} with {description}, which is scaled then")
            if scene.admit(large, "alice", stored)[0]:
                through.append(f"{name}: {kind} with {description}, which is updated then")
    for (name, scene), (description, obj) in product(unqueued().items(), extras()):
        tried += 1
        if scene.admit(obj, "alice")[0]:
            through.append(f"{name}: {description}")
    return Figures(tried=tried, bypasses=len(through), faults=tuple(through))


def leaving() -> Figures:
    """Take the queue from each kind that waits, and let it go by another update."""
    tried, through = 0, list[str]()
    for (name, scene), kind in product(unqueued().items(), sorted(MADE.keys() - {"Pod"})):
        tried += 1
        _, waits = scene.admit(
            MADE[kind](name="x", namespace="team-a", labels={QUEUE: "q"}), "alice"
        )
        left = copy.deepcopy(waits)
        del left["metadata"]["labels"]
        if scene.admit(left, "alice", waits)[0]:
            through.append(f"{name}: {kind} leaves its queue")
    return Figures(tried=tried, bypasses=len(through), faults=tuple(through))


def going_on() -> Figures:
    """Have what is no growth pass: a change of a label, and what its maker does."""
    faults = list[str]()
    kinds = sorted(MADE.keys() & {each.kind for each in KINDS} - {"Pod"})
    for (name, scene), kind in product(unqueued().items(), kinds):
        old = MADE[kind](name="x", namespace="team-a")
        new = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
        if not scene.admit(new, "alice", old)[0]:
            faults.append(f"{name}: a {kind} of before the policy cannot be labelled")
    operator = "system:serviceaccount:ray-system:kuberay-operator"
    owner = [owned_by("ray.io", "v1", "RayJob")]
    small, large = next(
        (s, b) for description, s, b in seeds("RayCluster") if description == "no GPUs"
    )
    for each in (small, large):
        each["metadata"] = {**each["metadata"], "ownerReferences": owner}
    for name, scene in unqueued().items():
        if not scene.admit(large, operator, small)[0]:
            faults.append(f"{name}: the cluster of a RayJob cannot be changed by its operator")
        if scene.admit(pod(name="p"), "alice")[0]:
            faults.append(f"{name}: a pod needs no queue")
    return Figures(tried=2 * len(kinds) + 4, faults=tuple(faults))


ATTACKS = {
    "GPUs by growth": growing,
    "leaving a queue that is required": leaving,
    "what does not grow goes on": going_on,
}

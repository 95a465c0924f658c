"""GPUs without a queue in two steps: what is harmless when it is created, and grows afterwards.

Every kind is created without a queue: without pods, or with pods that ask for nothing. Then it is
given pods or GPUs by an update, or scaled by its subresource, which nobody is asked about. Its pods
belong to it, so that nobody is asked about them either.
"""

import copy
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from policyd.api.admission import GroupVersionResource
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.workloads import KINDS, find_kind
from policyd.engine.offline.requests import namespace_lookup
from tests.attacks.figures import Figures
from tests.attacks.ownership import GPUS, MADE, QUEUE, Object, owned_by, pod, review, unqueued
from tests.scenarios import foreign

COUNTS = frozenset(("completions", "minReplicas", "numNodes", "numOfHosts", "parallelism"))
"""Fields that say how many pods there are, besides `replicas`."""

SCALED = frozenset(
    ("StatefulSet", "LeaderWorkerSet", "JAXJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob")
)
"""Kinds that have a `scale` subresource, and whose pods are theirs: a review of it has no pods."""

SCALED_ALONE = frozenset(("MPIJob", "ReplicaSet", "ReplicationController"))
"""More such kinds, which do not queue, or not in all versions."""

KNOWN = frozenset(key for key, make in MADE.items() if find_kind(make(name="x")))
"""What makes pods that policies can count, by its name in `MADE`."""

LIBRARY = Path(__file__).parents[2] / "policies"


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
    grown = sorted(KNOWN - {"Pod", "Deployment"})
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
    kinds = sorted(KNOWN - {"Pod"})
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


def _scale(replicas: int) -> Object:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "x", "namespace": "team-a"},
        "spec": {"replicas": replicas},
    }


def _replica_set(owner: str, group: str, replicas: int) -> Object:
    reference = owned_by(group, "v1", owner)
    metadata = {"name": "x-1", "namespace": "team-a", "ownerReferences": [reference]}
    spec = {"replicas": replicas, "template": foreign.template(1)}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}


SCALED_BY_SETS = {
    "Deployment": ("apps", "system:serviceaccount:kube-system:deployment-controller"),
    "Rollout": ("argoproj.io", "system:serviceaccount:argo-rollouts:argo-rollouts"),
}
"""Kinds whose ReplicaSets are scaled by a controller, with their group and its account."""


def _scaled(policies: PolicySet) -> Iterator[tuple[str, bool]]:
    """Yield what is scaled by its subresource, and whether a policy decides wrongly about it."""
    for kind in (each for each in KINDS if each.kind in SCALED | SCALED_ALONE):
        for old, new, denied in ((1, 2, True), (2, 2, False), (9, 0, False)):
            asked = review(_scale(new), "alice", _scale(old))
            resource = GroupVersionResource(kind.group, "v1", kind.plural)
            asked = msgspec.structs.replace(asked, resource=resource, sub_resource="scale")
            wrong = policies.validate(asked).allowed is denied
            yield f"{kind.kind} is scaled from {old} to {new}", wrong


def _grown(policies: PolicySet) -> Iterator[tuple[str, bool]]:
    """Yield what is updated past the limit, and whether a policy allows it."""
    for name, (group, account) in SCALED_BY_SETS.items():
        old, new = (_replica_set(name, group, count) for count in (4, 5))
        allowed = policies.validate(review(new, account, old)).allowed
        yield f"{name} is scaled, and so is its ReplicaSet", allowed
    # A TrainJob is counted as the job that its runtime makes of it, and an AppWrapper as its jobs.
    # Of a SparkApplication, each pod is counted alone: the policy's README says so.
    apart = {"Pod", "AppWrapper", "SparkApplication", "TrainJob"}
    for name in sorted(KNOWN - apart):
        for description, small, large in seeds(name):
            allowed = policies.validate(review(large, "alice", small)).allowed
            yield f"{name} with {description} is updated", allowed


def past_a_limit() -> Figures:
    """Scale each kind past the GPUs that a workload may have, in every way that there is."""
    text = (LIBRARY / "queueing/cap-gpus-per-workload/policy.yaml").read_bytes()
    labels = {"policyd.io/max-gpus-per-workload": "4"}
    policies = PolicySet(
        load_policies(text, "library").policies,
        surroundings=PolicyContext(namespaces=namespace_lookup((), labels)),
    )
    ways = [*_scaled(policies), *_grown(policies)]
    faults = tuple(what for what, wrong in ways if wrong)
    return Figures(tried=len(ways), bypasses=len(faults), faults=faults)


ATTACKS = {
    "more GPUs than a workload may have": past_a_limit,
    "GPUs by growth": growing,
    "leaving a queue that is required": leaving,
    "what does not grow goes on": going_on,
}

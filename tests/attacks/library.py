"""Pods that a policy of the library refuses or changes, made by something that makes pods.

A policy may leave what a controller made alone because its owner was asked before. An owner whose
kind is not asked, or not when it is updated, would get every pod past such a policy.
"""

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from policyd.engine.compile.load import Loaded, load_policies
from policyd.engine.model.decision import Decision
from policyd.engine.objects.workloads import find_kind, pod_templates, value_at
from policyd.engine.offline.cases import Case, Cases, CaseUser, ask_case, load_cases
from policyd.patch.json_patch import apply_json_patch
from tests.attacks.figures import Figures

Object = dict[str, Any]

LIBRARY = Path(__file__).parents[2] / "policies"

LEFT_TO_OWNERS = {
    "checkpoint-before-preempt": "pods ask for it themselves, by an annotation",
    "checkpoint-before-spot": "pods of what serves lose no work",
    "gpu-nodes-for-gpu-pods": "agents run on all nodes as a DaemonSet",
    "max-run-time": "what serves has no end, and jobs have the deadline themselves",
    "notebook-idle": "the time is read of the notebook, not of its pods",
    "numa-alignment": "pods ask for it themselves, by a label",
    "priority-class-by-team": "sets a default and keeps what the author wrote",
    "required-labels": "the labels are those of the workload, not of its pods",
}
"""Policies that limit or set nothing for pods of other kinds, and why."""

KUBERNETES = "system:serviceaccount:kube-system"
MADE_BY = {
    ("apps/v1", "ReplicaSet"): f"{KUBERNETES}:replicaset-controller",
    ("apps/v1", "DaemonSet"): f"{KUBERNETES}:daemon-set-controller",
    ("apps/v1", "StatefulSet"): f"{KUBERNETES}:statefulset-controller",
    ("v1", "ReplicationController"): f"{KUBERNETES}:replication-controller",
    ("batch/v1", "Job"): f"{KUBERNETES}:job-controller",
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "system:serviceaccount:jobset-system:jobset-controller",
    ("ray.io/v1", "RayCluster"): "system:serviceaccount:ray-system:kuberay-operator",
    ("kubeflow.org/v1", "PyTorchJob"): "system:serviceaccount:kubeflow:training-operator",
    ("kubeflow.org/v1", "TFJob"): "system:serviceaccount:kubeflow:training-operator",
    (
        "batch.volcano.sh/v1alpha1",
        "Job",
    ): "system:serviceaccount:volcano-system:volcano-controllers",
    (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
    ): "system:serviceaccount:lws-system:lws-controller-manager",
    (
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
    ): "system:serviceaccount:spark-operator:spark-operator-controller",
    ("example.com/v1", "Anything"): "system:serviceaccount:example:operator",
}
"""What makes pods, and the account that makes them for it."""


@dataclass(frozen=True)
class Tried:
    """A pod of a case, and how policies answer to it and to what makes it."""

    folder: Path
    loaded: Loaded
    cases: Cases
    case: Case

    @property
    def name(self) -> str:
        return f"{self.folder.name}: {self.case.name}"

    def ask(self, obj: Object, user: str, old: Object | None = None) -> tuple[Decision, Object]:
        """Return what the policy says to an object, and what it makes of it."""
        sent = msgspec.structs.replace(
            self.case,
            object=obj,
            old_object=old,
            operation="UPDATE" if old else "CREATE",
            user=CaseUser(username=user),
        )
        asked = ask_case(sent, self.cases, self.loaded)
        decision = asked.policies.review(asked.request)
        return decision, apply_json_patch(obj, decision.operations)


def tried() -> Iterator[Tried]:
    """Yield each pod that the library's cases create without an owner."""
    for path in sorted(LIBRARY.rglob("policy.yaml")):
        folder = path.parent
        if folder.name in LEFT_TO_OWNERS:
            continue
        loaded = load_policies(path.read_bytes(), folder.name)
        cases, _ = load_cases((folder / "cases.yaml").read_bytes(), folder.name)
        assert cases
        for case in cases.cases:
            owned = case.object.get("metadata", {}).get("ownerReferences")
            if case.object["kind"] == "Pod" and case.operation == "CREATE" and not owned:
                yield Tried(folder, loaded, cases, case)


def owner_of(pod: Object, version: str, kind: str) -> Object:
    """Return an object of a kind that makes such pods."""
    labels = {k: v for k, v in pod["metadata"].items() if k in {"labels", "annotations"}}
    template = {"metadata": labels, "spec": pod["spec"]}
    selector = {"matchLabels": {"app": "x"}}
    spec: Object = {"template": template}
    match kind:
        case "Job" if version.startswith("batch.volcano.sh/"):
            spec = {"tasks": [{"name": "a", "template": template}]}
        case "ReplicaSet" | "DaemonSet" | "StatefulSet":
            spec["selector"] = selector
        case "JobSet":
            spec = {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": template}}}]}
        case "RayCluster":
            spec = {"headGroupSpec": {"rayStartParams": {}, "template": template}}
        case "PyTorchJob":
            spec = {"pytorchReplicaSpecs": {"Master": {"template": template}}}
        case "TFJob":
            spec = {"tfReplicaSpecs": {"Worker": {"template": template}}}
        case "LeaderWorkerSet":
            spec = {"leaderWorkerTemplate": {"size": 1, "workerTemplate": template}}
    metadata = {"name": "x"} | {k: v for k, v in pod["metadata"].items() if k == "namespace"}
    return copy.deepcopy({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


def child_of(owner: Object, pod: Object) -> Object:
    """Return the pod that a controller makes of what its owner has become."""
    known = find_kind(owner)
    found = pod_templates(owner, known) if known else ()
    path = found[0].path if found else ("spec", "template")
    template = value_at(owner, path)
    assert isinstance(template, dict)
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": "x", "uid": "u"}
    made = copy.deepcopy(
        {**pod, "metadata": template.get("metadata", {}), "spec": template["spec"]}
    )
    made["metadata"] |= {
        **owner["metadata"],
        "name": "x-1",
        "ownerReferences": [{**reference, "controller": True}],
    }
    return made


def _bare(part: Any) -> Any:
    """Return an object whose pods are harmless."""
    if isinstance(part, list):
        return [_bare(each) for each in part]
    if not isinstance(part, dict):
        return part
    if "containers" in part:
        return {"containers": [{"name": "main", "image": "registry.example.com/a:1"}]}
    return {key: _bare(each) for key, each in part.items()}


def ways() -> Iterator[tuple[str, str, str, bool]]:
    """Yield the kinds that make pods, with the account, and whether one is updated to make them."""
    for (version, kind), account in MADE_BY.items():
        for updated in (False, True):
            yield version, kind, account, updated


def _is_untouched(each: Tried, way: tuple[str, str, str, bool]) -> bool:
    """Tell whether a pod comes through as it is written, neither refused nor changed."""
    version, kind, account, updated = way
    pod = {**each.case.object, "metadata": each.case.object.get("metadata") or {}}
    owner = owner_of(pod, version, kind)
    decision, stored = each.ask(owner, "alice", _bare(owner) if updated else None)
    if not decision.allowed:
        return False
    # While an owner is suspended, what the policy has set may be taken out of it again.
    decision, made = each.ask(child_of(owner if updated else stored, pod), account)
    return decision.allowed and bool(made["spec"] == pod["spec"])


def vehicles(only: Callable[[Loaded], bool] = lambda _policies: True) -> Figures:
    """Have each pod of the library's cases made by each kind, created or updated to make it."""
    count, through = 0, list[str]()
    for each in tried():
        alone, made = each.ask(each.case.object, "alice")
        if not only(each.loaded) or (alone.allowed and made["spec"] == each.case.object["spec"]):
            continue
        for way in ways():
            count += 1
            if _is_untouched(each, way):
                how = "updated" if way[3] else "created"
                through.append(f"{each.name}: by a {way[1]} that is {how}")
    return Figures(tried=count, bypasses=len(through), faults=tuple(through))


def excuses_owners(loaded: Loaded) -> bool:
    """Tell whether a policy leaves something alone because of what made it."""
    return any("maker" in each.uses for each in loaded.policies)


IGNORED = {
    "cron-job-overlap": "runs that overlap queue like others",
    "deletion-guard": "protects against mistakes of those who may delete",
    "elastic-bounds": "the queue limits what an elastic job gets",
    "forbid-node-name": "a pod that waits for quota cannot name its node",
    "gang-labels": "a mistake keeps the gang pending",
    "coscheduling-gang": "sets fields that let pods start together",
    "checkpoint-before-preempt": "sets fields that save the author's own work",
    "gpu-model": "a mistake keeps the pod pending",
    "gpu-nodes-for-gpu-pods": "the taint of GPU nodes keeps pods off",
    "image-versions": "the author's own pods run different images",
    "kai-gang": "sets fields that let pods start together",
    "karpenter-node-pools": "only administrators write NodePools",
    "max-run-time": "services of such a namespace must start while no webhook answers",
    "mig-or-whole-gpus": "no node has what such a pod requests",
    "mig-profiles": "no node has what such a pod requests",
    "native-gang": "a mistake keeps the gang pending",
    "notebook-idle": "an idle notebook keeps GPUs within the quota of its team",
    "numa-alignment": "a mistake keeps the pod pending",
    "nvlink-domain": "a mistake keeps the pods pending",
    "parallelism-within-completions": "the job controller starts no more pods than complete",
    "protect-system-namespaces": "roles protect these namespaces in the first place",
    "rdma-for-whole-nodes": "the author's own job is slow",
    "required-labels": "a label does not decide what runs",
    "service-tiers": "services of such a namespace must start while no webhook answers",
    "time-sliced-gpus": "several shares have no more effect than one",
    "topology-levels": "a mistake keeps the pods pending",
    "training-restart-policy": "the author's own job is slow to recover",
}
"""Policies of the library that deny something and have `failurePolicy: Ignore`, and why."""


def _more_containers(spec: Object) -> None:
    more = [{"name": f"c{n}", "image": "registry.example.com/a:1"} for n in range(12_000)]
    spec["initContainers"] = [*spec.get("initContainers", ()), *more]


def _nothing_of_many(spec: Object) -> None:
    resources = spec["containers"][0].setdefault("resources", {})
    none = {f"x/{n:x}": "0" for n in range(40_000)}
    # The API server requests what is limited.
    for side in ("limits", "requests"):
        resources[side] = {**resources.get("limits", {}), **none}


def _many_zones(spec: Object) -> None:
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    zones = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"] * 90_000}
    required["nodeSelectorTerms"] = [
        {"matchExpressions": [zones]},
        *required.get("nodeSelectorTerms", ()),
    ]


def _many_variables(spec: Object) -> None:
    spec["containers"][0].setdefault("env", []).extend(
        {"name": f"V{n}", "value": "0"} for n in range(40_000)
    )


def _many_volumes(spec: Object) -> None:
    more = [{"name": f"v{n}", "emptyDir": {}} for n in range(40_000)]
    spec["volumes"] = [*spec.get("volumes", ()), *more]


def _many_tolerations(spec: Object) -> None:
    more = [{"key": f"k{n}", "operator": "Exists"} for n in range(40_000)]
    spec["tolerations"] = [*more, *spec.get("tolerations", ())]


PADDING: dict[str, Callable[[Object], None]] = {
    "thousands of containers": _more_containers,
    "nothing of thousands of resources": _nothing_of_many,
    "a zone, thousands of times": _many_zones,
    "thousands of variables": _many_variables,
    "thousands of volumes": _many_volumes,
    "thousands of tolerations": _many_tolerations,
}
"""What makes a pod expensive to evaluate, and may still be stored and run."""


def padded() -> Figures:
    """Pad each pod that a policy denies, except those whose authors say that nothing is lost."""
    count, worst, through = 0, 0.0, list[str]()
    for each in tried():
        if each.folder.name in IGNORED or each.ask(each.case.object, "alice")[0].allowed:
            continue
        for what, pad in PADDING.items():
            count += 1
            pod = copy.deepcopy(each.case.object)
            pad(pod["spec"])
            began = time.process_time()
            if each.ask(pod, "alice")[0].allowed:
                through.append(f"{each.name}: {what}")
            worst = max(worst, time.process_time() - began)
    return Figures(tried=count, bypasses=len(through), worst_seconds=worst, faults=tuple(through))


ATTACKS = {"pods of other kinds": vehicles, "pods that are padded": padded}

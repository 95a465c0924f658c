"""Writes of policyd's accounts: what each does, and what who has taken over a process might try.

All are tried without being carried out, on objects that an administrator has made.
"""

import base64
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from policyd.api.kueue.names import MULTI_KUEUE
from tests.charts.release import CONTROLLER, NAMESPACE, WEBHOOKS
from tests.scenarios import api as driver
from tests.scenarios import foreign
from tests.scenarios.api import Api, Refused
from tests.scenarios.objects import container

TEAM = "team-a"
MERGE, JSON = "application/merge-patch+json", "application/json-patch+json"
IMAGE = "registry.example/stolen:1"
OTHER_FINALIZER = "example.com/other"
NO_FINALIZERS = {"metadata": {"finalizers": None}}
GATE, OTHER_GATE = {"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/other"}
QUEUE = {"kueue.x-k8s.io/queue-name": "team-a"}
MANAGED = {"kueue.x-k8s.io/managed": "true"}
STRANGER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "stranger", "uid": "1"}
CONFIGURATION_NAME = "admission.policyd.io"
FORMER = "door.policyd.io"
EXEMPT = ["kube-node-lease", "kube-public", "kube-system", NAMESPACE]
CORE, BATCH, APPS = "api/v1", "apis/batch/v1", "apis/apps/v1"
CONFIG_MAPS = f"{CORE}/namespaces/{NAMESPACE}/configmaps"
KUEUE = "apis/kueue.x-k8s.io/v1beta2"
REGISTRATION = "apis/admissionregistration.k8s.io/v1"
RBAC = "apis/rbac.authorization.k8s.io/v1"
SENT = tuple(kind for kind in foreign.SPECS if kind != "SparkApplication")
"""Kinds from other packages that MultiKueue sends to other clusters."""


@dataclass(frozen=True, kw_only=True)
class Write:
    """One request.

    Attributes:
        id: What it is, in a few words.
        account: Who makes it.
        by_roles: Whether nothing but the roles of the account refuses it, if it is refused.
    """

    id: str
    account: str
    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    by_roles: bool = False

    def refusal(self, api: Api) -> Refused | None:
        """Try it; return how it was refused, None if it was taken."""
        connects = "/exec" in self.path  # which cannot be tried only
        options = {"dryRun": None if connects else "All", "content_type": self.content_type}
        path, _, query = self.path.partition("?")
        options |= dict(each.split("=") for each in query.split("&") if each)
        try:
            api.call(self.method, path, self.body, **options)
        except Refused as refusal:
            return refusal
        return None


def prepare(api: Api) -> None:
    """Create the objects that the writes are about."""
    foreign.install(api)
    for item in objects():
        if not api_has(api, item):
            api.create(item)
    taken = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    for name in ("running", "plain"):
        path = f"{CORE}/namespaces/{TEAM}/pods/{name}/status"
        api.call("PATCH", path, taken, content_type=MERGE)
    api.delete("Pod", "lost", TEAM)


def api_has(api: Api, item: dict[str, Any]) -> bool:
    metadata = item["metadata"]
    return api.exists(item["kind"], metadata["name"], metadata.get("namespace", "default"))


driver.PATHS |= foreign.paths() | {
    "PodTemplate": "api/v1/namespaces/{namespace}/podtemplates",
    "MutatingWebhookConfiguration": f"{REGISTRATION}/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": f"{REGISTRATION}/validatingwebhookconfigurations",
    "Secret": "api/v1/namespaces/{namespace}/secrets",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
}


def objects() -> Iterator[dict[str, Any]]:
    """Yield what the writes are about."""
    held = {"schedulingGates": [GATE, OTHER_GATE]}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}
    yield pod("held", labels=MANAGED | QUEUE, **held)
    yield pod("running", labels=MANAGED | QUEUE)
    yield pod("plain", labels={"app": "a"})
    yield pod("waiting-for-others", labels={"app": "a"}, schedulingGates=[OTHER_GATE])
    yield pod("safe")
    yield pod("lost")
    yield pod("of-a-job", schedulingGates=[{"name": "kueue.x-k8s.io/topology"}])
    yield from _jobs()
    kueue = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    flavor = {"name": "gpus", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    queue = {"resourceGroups": groups, "namespaceSelector": {}}
    yield kueue | {"kind": "ClusterQueue", "metadata": {"name": "queue"}, "spec": queue}
    yield kueue | {"kind": "ResourceFlavor", "metadata": {"name": "gpus"}, "spec": {}}
    for owner in ("Workload", "ConfigMap"):
        yield pod_template(owner.lower(), owner)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        former = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": FORMER}}
        yield former | {"kind": kind}


def _jobs() -> Iterator[dict[str, Any]]:
    spec = {"suspend": True, "parallelism": 2, "completions": 2, "template": template()}
    metadata = {"name": "job", "namespace": TEAM, "labels": QUEUE}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    yield job
    annotations = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    partial = {**metadata, "name": "partial", "annotations": annotations}
    yield {**copy.deepcopy(job), "metadata": partial}
    for kind, made in foreign.SPECS.items():
        yield foreign.foreign(kind, kind.lower(), _suspended(kind, made(4)))
        if kind in SENT:
            sent = _suspended(kind, made(4))
            sent.get("runPolicy", sent)["managedBy"] = MULTI_KUEUE
            yield foreign.foreign(kind, f"{kind.lower()}-sent", sent)
    sent_job = {**copy.deepcopy(job), "metadata": {**metadata, "name": "job-sent"}}
    sent_job["spec"]["managedBy"] = MULTI_KUEUE
    yield sent_job


def _suspended(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    if kind == "RayService":
        spec["rayClusterConfig"]["suspend"] = True
    elif kind in {"PyTorchJob", "MPIJob", "JAXJob", "PaddleJob", "TFJob", "XGBoostJob"}:
        spec["runPolicy"] = {"suspend": True}
    else:
        spec["suspend"] = True
    if kind == "RayJob":
        spec["submissionMode"] = "K8sJobMode"
    if kind == "TrainJob":
        own = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}
        spec["runtimePatches"] = [{"manager": "example.com/other"}, own]
    return spec


MANAGER = "kueue.x-k8s.io/manager"


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": TEAM, "labels": labels or {}}
    kept = {"held": ["kueue.x-k8s.io/managed", OTHER_FINALIZER], "running": list(MANAGED)}
    kept["lost"] = [OTHER_FINALIZER]
    metadata["finalizers"] = kept.get(name, [])
    if name in {"safe", "lost"}:
        metadata["annotations"] = {"kueue.x-k8s.io/safe-to-forcefully-delete": "true"}
    if name == "of-a-job":
        metadata["annotations"] = {"kueue.x-k8s.io/workload": "w"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata} | {
        "spec": {"containers": [container(0)], "restartPolicy": "Never", **spec}
    }


def template() -> dict[str, Any]:
    return {"spec": {"restartPolicy": "Never", "containers": [container(0)]}}


def pod_template(name: str, owner: str) -> dict[str, Any]:
    groups = {"Workload": "kueue.x-k8s.io/v1beta2", "ConfigMap": "v1"}
    owners = [{"apiVersion": groups[owner], "kind": owner, "name": "w", "uid": "1"}]
    metadata = {"name": name, "namespace": TEAM, "ownerReferences": owners}
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": template()}


def path_of(kind: str, name: str, subresource: str = "", namespace: str = TEAM) -> str:
    path = f"{driver.PATHS[kind].format(namespace=namespace)}/{name}"
    return f"{path}/{subresource}" if subresource else path


def patch(id: str, path: str, body: Any, account: str = CONTROLLER, **more: Any) -> Write:  # noqa: A002
    kind = JSON if isinstance(body, list) else MERGE
    shape = {"method": "PATCH", "path": path, "body": body, "content_type": kind}
    return Write(id=id, account=account, **shape, **more)


def status_of(kind: str, name: str) -> Write:
    """Return what a worker cluster might say of a job of a kind, which is written here."""
    status = {"active": 1} if kind == "Job" else foreign.done(kind) or {"state": "ready"}
    return patch(f"status-of-{name}", path_of(kind, name, "status"), {"status": status})


def replaced(path: str, value: Any) -> list[Any]:
    return [{"op": "replace", "path": path, "value": value}]


def added(path: str, value: Any) -> list[Any]:
    return [{"op": "add", "path": path, "value": value}]


STARTED = {
    "metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}, "annotations": {"a": "b"}},
    "spec": {
        "nodeSelector": {"gpu": "a100"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
    },
}
"""What a start adds to a pod template."""

TEMPLATES = {
    "JobSet": "/spec/replicatedJobs/0/template/spec/template",
    "JAXJob": "/spec/jaxReplicaSpecs/Worker/template",
    "MPIJob": "/spec/mpiReplicaSpecs/Worker/template",
    "PaddleJob": "/spec/paddleReplicaSpecs/Worker/template",
    "PyTorchJob": "/spec/pytorchReplicaSpecs/Worker/template",
    "TFJob": "/spec/tfReplicaSpecs/Worker/template",
    "XGBoostJob": "/spec/xgbReplicaSpecs/Worker/template",
    "RayCluster": "/spec/workerGroupSpecs/0/template",
    "RayJob": "/spec/rayClusterSpec/workerGroupSpecs/0/template",
    "RayService": "/spec/rayClusterConfig/headGroupSpec/template",
}
"""Where a job of each kind has one of its pod templates."""

COUNTS = {
    "JobSet": "/spec/replicatedJobs/0/replicas",
    "PyTorchJob": "/spec/pytorchReplicaSpecs/Worker/replicas",
    "RayCluster": "/spec/workerGroupSpecs/0/replicas",
    "RayJob": "/spec/rayClusterSpec/workerGroupSpecs/0/replicas",
    "RayService": "/spec/rayClusterConfig/workerGroupSpecs/0/replicas",
}
SUSPENDED = {
    "RayService": "/spec/rayClusterConfig/suspend",
    **dict.fromkeys(
        ("JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"),
        "/spec/runPolicy/suspend",
    ),
}


def started(where: str, *, labelled: bool = False) -> list[Any]:
    """Return what a start changes in the template at `where`, which may have labels already."""
    metadata, spec = STARTED["metadata"], STARTED["spec"]
    label = f"{where}/metadata/labels/kueue.x-k8s.io~1podset"
    operations = added(label, "main") if labelled else added(f"{where}/metadata", metadata)
    return [*operations, *(each for k, v in spec.items() for each in added(f"{where}/spec/{k}", v))]


SUBMITTER = {
    "spec": {
        "containers": [
            {
                "name": "ray-job-submitter",
                "resources": {
                    "limits": {"cpu": "1", "memory": "1Gi"},
                    "requests": {"cpu": "500m", "memory": "200Mi"},
                },
            }
        ],
        "restartPolicy": "Never",
    }
}


def train_job_patch(template: dict[str, Any]) -> dict[str, Any]:
    jobs = [{"name": "node", "template": {"spec": {"template": template}}}]
    runtime = {"template": {"spec": {"replicatedJobs": jobs}}}
    return {"manager": MANAGER, "trainingRuntimeSpec": runtime}


def created(id: str, item: dict[str, Any], account: str = CONTROLLER, **more: Any) -> Write:  # noqa: A002
    namespace = item["metadata"].get("namespace", "default")
    path = driver.PATHS[item["kind"]].format(namespace=namespace)
    return Write(id=id, account=account, method="POST", path=path, body=item, **more)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret_path(name: str, namespace: str = NAMESPACE) -> str:
    return f"{CORE}/namespaces/{namespace}/secrets/{name}"


def rule(group: str, resource: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "resources": [resource],
        "operations": ["CREATE"],
    }


def webhook(**more: Any) -> dict[str, Any]:
    """Return a webhook as policyd registers it, but for what is told otherwise."""
    selector = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": EXEMPT}
    return {
        "name": f"one.{CONFIGURATION_NAME}",
        "clientConfig": {
            "service": {"namespace": NAMESPACE, "name": WEBHOOKS, "path": "/validate"}
        },
        "rules": [rule("", "pods")],
        "namespaceSelector": {"matchExpressions": [selector]},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


def registered(id: str, which: str, name: str = CONFIGURATION_NAME, **more: Any) -> Write:  # noqa: A002
    path = f"{REGISTRATION}/{which}webhookconfigurations/{name}"
    return patch(id, path, {"webhooks": [webhook(**more)]}, WEBHOOKS)

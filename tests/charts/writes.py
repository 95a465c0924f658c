"""Writes of policyd's accounts: what each does, and what who has taken over a process might try.

All are tried without being carried out, on objects that an administrator has made.
"""

import base64
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.charts.release import CONTROLLER, NAMESPACE, WEBHOOKS
from tests.scenarios import api as driver
from tests.scenarios import foreign
from tests.scenarios.api import Api, Refused
from tests.scenarios.objects import container

TEAM = "team-a"
MERGE, JSON = "application/merge-patch+json", "application/json-patch+json"
IMAGE = "registry.example/stolen:1"
GATE, OTHER_GATE = {"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/other"}
QUEUE = {"kueue.x-k8s.io/queue-name": "team-a"}
MANAGED = {"kueue.x-k8s.io/managed": "true"}
STRANGER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "stranger", "uid": "1"}
DOOR = "door.policyd.io"
EXEMPT = ["kube-node-lease", "kube-public", "kube-system", NAMESPACE]
CORE, BATCH, APPS = "api/v1", "apis/batch/v1", "apis/apps/v1"
KUEUE = "apis/kueue.x-k8s.io/v1beta2"
REGISTRATION = "apis/admissionregistration.k8s.io/v1"
RBAC = "apis/rbac.authorization.k8s.io/v1"


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


def api_has(api: Api, item: dict[str, Any]) -> bool:
    metadata = item["metadata"]
    return api.exists(item["kind"], metadata["name"], metadata.get("namespace", "default"))


driver.PATHS |= foreign.paths() | {
    "PodTemplate": "api/v1/namespaces/{namespace}/podtemplates",
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
    yield pod("of-a-job", schedulingGates=[{"name": "kueue.x-k8s.io/topology"}])
    spec = {"suspend": True, "parallelism": 2, "completions": 2, "template": template()}
    metadata = {"name": "job", "namespace": TEAM, "labels": QUEUE}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    yield job
    annotations = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    partial = {**metadata, "name": "partial", "annotations": annotations}
    yield {**copy.deepcopy(job), "metadata": partial}
    for kind, made in foreign.SPECS.items():
        yield foreign.foreign(kind, kind.lower(), _suspended(kind, made(4)))
    kueue = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    flavor = {"name": "gpus", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    queue = {"resourceGroups": groups, "namespaceSelector": {}}
    yield kueue | {"kind": "ClusterQueue", "metadata": {"name": "queue"}, "spec": queue}
    yield kueue | {"kind": "ResourceFlavor", "metadata": {"name": "gpus"}, "spec": {}}
    for owner in ("Workload", "ConfigMap"):
        yield pod_template(owner.lower(), owner)


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


def _of(kind: str, name: str, subresource: str = "", namespace: str = TEAM) -> str:
    path = f"{driver.PATHS[kind].format(namespace=namespace)}/{name}"
    return f"{path}/{subresource}" if subresource else path


def patch(id: str, path: str, body: Any, account: str = CONTROLLER, **more: Any) -> Write:  # noqa: A002
    kind = JSON if isinstance(body, list) else MERGE
    shape = {"method": "PATCH", "path": path, "body": body, "content_type": kind}
    return Write(id=id, account=account, **shape, **more)


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


def _started(where: str, *, labelled: bool = False) -> list[Any]:
    """Return what a start changes in the template at `where`, which may have labels already."""
    metadata, spec = STARTED["metadata"], STARTED["spec"]
    label = f"{where}/metadata/labels/kueue.x-k8s.io~1podset"
    told = added(label, "main") if labelled else added(f"{where}/metadata", metadata)
    return [*told, *(each for k, v in spec.items() for each in added(f"{where}/spec/{k}", v))]


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


def _train_job_patch(template: dict[str, Any]) -> dict[str, Any]:
    jobs = [{"name": "node", "template": {"spec": {"template": template}}}]
    runtime = {"template": {"spec": {"replicatedJobs": jobs}}}
    return {"manager": MANAGER, "trainingRuntimeSpec": runtime}


def legal() -> Iterator[Write]:
    """Yield what the processes do, one of each sort."""
    gone = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    tolerations = added("/spec/tolerations/-", STARTED["spec"]["tolerations"][0])
    yield patch("a-held-pod-is-let-go", _of("Pod", "held"), gone)
    yield patch(
        "a-held-pod-is-sent-to-nodes", _of("Pod", "held"), {"spec": {"nodeSelector": {"a": "b"}}}
    )
    yield patch("a-pod-of-a-job-gets-its-place", _of("Pod", "of-a-job"), gone)
    yield patch("a-pod-tolerates-its-flavor", _of("Pod", "held"), tolerations)
    yield patch("a-pod-is-labelled", _of("Pod", "running"), {"metadata": {"labels": {"a": "b"}}})
    yield Write(
        id="a-pod-is-stopped", account=CONTROLLER, method="DELETE", path=_of("Pod", "running")
    )
    ends = {"type": "TerminationTarget", "status": "True"}
    ready = {"type": "Ready", "status": "True"}
    yield patch(
        "a-pod-is-told-that-it-ends",
        _of("Pod", "running", "status"),
        {"status": {"conditions": [ready, ends]}},
    )
    ended = added("/status/conditions/-", {"type": "TerminatedByKueue", "status": "True"})
    failed = [*replaced("/status/phase", "Failed"), *ended]
    yield patch("a-pod-fails", _of("Pod", "of-a-job", "status"), failed)
    unsuspended = replaced("/spec/suspend", False)
    starts = [*_started("/spec/template", labelled=True), *unsuspended]
    yield patch("a-Job-starts", _of("Job", "job"), starts)
    fewer = {"spec": {"parallelism": 1}}
    yield patch("a-Job-starts-in-part", _of("Job", "partial"), fewer)
    stopping = {"metadata": {"annotations": {"kueue.x-k8s.io/stopping": "true"}}}
    yield patch("a-Job-is-being-stopped", _of("Job", "job"), stopping | {"spec": {"suspend": True}})
    yield patch(
        "a-Job-was-never-started", _of("Job", "job", "status"), {"status": {"startTime": None}}
    )
    for kind, where in TEMPLATES.items():
        suspended = replaced(SUSPENDED.get(kind, "/spec/suspend"), False)
        yield patch(f"a-{kind}-starts", _of(kind, kind.lower()), [*_started(where), *suspended])
    submitter = [
        *added("/spec/submitterPodTemplate", SUBMITTER),
        *_started("/spec/submitterPodTemplate"),
    ]
    yield patch("a-RayJob-gets-its-submitter", _of("RayJob", "rayjob"), submitter)
    own = replaced("/spec/runtimePatches/1", _train_job_patch(STARTED))
    yield patch("a-TrainJob-starts", _of("TrainJob", "trainjob"), own)
    held = {"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}}
    yield patch("a-queue-is-held", _of("ClusterQueue", "queue"), held)
    yield _created("a-pod-template-is-made", pod_template("new", "Workload"))
    owner = {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "name": "r",
        "uid": "2",
    }
    handed = {"metadata": {"ownerReferences": [owner]}}
    yield patch("a-pod-template-is-handed-over", _of("PodTemplate", "workload"), handed)
    for each in ("mutating", "validating"):
        yield _registered(f"{each}-webhooks", each)
    policy = {
        "expression": "request.resource.group != '' || request.resource.resource != 'secrets'"
    }
    roles = {"expression": "request.resource.group != 'rbac.authorization.k8s.io'"}
    conditions = [policy | {"name": "no-secrets"}, roles | {"name": "no-roles"}]
    yield _registered(
        "everything-but-secrets-and-roles",
        "mutating",
        rules=[_rule("*", "*")],
        matchConditions=conditions,
    )
    data = {"tls.crt": _text("c"), "tls.key": _text("k"), "upcoming-ca.crt": _text("c")}
    yield patch("a-certificate-is-renewed", _secret(WEBHOOKS), {"data": data}, WEBHOOKS)


def _created(id: str, item: dict[str, Any], account: str = CONTROLLER, **more: Any) -> Write:  # noqa: A002
    namespace = item["metadata"].get("namespace", "default")
    path = driver.PATHS[item["kind"]].format(namespace=namespace)
    return Write(id=id, account=account, method="POST", path=path, body=item, **more)


def _text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _secret(name: str, namespace: str = NAMESPACE) -> str:
    return f"{CORE}/namespaces/{namespace}/secrets/{name}"


def _rule(group: str, resource: str) -> dict[str, Any]:
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
        "name": f"one.{DOOR}",
        "clientConfig": {
            "service": {"namespace": NAMESPACE, "name": WEBHOOKS, "path": "/validate"}
        },
        "rules": [_rule("", "pods")],
        "namespaceSelector": {"matchExpressions": [selector]},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


def _registered(id: str, which: str, name: str = DOOR, **more: Any) -> Write:  # noqa: A002
    path = f"{REGISTRATION}/{which}webhookconfigurations/{name}"
    return patch(id, path, {"webhooks": [webhook(**more)]}, WEBHOOKS)


def illegal() -> Iterator[Write]:
    """Yield what no process ever does."""
    yield from _illegal_of_pods()
    yield from _illegal_of_jobs()
    yield from _illegal_of_kinds()
    yield from _illegal_of_queues()
    yield from _illegal_registrations()
    yield from _illegal_certificates()
    for account in (CONTROLLER, WEBHOOKS):
        yield from _illegal_of_anybody(account)


def _illegal_of_pods() -> Iterator[Write]:
    held, plain, status = _of("Pod", "held"), _of("Pod", "plain"), _of("Pod", "running", "status")
    of_others = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    image = replaced("/spec/containers/0/image", IMAGE)
    yield patch("image-of-a-held-pod", held, image)
    yield patch("image-of-a-running-pod", _of("Pod", "running"), image)
    yield patch("image-of-a-pod-in-no-queue", plain, image)
    yield patch("end-of-a-pod", held, {"spec": {"activeDeadlineSeconds": 1}})
    yield patch("affinity-of-a-held-pod", held, {"spec": {"affinity": _affinity()}})
    yield patch("owner-of-a-pod", held, {"metadata": {"ownerReferences": [STRANGER]}})
    yield patch("finalizer-of-a-pod", held, {"metadata": {"finalizers": ["example.com/held"]}})
    yield patch("a-gate-of-others", held, [{"op": "remove", "path": "/spec/schedulingGates/1"}])
    yield patch("the-only-gate-of-others", _of("Pod", "waiting-for-others"), of_others)
    yield patch("a-pod-taken-into-the-queue", plain, {"metadata": {"labels": MANAGED}})
    yield patch(
        "a-pod-taken-from-the-queue", held, {"metadata": {"labels": dict.fromkeys(MANAGED)}}
    )
    yield patch("a-label-of-a-pod-in-no-queue", plain, {"metadata": {"labels": {"app": "b"}}})
    tolerations = added("/spec/tolerations/-", {"operator": "Exists"})
    yield patch("a-toleration-of-a-pod-in-no-queue", plain, tolerations)
    yield Write(id="a-pod-in-no-queue-deleted", account=CONTROLLER, method="DELETE", path=plain)
    yield patch("the-address-of-a-pod", status, {"status": {"podIPs": [{"ip": "10.0.0.9"}]}})
    yield patch("a-pod-succeeds", status, {"status": {"phase": "Succeeded"}})
    ready = [{"type": "Ready", "status": "False"}]
    yield patch("a-pod-is-not-ready", status, {"status": {"conditions": ready}})
    failed = {"status": {"phase": "Failed"}}
    yield patch("a-pod-in-no-queue-fails", _of("Pod", "plain", "status"), failed)
    labels = {"metadata": {"labels": {"app": "b"}}}
    yield patch("a-label-by-the-status", status, labels)
    new = pod("new") | {"spec": {"containers": [container(0)], "hostPID": True}}
    yield _created("a-pod-made", new, by_roles=True)


def _affinity() -> dict[str, Any]:
    expression = {"key": "a", "operator": "Exists"}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _illegal_of_jobs() -> Iterator[Write]:
    job, template = _of("Job", "job"), "/spec/template/spec"
    yield patch("owner-of-a-Job", job, {"metadata": {"ownerReferences": [STRANGER]}})
    yield patch("finalizer-of-a-Job", job, {"metadata": {"finalizers": ["example.com/held"]}})
    yield patch("more-pods-of-a-Job", job, {"spec": {"parallelism": 1}})
    least = {"metadata": {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "1"}}}
    yield patch("a-Job-to-be-admitted-in-part", job, least | {"spec": {"parallelism": 1}})
    yield patch("retries-of-a-Job", job, {"spec": {"backoffLimit": 99}})
    yield patch("the-end-of-a-Job", job, {"spec": {"ttlSecondsAfterFinished": 0}})
    gates = added(f"{template}/schedulingGates", [OTHER_GATE])
    yield patch("a-gate-of-others-in-a-Job", job, gates)
    yield patch("affinity-of-a-Job", job, added(f"{template}/affinity", _affinity()))
    status = _of("Job", "job", "status")
    yield patch("the-failures-of-a-Job", status, {"status": {"failed": 3}})
    new = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": globals()["template"]()}}
    new["metadata"] = {"name": "new", "namespace": TEAM}
    yield _created("a-Job-made", new, by_roles=True)
    yield Write(id="a-Job-deleted", account=CONTROLLER, method="DELETE", path=job, by_roles=True)


def _illegal_of_kinds() -> Iterator[Write]:
    for kind, where in TEMPLATES.items():
        path, spec = _of(kind, kind.lower()), f"{where}/spec"
        yield patch(f"image-of-a-{kind}", path, replaced(f"{spec}/containers/0/image", IMAGE))
        yield patch(f"account-of-a-{kind}", path, added(f"{spec}/serviceAccountName", "admin"))
        host = [{"name": "host", "hostPath": {"path": "/"}}]
        yield patch(f"volumes-of-a-{kind}", path, added(f"{spec}/volumes", host))
        owner = {"metadata": {"ownerReferences": [STRANGER]}}
        yield patch(f"owner-of-a-{kind}", path, owner)
    for kind, where in COUNTS.items():
        yield patch(f"size-of-a-{kind}", _of(kind, kind.lower()), replaced(where, 9))
    head = "/spec/rayClusterSpec/headGroupSpec"
    params = added(f"{head}/rayStartParams", {"a": "b"})
    ray_job, train_job = _of("RayJob", "rayjob"), _of("TrainJob", "trainjob")
    yield patch("head-of-a-RayJob", ray_job, params)
    yield patch("program-of-a-RayJob", ray_job, {"spec": {"entrypoint": "sh"}})
    stolen = copy.deepcopy(SUBMITTER)
    stolen["spec"]["containers"][0]["image"] = IMAGE
    yield patch("submitter-of-a-RayJob", ray_job, {"spec": {"submitterPodTemplate": stolen}})
    policy = {"spec": {"runPolicy": {"cleanPodPolicy": "None"}}}
    yield patch("policy-of-a-PyTorchJob", _of("PyTorchJob", "pytorchjob"), policy)
    role = added("/spec/pytorchReplicaSpecs/Stranger", {"replicas": 1, "template": template()})
    yield patch("role-of-a-PyTorchJob", _of("PyTorchJob", "pytorchjob"), role)
    groups = added("/spec/workerGroupSpecs/-", {"groupName": "more", "template": template()})
    yield patch("workers-of-a-RayCluster", _of("RayCluster", "raycluster"), groups)
    yield patch("image-of-a-TrainJob", train_job, {"spec": {"trainer": {"image": IMAGE}}})
    containers = {"spec": {"containers": [{"name": "node", "image": IMAGE}]}}
    own = replaced("/spec/runtimePatches/1", _train_job_patch(containers))
    yield patch("image-of-a-TrainJob-by-the-patch", train_job, own)
    other = replaced("/spec/runtimePatches/0", {"manager": "example.com/other", "time": "now"})
    yield patch("patch-of-others-in-a-TrainJob", train_job, other)


def _illegal_of_queues() -> Iterator[Write]:
    queue = _of("ClusterQueue", "queue")
    quota = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
    yield patch("quota-of-a-queue", queue, replaced(quota, "1000"))
    yield patch("finalizer-of-a-queue", queue, {"metadata": {"finalizers": ["example.com/held"]}})
    yield patch("annotation-of-a-queue", queue, {"metadata": {"annotations": {"a": "b"}}})
    yield Write(id="a-queue-deleted", account=CONTROLLER, method="DELETE", path=queue)
    nodes = {"spec": {"nodeLabels": {"a": "b"}}}
    yield patch("nodes-of-a-flavor", _of("ResourceFlavor", "gpus"), nodes)
    item = {"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "new"}, "spec": {}}
    yield _created("a-flavor-made", item | {"kind": "ResourceFlavor"})
    yield _created("a-pod-template-of-others-made", pod_template("new", "ConfigMap"))
    labels = {"metadata": {"labels": {"a": "b"}}}
    yield patch("a-label-of-a-pod-template", _of("PodTemplate", "workload"), labels)
    owner = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": "w", "uid": "1"}
    taken = {"metadata": {"ownerReferences": [owner]}}
    yield patch("a-pod-template-of-others", _of("PodTemplate", "configmap"), taken)


def _illegal_registrations() -> Iterator[Write]:
    for which in ("mutating", "validating"):
        yield _registered(f"{which}-Secrets", which, rules=[_rule("", "secrets")])
        yield _registered(f"{which}-parts-of-Secrets", which, rules=[_rule("*", "secrets/*")])
        rules = [_rule("", "pods"), _rule("*", "*")]
        yield _registered(f"{which}-everything", which, rules=rules)
        yield _registered(f"{which}-all-subresources", which, rules=[_rule("", "*/*")])
        url = {"url": "https://example.com/reviews"}
        yield _registered(f"{which}-another-address", which, clientConfig=url)
        service = {"service": {"namespace": TEAM, "name": WEBHOOKS}}
        yield _registered(f"{which}-another-service", which, clientConfig=service)
        yield _registered(f"{which}-every-namespace", which, namespaceSelector={})
        some = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": EXEMPT[:2]}
        selector = {"matchExpressions": [some]}
        yield _registered(f"{which}-kube-system", which, namespaceSelector=selector)
        only = {"matchExpressions": [some | {"operator": "In", "values": EXEMPT}]}
        yield _registered(f"{which}-only-kube-system", which, namespaceSelector=only)
        path = f"{REGISTRATION}/{which}webhookconfigurations/{DOOR}"
        deleted = {"method": "DELETE", "path": path}
        yield Write(id=f"{which}-configuration-deleted", account=WEBHOOKS, **deleted)
        labels = {"metadata": {"labels": {"a": "b"}}}
        yield patch(f"{which}-configuration-labelled", path, labels, WEBHOOKS)
        yield patch(f"{which}-by-the-controller", path, {"webhooks": []}, CONTROLLER)
        other = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "other"}}
        other |= {"kind": f"{which.title()}WebhookConfiguration", "webhooks": [webhook()]}
        made = {"method": "POST", "path": path.rpartition("/")[0], "body": other}
        yield Write(id=f"{which}-configuration-made", account=WEBHOOKS, **made)
    roles = [_rule("rbac.authorization.k8s.io", "clusterrolebindings")]
    yield _registered("mutating-roles", "mutating", rules=roles)


def _illegal_certificates() -> Iterator[Write]:
    own = _secret(WEBHOOKS)
    other = {"data": {"password": _text("p")}}
    yield patch("something-else-in-the-Secret", own, other, WEBHOOKS)
    yield patch("label-of-the-Secret", own, {"metadata": {"labels": {"a": "b"}}}, WEBHOOKS)
    yield Write(id="the-Secret-deleted", account=WEBHOOKS, method="DELETE", path=own)
    yield patch("the-Secret-by-the-controller", own, {"data": {}}, CONTROLLER)
    kind = f"{driver.PATHS['CustomResourceDefinition']}/clusterqueues.kueue.x-k8s.io"
    service = {"namespace": TEAM, "name": "stranger", "path": "/convert"}
    webhooks = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
    conversion = {"strategy": "Webhook", "webhook": webhooks}
    yield patch("conversion-by-others", kind, {"spec": {"conversion": conversion}}, WEBHOOKS)
    names = {"spec": {"names": {"categories": ["all"]}}}
    yield patch("names-of-a-kind", kind, names, WEBHOOKS)


def _illegal_of_anybody(account: str) -> Iterator[Write]:
    """Yield what neither account may do, whatever other roles it is bound to."""
    who = account.rpartition("-")[2]
    metadata = {"name": "stolen", "namespace": TEAM}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    yield _created(f"{who}-makes-a-Secret", secret, account)
    token = {
        "metadata": metadata | {"annotations": {"kubernetes.io/service-account.name": "default"}}
    }
    secret = secret | token | {"type": "kubernetes.io/service-account-token"}
    yield _created(f"{who}-makes-a-token-by-a-Secret", secret, account)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "stolen"}}
    yield _created(f"{who}-makes-a-role", role | {"kind": "ClusterRole", "rules": []}, account)
    admin = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    yield _created(
        f"{who}-binds-a-role", role | {"kind": "ClusterRoleBinding", "roleRef": admin}, account
    )
    yield patch(f"{who}-changes-its-role", f"{RBAC}/clusterroles/{account}", {"rules": []}, account)
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": []},
    }
    path = f"{CORE}/namespaces/kube-system/serviceaccounts/default/token"
    yield Write(
        id=f"{who}-asks-for-a-token", account=account, method="POST", path=path, body=request
    )
    pod_path = _of("Pod", "running")
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": IMAGE}]}}
    yield patch(f"{who}-adds-a-container", f"{pod_path}/ephemeralcontainers", debug, account)
    execute = {"method": "POST", "path": f"{pod_path}/exec?command=sh&stdout=true"}
    yield Write(id=f"{who}-runs-a-command", account=account, **execute)
    target = {"apiVersion": "v1", "kind": "Node", "name": "node"}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "running"},
        "target": target,
    }
    bound = {"method": "POST", "path": f"{pod_path}/binding", "body": binding}
    yield Write(id=f"{who}-binds-a-pod", account=account, **bound)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "running"}}
    evicted = {"method": "POST", "path": f"{pod_path}/eviction", "body": eviction}
    yield Write(id=f"{who}-evicts-a-pod", account=account, **evicted)
    resources = "/spec/containers/0/resources"
    resized = [e for of in ("requests", "limits") for e in added(f"{resources}/{of}/cpu", "9")]
    yield patch(f"{who}-resizes-a-pod", f"{pod_path}/resize", resized, account)
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    yield patch(f"{who}-labels-a-namespace", f"{CORE}/namespaces/{TEAM}", labels, account)
    own = f"{CORE}/namespaces/{NAMESPACE}/configmaps"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stolen"}}
    yield Write(
        id=f"{who}-makes-a-ConfigMap", account=account, method="POST", path=own, body=config
    )
    service = f"{CORE}/namespaces/default/services/kubernetes"
    yield patch(f"{who}-leads-a-Service-away", service, {"spec": {"selector": {"a": "b"}}}, account)
    name = "policyd-neither"
    for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        path = f"{REGISTRATION}/{kind}/{name}"
        deleted = {"method": "DELETE", "path": path, "by_roles": True}
        yield Write(id=f"{who}-frees-itself-of-{kind}", account=account, **deleted)

"""What who has taken over one of policyd's processes might write, and no process ever does."""

import copy
from collections.abc import Iterator
from typing import Any

from tests.charts.release import CONTROLLER, WEBHOOKS
from tests.charts.writes import (
    CONFIG_MAPS,
    CONFIGURATION_NAME,
    CORE,
    COUNTS,
    EXEMPT,
    FORMER,
    IMAGE,
    MANAGED,
    NO_FINALIZERS,
    OTHER_GATE,
    RBAC,
    REGISTRATION,
    STRANGER,
    SUBMITTER,
    TEAM,
    TEMPLATES,
    Write,
    added,
    created,
    encoded,
    patch,
    path_of,
    pod,
    pod_template,
    registered,
    replaced,
    rule,
    secret_path,
    status_of,
    template,
    train_job_patch,
    webhook,
)
from tests.scenarios import api as driver
from tests.scenarios import foreign
from tests.scenarios.objects import container


def illegal() -> Iterator[Write]:
    """Yield what no process ever does."""
    yield from _illegal_of_pods()
    yield from _illegal_of_pod_statuses()
    yield from _illegal_of_jobs()
    yield from _illegal_of_kinds()
    yield from _illegal_of_queues()
    yield from _illegal_registrations()
    yield from _illegal_writes_of_former_registrations()
    yield from _illegal_certificates()
    yield from _illegal_of_webhooks()
    for account in (CONTROLLER, WEBHOOKS):
        yield from _illegal_of_anybody(account)
        yield from _illegal_creations(account)
        yield from _illegal_in_pods(account)
        yield from _illegal_outside(account)


def _illegal_of_pods() -> Iterator[Write]:
    held, plain = path_of("Pod", "held"), path_of("Pod", "plain")
    of_others = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    image = replaced("/spec/containers/0/image", IMAGE)
    yield patch("image-of-a-held-pod", held, image)
    yield patch("image-of-a-running-pod", path_of("Pod", "running"), image)
    yield patch("image-of-a-pod-in-no-queue", plain, image)
    yield patch("end-of-a-pod", held, {"spec": {"activeDeadlineSeconds": 1}})
    yield patch("affinity-of-a-held-pod", held, {"spec": {"affinity": _affinity()}})
    yield patch("owner-of-a-pod", held, {"metadata": {"ownerReferences": [STRANGER]}})
    yield patch("finalizer-of-a-pod", held, {"metadata": {"finalizers": ["example.com/held"]}})
    ours = {"metadata": {"finalizers": ["kueue.x-k8s.io/managed"]}}
    yield patch("the-finalizer-of-others", held, ours)
    yield patch("all-finalizers-of-a-pod", held, NO_FINALIZERS)
    yield patch("the-finalizer-of-a-pod-in-no-queue", plain, ours)
    yield patch("a-gate-of-others", held, [{"op": "remove", "path": "/spec/schedulingGates/1"}])
    yield patch("the-only-gate-of-others", path_of("Pod", "waiting-for-others"), of_others)
    yield patch("a-pod-taken-into-the-queue", plain, {"metadata": {"labels": MANAGED}})
    yield patch(
        "a-pod-taken-from-the-queue", held, {"metadata": {"labels": dict.fromkeys(MANAGED)}}
    )
    yield patch("a-label-of-a-pod-in-no-queue", plain, {"metadata": {"labels": {"app": "b"}}})
    tolerations = added("/spec/tolerations/-", {"operator": "Exists"})
    yield patch("a-toleration-of-a-pod-in-no-queue", plain, tolerations)
    yield Write(id="a-pod-in-no-queue-deleted", account=CONTROLLER, method="DELETE", path=plain)


def _illegal_of_pod_statuses() -> Iterator[Write]:
    status = path_of("Pod", "running", "status")
    yield patch("the-address-of-a-pod", status, {"status": {"podIPs": [{"ip": "10.0.0.9"}]}})
    yield patch("a-pod-succeeds", status, {"status": {"phase": "Succeeded"}})
    ready = [{"type": "Ready", "status": "False"}]
    yield patch("a-pod-is-not-ready", status, {"status": {"conditions": ready}})
    failed = {"status": {"phase": "Failed"}}
    yield patch("a-pod-in-no-queue-fails", path_of("Pod", "plain", "status"), failed)
    yield patch("a-pod-that-is-not-deleted-fails", path_of("Pod", "safe", "status"), failed)
    safe = path_of("Pod", "safe")
    yield Write(id="a-pod-that-is-not-lost", account=CONTROLLER, method="DELETE", path=safe)
    labels = {"metadata": {"labels": {"app": "b"}}}
    yield patch("a-label-by-the-status", status, labels)
    yield patch("a-finalizer-by-the-status", status, NO_FINALIZERS)


def _affinity() -> dict[str, Any]:
    expression = {"key": "a", "operator": "Exists"}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _illegal_of_jobs() -> Iterator[Write]:
    job, where = path_of("Job", "job"), "/spec/template/spec"
    yield patch("owner-of-a-Job", job, {"metadata": {"ownerReferences": [STRANGER]}})
    yield patch("finalizer-of-a-Job", job, {"metadata": {"finalizers": ["example.com/held"]}})
    yield patch("more-pods-of-a-Job", job, {"spec": {"parallelism": 1}})
    least = {"metadata": {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "1"}}}
    yield patch("a-Job-to-be-admitted-in-part", job, least | {"spec": {"parallelism": 1}})
    yield patch("retries-of-a-Job", job, {"spec": {"backoffLimit": 99}})
    yield patch("the-end-of-a-Job", job, {"spec": {"ttlSecondsAfterFinished": 0}})
    gates = added(f"{where}/schedulingGates", [OTHER_GATE])
    yield patch("a-gate-of-others-in-a-Job", job, gates)
    yield patch("affinity-of-a-Job", job, added(f"{where}/affinity", _affinity()))
    status = path_of("Job", "job", "status")
    yield patch("the-failures-of-a-Job", status, {"status": {"failed": 3}})
    yield Write(id="a-Job-deleted", account=CONTROLLER, method="DELETE", path=job)


def _illegal_of_kinds() -> Iterator[Write]:
    for kind, where in TEMPLATES.items():
        path, spec = path_of(kind, kind.lower()), f"{where}/spec"
        yield patch(f"image-of-a-{kind}", path, replaced(f"{spec}/containers/0/image", IMAGE))
        yield patch(f"account-of-a-{kind}", path, added(f"{spec}/serviceAccountName", "admin"))
        host = [{"name": "host", "hostPath": {"path": "/"}}]
        yield patch(f"volumes-of-a-{kind}", path, added(f"{spec}/volumes", host))
        owner = {"metadata": {"ownerReferences": [STRANGER]}}
        yield patch(f"owner-of-a-{kind}", path, owner)
    for kind in foreign.SPECS:
        yield status_of(kind, kind.lower())
    for kind, where in COUNTS.items():
        yield patch(f"size-of-a-{kind}", path_of(kind, kind.lower()), replaced(where, 9))
    head = "/spec/rayClusterSpec/headGroupSpec"
    params = added(f"{head}/rayStartParams", {"a": "b"})
    ray_job, train_job = path_of("RayJob", "rayjob"), path_of("TrainJob", "trainjob")
    yield patch("head-of-a-RayJob", ray_job, params)
    yield patch("program-of-a-RayJob", ray_job, {"spec": {"entrypoint": "sh"}})
    stolen = copy.deepcopy(SUBMITTER)
    stolen["spec"]["containers"][0]["image"] = IMAGE
    yield patch("submitter-of-a-RayJob", ray_job, {"spec": {"submitterPodTemplate": stolen}})
    policy = {"spec": {"runPolicy": {"cleanPodPolicy": "None"}}}
    yield patch("policy-of-a-PyTorchJob", path_of("PyTorchJob", "pytorchjob"), policy)
    role = added("/spec/pytorchReplicaSpecs/Stranger", {"replicas": 1, "template": template()})
    yield patch("role-of-a-PyTorchJob", path_of("PyTorchJob", "pytorchjob"), role)
    groups = added("/spec/workerGroupSpecs/-", {"groupName": "more", "template": template()})
    yield patch("workers-of-a-RayCluster", path_of("RayCluster", "raycluster"), groups)
    yield patch("image-of-a-TrainJob", train_job, {"spec": {"trainer": {"image": IMAGE}}})
    containers = {"spec": {"containers": [{"name": "node", "image": IMAGE}]}}
    own = replaced("/spec/runtimePatches/1", train_job_patch(containers))
    yield patch("image-of-a-TrainJob-by-the-patch", train_job, own)
    other = replaced("/spec/runtimePatches/0", {"manager": "example.com/other", "time": "now"})
    yield patch("patch-of-others-in-a-TrainJob", train_job, other)


def _illegal_of_queues() -> Iterator[Write]:
    queue = path_of("ClusterQueue", "queue")
    quota = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
    yield patch("quota-of-a-queue", queue, replaced(quota, "1000"))
    yield patch("finalizer-of-a-queue", queue, {"metadata": {"finalizers": ["example.com/held"]}})
    yield patch("annotation-of-a-queue", queue, {"metadata": {"annotations": {"a": "b"}}})
    yield Write(id="a-queue-deleted", account=CONTROLLER, method="DELETE", path=queue)
    nodes = {"spec": {"nodeLabels": {"a": "b"}}}
    yield patch("nodes-of-a-flavor", path_of("ResourceFlavor", "gpus"), nodes)
    item = {"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "new"}, "spec": {}}
    yield created("a-flavor-made", item | {"kind": "ResourceFlavor"})
    yield created("a-pod-template-of-others-made", pod_template("new", "ConfigMap"))
    labels = {"metadata": {"labels": {"a": "b"}}}
    yield patch("a-label-of-a-pod-template", path_of("PodTemplate", "workload"), labels)
    owner = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": "w", "uid": "1"}
    taken = {"metadata": {"ownerReferences": [owner]}}
    yield patch("a-pod-template-of-others", path_of("PodTemplate", "configmap"), taken)


def _illegal_registrations() -> Iterator[Write]:
    for which in ("mutating", "validating"):
        yield registered(f"{which}-Secrets", which, rules=[rule("", "secrets")])
        yield registered(f"{which}-parts-of-Secrets", which, rules=[rule("*", "secrets/*")])
        rules = [rule("", "pods"), rule("*", "*")]
        yield registered(f"{which}-everything", which, rules=rules)
        yield registered(f"{which}-all-subresources", which, rules=[rule("", "*/*")])
        url = {"url": "https://example.com/reviews"}
        yield registered(f"{which}-another-address", which, clientConfig=url)
        service = {"service": {"namespace": TEAM, "name": WEBHOOKS}}
        yield registered(f"{which}-another-service", which, clientConfig=service)
        yield registered(f"{which}-every-namespace", which, namespaceSelector={})
        some = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": EXEMPT[:2]}
        selector = {"matchExpressions": [some]}
        yield registered(f"{which}-kube-system", which, namespaceSelector=selector)
        only = {"matchExpressions": [some | {"operator": "In", "values": EXEMPT}]}
        yield registered(f"{which}-only-kube-system", which, namespaceSelector=only)
        path = f"{REGISTRATION}/{which}webhookconfigurations/{CONFIGURATION_NAME}"
        deleted = {"method": "DELETE", "path": path}
        yield Write(id=f"{which}-configuration-deleted", account=WEBHOOKS, **deleted)
        labels = {"metadata": {"labels": {"a": "b"}}}
        yield patch(f"{which}-configuration-labelled", path, labels, WEBHOOKS)
        yield patch(f"{which}-by-the-controller", path, {"webhooks": []}, CONTROLLER)
        other = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "other"}}
        other |= {"kind": f"{which.title()}WebhookConfiguration", "webhooks": [webhook()]}
        made = {"method": "POST", "path": path.rpartition("/")[0], "body": other}
        yield Write(id=f"{which}-configuration-made", account=WEBHOOKS, **made)
    roles = [rule("rbac.authorization.k8s.io", "clusterrolebindings")]
    yield registered("mutating-roles", "mutating", rules=roles)


def _illegal_writes_of_former_registrations() -> Iterator[Write]:
    for which in ("mutating", "validating"):
        path = f"{REGISTRATION}/{which}webhookconfigurations"
        former = {"method": "DELETE", "path": f"{path}/{FORMER}"}
        yield Write(id=f"{which}-former-deleted-by-the-controller", account=CONTROLLER, **former)
        everything = {"method": "DELETE", "path": path}
        yield Write(id=f"{which}-configurations-deleted", account=WEBHOOKS, **everything)
        yield registered(f"{which}-former-for-Secrets", which, FORMER, rules=[rule("", "secrets")])


def _illegal_certificates() -> Iterator[Write]:
    own = secret_path(WEBHOOKS)
    other = {"data": {"password": encoded("p")}}
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
    yield created(f"{who}-makes-a-Secret", secret, account)
    token = {
        "metadata": metadata | {"annotations": {"kubernetes.io/service-account.name": "default"}}
    }
    secret = secret | token | {"type": "kubernetes.io/service-account-token"}
    yield created(f"{who}-makes-a-token-by-a-Secret", secret, account)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "stolen"}}
    yield created(f"{who}-makes-a-role", role | {"kind": "ClusterRole", "rules": []}, account)
    admin = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    yield created(
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


def _illegal_creations(account: str) -> Iterator[Write]:
    """Yield what would run: images, as any account of a namespace."""
    who = account.rpartition("-")[2]
    new = pod("new") | {"spec": {"containers": [container(0)], "hostPID": True}}
    yield created(f"{who}-makes-a-pod", new, account)
    metadata = {"name": "new", "namespace": TEAM}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    yield created(f"{who}-makes-a-Job", job | {"spec": {"template": template()}}, account)
    for kind, made in foreign.SPECS.items():
        yield created(f"{who}-makes-a-{kind}", foreign.foreign(kind, "new", made(4)), account)


def _illegal_of_webhooks() -> Iterator[Write]:
    """Yield changes of what runs, which only the controller makes."""
    for kind, name in (("Pod", "held"), ("Job", "job"), ("JobSet", "jobset")):
        path, labels = path_of(kind, name), {"metadata": {"labels": {"app": "b"}}}
        yield patch(f"the-webhooks-label-a-{kind}", path, labels, WEBHOOKS)
        deleted = {"method": "DELETE", "path": path}
        yield Write(id=f"the-webhooks-delete-a-{kind}", account=WEBHOOKS, **deleted)


def _illegal_in_pods(account: str) -> Iterator[Write]:
    """Yield ways into a pod that runs."""
    who = account.rpartition("-")[2]
    pod_path = path_of("Pod", "running")
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


def _illegal_outside(account: str) -> Iterator[Write]:
    """Yield what changes what others are given, or what binds the account."""
    who = account.rpartition("-")[2]
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    yield patch(f"{who}-labels-a-namespace", f"{CORE}/namespaces/{TEAM}", labels, account)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stolen"}}
    made = {"method": "POST", "path": CONFIG_MAPS, "body": config}
    yield Write(id=f"{who}-makes-a-ConfigMap", account=account, **made)
    others = f"{CONFIG_MAPS}/kube-root-ca.crt"
    yield patch(f"{who}-changes-a-ConfigMap", others, {"data": {"ca.crt": "mine"}}, account)
    service = f"{CORE}/namespaces/default/services/kubernetes"
    yield patch(f"{who}-leads-a-Service-away", service, {"spec": {"selector": {"a": "b"}}}, account)
    name = "policyd-neither"
    for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        path = f"{REGISTRATION}/{kind}/{name}"
        deleted = {"method": "DELETE", "path": path, "by_roles": True}
        yield Write(id=f"{who}-frees-itself-of-{kind}", account=account, **deleted)

"""The objects that the stories are about."""

PATHS = {
    "ConfigMap": ("/api/v1", "configmaps", True),
    "CronTab": ("/apis/likeness.example.com/v1", "crontabs", True),
    "CustomResourceDefinition": (
        "/apis/apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        False,
    ),
    "Deployment": ("/apis/apps/v1", "deployments", True),
    "Event": ("/api/v1", "events", True),
    "Job": ("/apis/batch/v1", "jobs", True),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases", True),
    "MutatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1",
        "mutatingwebhookconfigurations",
        False,
    ),
    "Namespace": ("/api/v1", "namespaces", False),
    "NewEvent": ("/apis/events.k8s.io/v1", "events", True),
    "Node": ("/api/v1", "nodes", False),
    "Pod": ("/api/v1", "pods", True),
    "PriorityClass": ("/apis/scheduling.k8s.io/v1", "priorityclasses", False),
    "ResourceClaim": ("/apis/resource.k8s.io/v1", "resourceclaims", True),
    "ResourceClaimTemplate": ("/apis/resource.k8s.io/v1", "resourceclaimtemplates", True),
    "Secret": ("/api/v1", "secrets", True),
    "Service": ("/api/v1", "services", True),
    "ServiceAccount": ("/api/v1", "serviceaccounts", True),
    "StatefulSet": ("/apis/apps/v1", "statefulsets", True),
    "ValidatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
        False,
    ),
}
"""Where each kind is: the root of its group, its plural, and whether it is namespaced."""

CONTAINER = {"name": "main", "image": "busybox"}

API_VERSIONS = {
    kind: root.removeprefix("/apis/").removeprefix("/api/") for kind, (root, _, _) in PATHS.items()
}


def make(kind, name, /, **more):
    """Build an object; `labels` and other metadata are given as `metadata`."""
    metadata = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, "metadata": metadata, **more}


def pod(name="web", /, *, metadata=None, container=None, **spec):
    containers = [{**CONTAINER, **(container or {})}]
    return make("Pod", name, metadata=metadata or {}, spec={"containers": containers, **spec})


GATE = {"name": "example.com/wait"}


def gated(name="web", /, **spec):
    return pod(name, schedulingGates=[GATE], **spec)


def job(name="web", /, *, metadata=None, template=None, **spec):
    inner = {"restartPolicy": "Never", "containers": [CONTAINER], **(template or {})}
    return make("Job", name, metadata=metadata or {}, spec={"template": {"spec": inner}, **spec})


def deployment(name="web", /, **spec):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}
    selector = {"matchLabels": {"app": "web"}}
    return make("Deployment", name, spec={"selector": selector, "template": template, **spec})


def config_map(name="web", /, *, metadata=None, **data):
    return make("ConfigMap", name, metadata=metadata or {}, data=data or {"a": "b"})

"""Documents beside the objects: discovery, versions, reviews."""

from tests.e2e.likeness.asking import Ask

GROUPS = {
    "admissionregistration.k8s.io": "v1",
    "apiextensions.k8s.io": "v1",
    "apps": "v1",
    "batch": "v1",
    "coordination.k8s.io": "v1",
    "events.k8s.io": "v1",
    "policy": "v1",
    "rbac.authorization.k8s.io": "v1",
    "scheduling.k8s.io": "v1",
    "storage.k8s.io": "v1",
}

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


def get(path, accept="application/json"):
    return Ask(method="GET", path=path, accept=accept)


def review(kind, spec, version="authorization.k8s.io/v1"):
    plural = f"{kind.lower()}s"
    body = {"apiVersion": version, "kind": kind, "spec": spec}
    return Ask(method="POST", path=f"/apis/{version}/{plural}", body=body)


ATTRIBUTES = {"namespace": "default", "verb": "create", "resource": "pods"}

STORIES = {
    "discovery": [get("/api"), *(get(f"/apis/{name}") for name in GROUPS)],
    "reviews": [
        review("SelfSubjectAccessReview", {"resourceAttributes": ATTRIBUTES}),
        review("SelfSubjectAccessReview", {"nonResourceAttributes": {"path": "/", "verb": "get"}}),
        review("SelfSubjectAccessReview", {}),
        review(
            "SubjectAccessReview",
            {"resourceAttributes": ATTRIBUTES, "user": "x", "groups": ["system:masters"]},
        ),
        review("SelfSubjectReview", {}, "authentication.k8s.io/v1"),
    ],
    "health": [get("/healthz"), get("/livez"), get("/readyz")],
}

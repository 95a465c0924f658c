"""Events of an audit log, as kube-apiserver writes them."""

import json
from itertools import count

KINDS = {
    "pods": ("", "v1", "Pod"),
    "jobs": ("batch", "v1", "Job"),
    "namespaces": ("", "v1", "Namespace"),
}
KINDS |= {"configmaps": ("", "v1", "ConfigMap"), "deployments": ("apps", "v1", "Deployment")}
KINDS |= {"replicasets": ("apps", "v1", "ReplicaSet")}

_NUMBERS = count(1)


def event(verb, resource, name="", *, namespace="team-a", sent=None, answer=None, **more):
    """Return an event at level RequestResponse whose request succeeded, unless told otherwise."""
    group, version, _ = KINDS[resource]
    subresource = more.pop("subresource", "")
    reference = {"resource": resource, "namespace": namespace, "name": name}
    reference |= {"apiGroup": group, "apiVersion": version, "subresource": subresource}
    number = next(_NUMBERS)
    found = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": f"id-{number}",
        "stage": "ResponseComplete",
        "requestURI": f"/api/{resource}",
        "verb": verb,
        "user": {"username": "ada", "groups": ["system:authenticated"]},
        "objectRef": {key: value for key, value in reference.items() if value},
        "responseStatus": {"metadata": {}, "code": 201 if verb == "create" else 200},
        "requestReceivedTimestamp": f"2026-01-01T00:00:{number % 60:02}.000000Z",
    }
    if sent is not None:
        found["requestObject"] = sent
    if answer is not None:
        found["responseObject"] = answer
    return found | more


def obj(resource, name, *, namespace="team-a", labels=None, owner=None, **more):
    """Return an object of a resource."""
    group, version, kind = KINDS[resource]
    metadata = {"name": name}
    if namespace and resource != "namespaces":
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = labels
    if owner:
        kind_of_owner, name_of_owner = owner
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": kind_of_owner, "name": name_of_owner}
            | {"uid": "u", "controller": True}
        ]
    api_version = f"{group}/{version}" if group else version
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def pod(name, image="registry.example/a:1", **more):
    """Return a pod of one container."""
    spec = {"containers": [{"name": "main", "image": image}]}
    return obj("pods", name, spec=spec, **more)


def created(resource, made, *, level="RequestResponse", **more):
    """Return the creation of an object, whose answer is the object."""
    answer = {"answer": made} if level == "RequestResponse" else {}
    namespace = made["metadata"].get("namespace", "")
    name = made["metadata"].get("name", "")
    return event(
        "create", resource, name, namespace=namespace, sent=made, level=level, **answer, **more
    )


def lines(events):
    """Return a log of events."""
    return "".join(f"{json.dumps(each, separators=(',', ':'))}\n" for each in events)

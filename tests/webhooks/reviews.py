"""Reviews as the API server sends them."""

import base64
import json

from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import parse_operations

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train", "namespace": "team-a", "labels": {"app": "train"}},
    "spec": {"containers": [{"name": "main", "image": "registry.local/train:1"}]},
}


def review(obj=POD, *, operation="CREATE", old=None, resource="pods", uid="u-1", user="alice"):
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version, "kind": obj["kind"]}
    where = {"group": group, "version": version, "resource": resource}
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": uid,
                "kind": kind,
                "resource": where,
                "requestKind": kind,
                "requestResource": where,
                "name": obj["metadata"].get("name", ""),
                "namespace": obj["metadata"].get("namespace", ""),
                "operation": operation,
                "userInfo": {"username": user, "groups": ["system:authenticated"]},
                "object": obj,
                "oldObject": old,
                "dryRun": False,
                "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            },
        }
    ).encode()


def response(body):
    return json.loads(body)["response"]


def patch(body):
    return patch_of(response(body))


def patch_of(answered):
    return json.loads(base64.b64decode(answered["patch"])) if "patch" in answered else []


def patched(body, obj=POD):
    return apply_json_patch(obj, parse_operations(patch(body)))


def queued(obj, queue="gpus"):
    labels = {**obj["metadata"].get("labels", {}), "kueue.x-k8s.io/queue-name": queue}
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}}


def policy(name, resources=("pods",), group="", version="v1", **spec):
    rule = {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["CREATE"],
        "resources": list(resources),
    }
    return {
        "apiVersion": "policyd.io/v1alpha1",
        "kind": "Policy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, **spec},
    }

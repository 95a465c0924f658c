"""A plain driver of a Kubernetes API for the scenarios: the standard library and a kubeconfig."""

import base64
import copy
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

T = TypeVar("T")

PATHS = {
    "Pod": "api/v1/namespaces/{namespace}/pods",
    "Node": "api/v1/nodes",
    "Namespace": "api/v1/namespaces",
    "Event": "api/v1/namespaces/{namespace}/events",
    "ConfigMap": "api/v1/namespaces/{namespace}/configmaps",
    "PriorityClass": "apis/scheduling.k8s.io/v1/priorityclasses",
    "Job": "apis/batch/v1/namespaces/{namespace}/jobs",
    "Deployment": "apis/apps/v1/namespaces/{namespace}/deployments",
    "ReplicaSet": "apis/apps/v1/namespaces/{namespace}/replicasets",
    "CustomResourceDefinition": "apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ResourceFlavor": "apis/kueue.x-k8s.io/v1beta2/resourceflavors",
    "Cohort": "apis/kueue.x-k8s.io/v1beta2/cohorts",
    "Topology": "apis/kueue.x-k8s.io/v1beta2/topologies",
    "AdmissionCheck": "apis/kueue.x-k8s.io/v1beta2/admissionchecks",
    "MultiKueueCluster": "apis/kueue.x-k8s.io/v1beta2/multikueueclusters",
    "MultiKueueConfig": "apis/kueue.x-k8s.io/v1beta2/multikueueconfigs",
    "ClusterQueue": "apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    "LocalQueue": "apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/localqueues",
    "Workload": "apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads",
    "WorkloadPriorityClass": "apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses",
    "Policy": "apis/policyd.io/v1alpha1/policies",
    "PolicyBinding": "apis/policyd.io/v1alpha1/policybindings",
}
PATCH_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Refused(Exception):
    """The API server said no."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message


ALIASES = {("batch.volcano.sh/v1alpha1", "Job"): "VolcanoJob"}
"""Kinds of objects whose name another kind has, too."""


def kind_of(item: dict[str, Any]) -> str:
    """Return the name of an object's kind here."""
    return ALIASES.get((item["apiVersion"], item["kind"]), item["kind"])


class Api:
    """One API server, as a kubeconfig names it."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server = cluster["server"]
        self.token = user["token"]
        self.warnings: list[str] = []
        self.headers: dict[str, str] = {}
        self._context = ssl.create_default_context(cadata=authority(cluster))

    def acting_as(self, user: str, group: str = "system:masters") -> "Api":
        """Return the same API for somebody else, who may do everything unless he is in a group."""
        other = copy.copy(self)
        other.headers = {"Impersonate-User": user, "Impersonate-Group": group}
        return other

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Send one request and return the decoded answer."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/json",
            **self.headers,
        }
        content_type = options.pop("content_type", "application/json")
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        query = urllib.parse.urlencode({k: v for k, v in options.items() if v is not None})
        url = f"{self.server}/{path}" + (f"?{query}" if query else "")
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        if data is not None:
            request.add_header("Content-Type", content_type)
        for waits in reversed(range(10)):  # as every client does that the server tells to wait
            try:
                with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
                    self.warnings = answer.headers.get_all("Warning") or []
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                if not (error.code == 429 and "Retry-After" in error.headers and waits):
                    raise refused(error) from None
                time.sleep(float(error.headers["Retry-After"]))
        raise AssertionError("unreachable")

    def create(self, item: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        namespace = item["metadata"].get("namespace", "default")
        path = PATHS[kind_of(item)].format(namespace=namespace)
        return self.call("POST", path, item, dryRun="All" if dry_run else None)

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        return self.call("GET", f"{PATHS[kind].format(namespace=namespace)}/{name}")

    def find(self, kind: str, namespace: str = "default", **query: str) -> list[dict[str, Any]]:
        return self.call("GET", PATHS[kind].format(namespace=namespace), **query)["items"]

    def patch(
        self, kind: str, name: str, patch: Any, *, namespace: str = "default", by: str = "merge"
    ) -> dict[str, Any]:
        path = f"{PATHS[kind].format(namespace=namespace)}/{name}"
        return self.call("PATCH", path, patch, content_type=PATCH_TYPES[by])

    def delete(
        self,
        kind: str,
        name: str,
        namespace: str = "default",
        *,
        missing_is_fine: bool = False,
        at_once: bool = False,
    ) -> None:
        """Delete an object; a pod `at_once` without its node, which may be gone."""
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        if at_once:
            body["gracePeriodSeconds"] = 0
        try:
            self.call("DELETE", f"{PATHS[kind].format(namespace=namespace)}/{name}", body)
        except Refused as refusal:
            if not (missing_is_fine and refusal.code == 404):
                raise

    def exists(self, kind: str, name: str, namespace: str = "default") -> bool:
        try:
            self.get(kind, name, namespace)
        except Refused as refusal:
            if refusal.code == 404:
                return False
            raise
        return True


def authority(cluster: dict[str, str]) -> str:
    """Return the authority to trust, which a kubeconfig holds or names."""
    held = cluster.get("certificate-authority-data")
    return (
        base64.b64decode(held).decode()
        if held
        else Path(cluster["certificate-authority"]).read_text()
    )


def refused(error: urllib.error.HTTPError) -> Refused:
    text = error.read().decode(errors="replace")
    try:
        status = json.loads(text)
    except ValueError:
        return Refused(error.code, error.reason, text)
    return Refused(error.code, status.get("reason", ""), status.get("message", text))


def eventually(look: Callable[[], T], *, within: float = 30, what: str = "") -> T:
    """Look until what is seen is true, and return it. The world outside cannot be hurried."""
    deadline = time.monotonic() + within
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what or look}; last seen: {seen!r}")
        time.sleep(0.1)


def condition(item: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the condition of that type; empty if it is not there."""
    conditions = item.get("status", {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == kind), {})

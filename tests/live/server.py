"""A real API server to install policies on and to ask by dry-run.

It lets everybody do everything (permissions are not what is examined), and is asked over several
connections at a time.
"""

import copy
import http.client
import itertools
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from policyd.api.kinds import resource_for_kind
from policyd.engine.objects.workloads import find_kind
from policyd.engine.offline.requests import plural_of
from tests.controlplane.programs import API_SERVER, ETCD
from tests.controlplane.server import ControlPlane
from tests.live.processes import cpu_seconds

T, R = TypeVar("T"), TypeVar("R")

DEFINED: dict[tuple[str, str], tuple[str, bool]] = {}
"""Plural and scope of the custom kinds that are defined on the server, by group and kind."""

CONNECTIONS = 8
KEPT_SECONDS = 60
"""How long a connection may be idle: the API server hangs up after 90 s."""

WAIT_SECONDS = 60
POLL_SECONDS = 0.1
ADMISSION = "/apis/admissionregistration.k8s.io/v1"

SYSTEM_OWNED = ("uid", "creationTimestamp", "managedFields", "resourceVersion", "generation")
"""What the API server writes into metadata after mutation."""


@dataclass(frozen=True)
class Answer:
    """What the API server answered."""

    code: int
    body: Any
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        return self.code < 300

    @property
    def message(self) -> str:
        return "" if self.allowed else self.body.get("message", str(self.body))

    @property
    def object(self) -> Any:
        """The object without what the API server adds to every one."""
        return without_system_fields(self.body)


def without_system_fields(obj: Any) -> Any:
    """Return an object as mutation sees it: without what the API server makes up afterwards."""
    metadata = {k: v for k, v in obj.get("metadata", {}).items() if k not in SYSTEM_OWNED}
    obj = {**obj, "metadata": metadata}
    forget = {
        ("batch/v1", "Job"): _forget_job,
        ("v1", "Pod"): _forget_gated,
        ("v1", "Service"): _forget_service,
        ("v1", "PersistentVolume"): _forget_volume,
    }
    found = forget.get((obj.get("apiVersion"), obj.get("kind")))
    return found(copy.deepcopy(obj)) if found else obj


def _forget_gated(obj: Any) -> Any:
    """Leave out what the API server drops unless its gate GenericWorkload is on."""
    obj["spec"].pop("schedulingGroup", None)
    return obj


def _forget_job(obj: Any) -> Any:
    """Leave out the selector that a Job is given, and the labels that it selects by."""
    if obj["spec"].get("manualSelector"):
        return obj
    obj["spec"].pop("selector", None)
    metadata = obj["spec"]["template"].get("metadata") or {}
    made = ("controller-uid", "job-name")
    labels = {
        key: value
        for key, value in (metadata.get("labels") or {}).items()
        if key.removeprefix("batch.kubernetes.io/") not in made
    }
    metadata.pop("labels", None)
    if labels:
        metadata["labels"] = labels
    return obj


def _forget_volume(obj: Any) -> Any:
    """Leave out since when a volume waits."""
    (obj.get("status") or {}).pop("lastPhaseTransitionTime", None)
    return obj


def _forget_service(obj: Any) -> Any:
    """Leave out the addresses and ports that a Service is given."""
    for name in ("clusterIP", "clusterIPs", "healthCheckNodePort"):
        if obj["spec"].get(name) not in ("None", ["None"]):
            obj["spec"].pop(name, None)
    for port in obj["spec"].get("ports") or ():
        port.pop("nodePort", None)
    return obj


class Live:
    """The API server, while it runs."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.control_plane = control_plane
        self._address = urlsplit(control_plane.server)
        self._trust = ssl.create_default_context(cadata=control_plane.ca.decode())
        self._local = threading.local()
        self._markers = itertools.count()
        self._pool = ThreadPoolExecutor(CONNECTIONS)
        self._opened: list[http.client.HTTPSConnection] = []

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        user: Mapping[str, Any] | None = None,
        content: str = "application/json",
    ) -> Answer:
        """Send one request, as another user if one is given."""
        headers = [("Authorization", f"Bearer {self.control_plane.token}")]
        if user and user.get("username"):
            headers.append(("Impersonate-User", user["username"]))
            headers += [("Impersonate-Group", group) for group in user.get("groups") or ()]
        target = f"{path}?{urlencode(query)}" if query else path
        connection = self._connection()
        connection.putrequest(method, target)
        data = b"" if body is None else json.dumps(body).encode()
        for name, value in headers:
            connection.putheader(name, value)
        connection.putheader("Content-Type", content)
        connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        answer = connection.getresponse()
        text = answer.read()
        warnings = tuple(_warning(value) for value in answer.headers.get_all("Warning") or ())
        try:
            return Answer(answer.status, json.loads(text), warnings)
        except ValueError:
            return Answer(answer.status, {"message": text.decode(errors="replace")}, warnings)

    def all(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Do something for all items, several at a time."""
        return list(self._pool.map(work, items))

    def close(self) -> None:
        """Hang up."""
        self._pool.shutdown()
        for connection in self._opened:
            connection.close()

    def create(self, objects: Sequence[Any]) -> None:
        """Create objects; one that is there already stays.

        Raises:
            AssertionError: If the API server refuses one.
        """
        for obj in objects:
            answer = self.try_create(obj)
            name = f"{obj['kind']} {obj['metadata'].get('name')}"
            assert answer.allowed or answer.code == 409, f"{name}: {answer.message}"

    def try_create(self, obj: Any) -> Answer:
        """Create an object, and return what comes of it."""
        return self.ask("POST", path_of(obj), obj)

    def define(self, definitions: Sequence[Any]) -> None:
        """Define custom kinds, and wait until they are served."""
        self.create(definitions)
        for made in definitions:
            spec = made["spec"]
            key = spec["group"], spec["names"]["kind"]
            DEFINED[key] = spec["names"]["plural"], spec["scope"] == "Namespaced"
            root = f"/apis/{spec['group']}/{spec['versions'][-1]['name']}"
            deadline = time.monotonic() + WAIT_SECONDS
            while not self.ask("GET", f"{root}/{spec['names']['plural']}").allowed:
                assert time.monotonic() < deadline, f"{key} is not served"
                time.sleep(POLL_SECONDS)

    def namespace(
        self, name: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
    ) -> Any:
        """Make sure that there is a namespace with these labels, and return it."""
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.create([made])
        path = f"/api/v1/namespaces/{name}"
        change = {"metadata": {"labels": dict(labels), "annotations": dict(annotations or {})}}
        answer = self.ask("PATCH", path, change, content="application/merge-patch+json")
        assert answer.allowed, answer.message
        return answer.body

    def delete(self, objects: Sequence[Any]) -> None:
        """Delete objects."""
        self.all(lambda obj: self.ask("DELETE", path_of(obj, obj["metadata"]["name"])), objects)

    def cpu_seconds(self) -> float:
        """Return the CPU time that the API server has had."""
        return cpu_seconds(self.control_plane.pid(API_SERVER))

    def settle(self) -> None:
        """Wait until all policies that were created or deleted so far are in force or gone.

        Marker policies made after them are seen after them: when these act, so do those.
        """
        name = f"marker-{next(self._markers)}"
        objects = list(_markers(name))
        self.create(objects)
        probe = config_map(name)
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            answer = self.ask("POST", path_of(probe), probe, query={"dryRun": "All"})
            if "seen by both" in answer.message:
                break
            assert time.monotonic() < deadline, f"policies are not in force: {answer.message}"
            time.sleep(POLL_SECONDS)
        self.delete(objects)

    def _connection(self) -> http.client.HTTPSConnection:
        found = getattr(self._local, "connection", None)
        if found is None:
            found = http.client.HTTPSConnection(
                str(self._address.hostname),
                self._address.port,
                context=self._trust,
                timeout=WAIT_SECONDS,
            )
            self._local.connection = found
            self._opened.append(found)
        elif time.monotonic() - self._local.used > KEPT_SECONDS:
            found.close()  # it is opened anew when something is sent
        self._local.used = time.monotonic()
        return found


@contextmanager
def live(**more: Any) -> Iterator[Live]:
    """Run an API server."""
    flags = {API_SERVER: ["--authorization-mode=AlwaysAllow", *more.pop("flags", ())]}
    with ControlPlane(components=(ETCD, API_SERVER), flags=flags, **more) as control_plane:
        running = Live(control_plane)
        try:
            yield running
        finally:
            running.close()


def path_of(obj: Any, name: str = "", *, namespace: str = "", part: str = "") -> str:
    """Return the path of an object's collection, or of the object if a name is given."""
    group, _, version = obj["apiVersion"].rpartition("/")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    plural, namespaced = resource_of(obj)
    if namespaced:
        root += f"/namespaces/{namespace or obj['metadata'].get('namespace') or 'default'}"
    return "/".join(filter(None, (f"{root}/{plural}", name, part)))


def resource_of(obj: Any) -> tuple[str, bool]:
    """Return the plural of an object's kind, and whether it lives in namespaces."""
    group, _, version = obj["apiVersion"].rpartition("/")
    built_in = resource_for_kind(group, version, obj["kind"])
    if built_in is not None:
        return built_in.plural, built_in.namespaced
    if (group, obj["kind"]) in DEFINED:
        return DEFINED[group, obj["kind"]]
    workload = find_kind(obj)
    return (workload.plural if workload else plural_of(obj["kind"])), True


def config_map(name: str) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
    }


def definition(
    group: str, versions: Sequence[str], kind: str, plural: str, *, namespaced: bool = True
) -> Any:
    """Return the definition of a custom kind that takes anything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": index == 0,
                    "schema": {"openAPIV3Schema": schema},
                }
                for index, version in enumerate(versions)
            ],
        },
    }


def _markers(name: str) -> Iterator[Any]:
    """Make a policy that marks the ConfigMap of its name, and one that refuses it if marked."""
    rules = {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["configmaps"],
                "resourceNames": [name],
            }
        ]
    }
    marks = "Object{metadata: Object.metadata{labels: {'marked': 'yes'}}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": marks}}
    marked = "object.metadata.?labels[?'marked'].orValue('') != 'yes'"
    specs = {
        "Mutating": {"reinvocationPolicy": "Never", "mutations": [mutation]},
        "Validating": {"validations": [{"expression": marked, "message": "seen by both"}]},
    }
    for kind, spec in specs.items():
        meta = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
        full = f"{kind}AdmissionPolicy"
        yield {**meta, "kind": full, "spec": {"matchConstraints": rules, **spec}}
        actions = {"validationActions": ["Deny"]} if kind == "Validating" else {}
        yield {**meta, "kind": f"{full}Binding", "spec": {"policyName": name, **actions}}


def _warning(header: str) -> str:
    """Read the text of a Warning header: `299 - "text"`."""
    text = header.partition(' "')[2].removesuffix('"')
    return text.replace('\\"', '"').replace("\\\\", "\\")

"""What Kubernetes' Go types say of each field that no OpenAPI document does.

Protobuf numbers come from the .proto files beside the types; which fields are pointers, left out
when they are zero, or written though nobody set them, from the types' own tags. Both stand in Go's
module cache once `tests/controlplane/build.sh` has built a control plane.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODULES = Path(os.environ.get("GOMODCACHE", Path.home() / "go" / "pkg" / "mod")) / "k8s.io"

SENT = (
    "authentication/v1.SelfSubjectReview",
    "authorization/v1.SelfSubjectAccessReview",
    "authorization/v1.SelfSubjectRulesReview",
    "authorization/v1.SubjectAccessReview",
    "autoscaling/v1.Scale",
    "apps/v1.DaemonSet",
    "apps/v1.Deployment",
    "apps/v1.ReplicaSet",
    "apps/v1.StatefulSet",
    "batch/v1.CronJob",
    "batch/v1.Job",
    "coordination/v1.Lease",
    "core/v1.Binding",
    "core/v1.ConfigMap",
    "core/v1.Event",
    "core/v1.Namespace",
    "core/v1.Node",
    "core/v1.Pod",
    "core/v1.ResourceQuota",
    "core/v1.Secret",
    "core/v1.Service",
    "core/v1.ServiceAccount",
    "meta/v1.DeleteOptions",
    "networking/v1.Ingress",
    "policy/v1.Eviction",
    "policy/v1.PodDisruptionBudget",
    "rbac/v1.ClusterRole",
    "rbac/v1.ClusterRoleBinding",
    "rbac/v1.Role",
    "rbac/v1.RoleBinding",
    "scheduling/v1.PriorityClass",
)
"""What kubectl and Go controllers send as protobuf; the numbers of other types are not kept."""

WRITTEN = {
    "apps/v1.DaemonSetStatus": "currentNumberScheduled desiredNumberScheduled numberMisscheduled"
    " numberReady",
    "apps/v1.ReplicaSetStatus": "replicas",
    "apps/v1.StatefulSetStatus": "availableReplicas replicas",
    "batch/v1.JobCondition": "lastProbeTime lastTransitionTime",
    "core/v1.ContainerStateRunning": "startedAt",
    "core/v1.ContainerStateTerminated": "finishedAt startedAt",
    "core/v1.ContainerStatus": "lastState state",
    "core/v1.Event": "eventTime firstTimestamp lastTimestamp reportingComponent reportingInstance"
    " source",
    "core/v1.NodeCondition": "lastHeartbeatTime lastTransitionTime",
    "core/v1.NodeStatus": "daemonEndpoints nodeInfo",
    "core/v1.NodeSystemInfo": "architecture bootID containerRuntimeVersion kernelVersion"
    " kubeProxyVersion kubeletVersion machineID operatingSystem osImage systemUUID",
    "core/v1.PodCondition": "lastProbeTime lastTransitionTime",
    "core/v1.ResourceFieldSelector": "divisor",
    "events/v1.Event": "deprecatedFirstTimestamp deprecatedLastTimestamp deprecatedSource"
    " eventTime",
    "rbac/v1.ClusterRole": "rules",
    "rbac/v1.Role": "rules",
}
"""Fields that are there in all that is stored, with their zero value, if nobody set them."""

SCALARS = {"string": "", "bool": False, "number": 0}

MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"^  (?:optional |repeated )?(map<[^>]+>|[.\w]+) (\w+) = (\d+);", re.MULTILINE)
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^type (\w+) ([\w.\[\]*]+)$", re.MULTILINE)
FIELD = re.compile(
    r'^\t(?:\w+\s+)?([\w.\[\]*]+)\s+`(?:protobuf:"[^"]*" )?json:"(\w*)((?:,\w+)*)"', re.MULTILINE
)
IMPORT = re.compile(
    r'^\t(?:(\w+) )?"k8s\.io/(?:api|apimachinery/pkg/apis)/(\w+)/(\w+)"', re.MULTILINE
)

Facts = dict[str, Any]
"""What is known of a field, by the names of its record in `kubernetes.json`."""


@dataclass(frozen=True)
class GoField:
    """A field as its struct declares it."""

    name: str
    kind: str
    """`pointer`, `many`, one of SCALARS, or the name of a struct."""
    pointer: bool
    omitted: bool
    """Whether Go leaves it out where it is empty, as it cannot with a struct."""


class GoTypes:
    """The Go types and protobuf messages of one version of Kubernetes."""

    def __init__(self, version: str) -> None:
        module_version = version.replace("v1.", "v0.", 1)
        self._structs: dict[str, list[tuple[str, str, str]]] = {}
        self._named: dict[str, str] = {}
        self._imports: dict[str, dict[str, str]] = {}
        self._messages: dict[str, dict[str, tuple[str, str]]] = {}
        self.sources = [f"k8s.io/{name}@{module_version}" for name in ("api", "apimachinery")]
        for source, below in zip(self.sources, ("", "pkg/apis"), strict=True):
            folder = MODULES.parent / source / below
            if not folder.is_dir():
                raise SystemExit(f"{folder} is missing: run `go mod download {source}`")
            self._read(folder)

    def _read(self, folder: Path) -> None:
        for file in sorted(folder.glob("*/v*/*types.go")):
            text, package = file.read_text(), _package(file)
            found = {name or v: f"{group}/{v}" for name, group, v in IMPORT.findall(text)}
            self._imports.setdefault(package, {}).update(found)
            for name, body in STRUCT.findall(text):
                self._structs[f"{package}.{name}"] = FIELD.findall(body)
            self._named.update((f"{package}.{name}", kind) for name, kind in NAMED.findall(text))
        for file in sorted(folder.glob("*/v1/generated.proto")):
            for name, body in MESSAGE.findall(file.read_text()):
                fields = {field: (kind, number) for kind, field, number in NUMBER.findall(body)}
                self._messages[f"{_package(file)}.{name}"] = fields

    def facts(self, name: str, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Facts]:
        """Return what there is to know of a struct's fields.

        Args:
            name: The struct.
            known: Its fields, as the OpenAPI document has them.
        """
        if name not in self._structs:
            return {}
        written = WRITTEN.get(name, "").split()
        return {
            field.name: {"written": self._zero(field.kind)}
            if field.name in written
            else _unset(field, known[field.name])
            for field in self._fields(name)
            if field.name in known
        }

    def numbers(self, name: str, known: Mapping[str, object]) -> dict[str, Facts]:
        """Return the protobuf numbers of a struct's fields, and which are pointers."""
        messages, package = self._messages, name.partition(".")[0]
        found: dict[str, Facts] = {}
        for field, (kind, number) in messages.get(name, {}).items():
            inner = messages.get(_message_name(kind, package), {})
            if field in known:
                found[field] = {"number": [int(number)]}
            else:
                paths = {part: [int(number), int(last)] for part, (_, last) in inner.items()}
                found |= {part: {"number": path} for part, path in paths.items() if part in known}
        for declared in self._fields(name, inlined=False) if name in messages else ():
            if declared.pointer and declared.name in found:
                found[declared.name]["pointer"] = True
        return found

    def _fields(self, name: str, *, inlined: bool = True) -> Iterator[GoField]:
        package = name.partition(".")[0]
        for kind, field, options in self._structs[name]:
            if field:
                read = self._kind(kind, package)
                omitted = "omitempty" in options and (read in {"pointer", "many", *SCALARS})
                yield GoField(field, read, kind[0] == "*", omitted or "omitzero" in options)
            elif inlined and "inline" in options:
                yield from self._fields(self._resolved(kind.lstrip("*"), package))

    def _kind(self, kind: str, package: str) -> str:
        if kind[0] == "*":
            return "pointer"
        if kind.startswith(("[]", "map[")):
            return "many"
        if kind in {"string", "bool"} or kind.startswith("types."):
            return "bool" if kind == "bool" else "string"
        if re.fullmatch(r"u?int\d*|float\d+", kind):
            return "number"
        name = self._resolved(kind, package)
        if name in self._named:
            return self._kind(self._named[name], name.partition(".")[0])
        return name

    def _resolved(self, kind: str, package: str) -> str:
        alias, dot, name = kind.rpartition(".")
        found = self._imports[package].get(alias) if dot else package
        return f"{found}.{name}" if found else kind

    def _zero(self, kind: str) -> Any:
        if kind in SCALARS:
            return SCALARS[kind]
        if kind == "resource.Quantity":
            return "0"
        if kind in {"pointer", "many"} or kind.endswith("Time"):
            return None
        kept = (field for field in self._fields(kind) if not field.omitted)
        return {field.name: self._zero(field.kind) for field in sorted(kept, key=_by_name)}


def _unset(field: GoField, known: Mapping[str, Any]) -> Facts:
    """Return what Go writes for a field that nobody set, where OpenAPI does not imply it."""
    required, shape = known.get("required", False), known["shape"]
    if field.omitted:
        empty = field.kind in SCALARS or known.get("scalar") == "bytes"
        return {"unset": "omitted"} if empty or required else {}
    if required and (field.kind != "pointer" or shape != "scalar"):
        return {}
    if field.kind in {"pointer", "many", "runtime.RawExtension"} or field.kind.endswith("Time"):
        return {"unset": "null"}
    scalar = field.kind in SCALARS or field.kind == "intstr.IntOrString"
    return {"unset": "zero"} if scalar else {}


def _by_name(field: GoField) -> str:
    return field.name


def _package(file: Path) -> str:
    return "/".join(file.parts[-3:-1])


def _message_name(kind: str, package: str) -> str:
    """Return what the table calls the message that a field holds."""
    parts = kind.lstrip(".").split(".")
    return f"{parts[-3]}/{parts[-2]}.{parts[-1]}" if len(parts) > 2 else f"{package}.{kind}"

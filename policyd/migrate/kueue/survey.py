"""The facts about a cluster that runs Kueue, gathered from its objects one by one.

Objects may be of anyone, and of any shape: what is not as it should be is left out, and of what
there may be many only numbers and a few names are kept.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from policyd.api.kueue.names import GROUP, QUEUE_NAME
from policyd.engine.objects.workloads import value_at
from policyd.jobs.kinds.registry import find_kind, find_parent

CONFIGURATION: Final = "controller_manager_config.yaml"
"""The key of Kueue's Configuration in its ConfigMap."""
DEFAULT_LEASE: Final = "c1f6bfd2.kueue.x-k8s.io"
NEEDED: Final = ("Deployment", "ConfigMap", "CustomResourceDefinition")
"""Kinds that a comparison needs."""
QUEUES: Final = (
    "ClusterQueue",
    "LocalQueue",
    "Cohort",
    "ResourceFlavor",
    "Topology",
    "AdmissionCheck",
    "WorkloadPriorityClass",
    "Workload",
)
CONSUMERS: Final = frozenset(
    {"ServiceMonitor", "PodMonitor", "PrometheusRule", "GrafanaDashboard", "ConfigMap"}
)
"""Kinds that may read Kueue's metrics."""
_METRIC: Final = re.compile(r"\bkueue_[a-z0-9_]{1,200}")
_SHOWN: Final = 3
_TEXT_BYTES: Final = 4 << 20
"""The largest rule or dashboard that is searched for metrics."""

Object = Mapping[str, Any]


@dataclass(slots=True)
class Several:
    """Objects that have something in common: their number, and the names of a few."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Count one more."""
        self.count += 1
        if len(self.names) < _SHOWN:
            self.names.append(name)

    def __str__(self) -> str:
        more = f" and {self.count - len(self.names)} more" if self.count > len(self.names) else ""
        return f"{', '.join(self.names)}{more}"


@dataclass(frozen=True, slots=True)
class Definition:
    """A CustomResourceDefinition of Kueue.

    Attributes:
        name: Such as `workloads.kueue.x-k8s.io`.
        served: Its versions that are served.
        stored: The versions in which objects may be stored.
    """

    name: str
    served: tuple[str, ...]
    stored: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Consumer:
    """An object that reads Kueue's metrics."""

    kind: str
    name: str
    metrics: frozenset[str]


@dataclass(slots=True)
class Survey:
    """The facts.

    Attributes:
        namespace: Of Kueue.
    """

    namespace: str
    deployment: dict[str, Any] | None = None
    configuration: str | None = None
    """The text of Kueue's Configuration."""
    kinds: Counter[str] = field(default_factory=Counter)
    """How many objects of each kind there are."""
    definitions: list[Definition] = field(default_factory=list)
    webhooks: list[str] = field(default_factory=list)
    checks: dict[str, str] = field(default_factory=dict)
    """The controller of each AdmissionCheck."""
    claiming: Several = field(default_factory=Several)
    """Workloads with ResourceClaims that are not finished."""
    elsewhere: Several = field(default_factory=Several)
    """Workloads that run on other clusters."""
    unmanaged: dict[tuple[str, str], Several] = field(default_factory=dict)
    """Objects with a queue name whose kind policyd does not queue, by group and kind."""
    consumers: list[Consumer] = field(default_factory=list)

    def add(self, obj: object) -> None:
        """Take in an object."""
        if not isinstance(obj, Mapping) or not isinstance(obj.get("kind"), str):
            return
        kind, group = obj["kind"], str(obj.get("apiVersion", "")).rpartition("/")[0]
        self.kinds[kind] += 1
        take = _TAKES.get((group, kind))
        if take is not None:
            take(self, obj)
        if kind in CONSUMERS:
            self._consumer(kind, obj)
        self._queued(group, kind, obj)

    def _consumer(self, kind: str, obj: Object) -> None:
        text = json.dumps(obj.get("data") if kind == "ConfigMap" else obj.get("spec"), default=str)
        if _name(obj) == f"{self.namespace}/kueue-manager-config" or len(text) > _TEXT_BYTES:
            return
        metrics = frozenset(_METRIC.findall(text))
        selects = kind in {"ServiceMonitor", "PodMonitor"} and "kueue" in text + _name(obj)
        if metrics or selects:
            self.consumers.append(Consumer(kind, _name(obj), metrics))

    def _queued(self, group: str, kind: str, obj: Object) -> None:
        labels = value_at(obj, ("metadata", "labels"))
        if not isinstance(labels, Mapping) or QUEUE_NAME not in labels or group == GROUP:
            return
        owners = value_at(obj, ("metadata", "ownerReferences"))
        if isinstance(owners, list) and any(_controls(owner) for owner in owners):
            return  # it queues with its owner, or not at all
        known = (group, kind) == ("", "Pod") or find_kind(group, kind) or find_parent(group, kind)
        if not known:
            self.unmanaged.setdefault((group, kind), Several()).add(_name(obj))

    @property
    def version(self) -> str:
        """The version of Kueue's image; "" if it has none."""
        image = str(next(self._containers("image"), ""))
        tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
        return tag or image.rpartition("@")[2] * ("@" in image)

    @property
    def gates(self) -> str:
        """The feature gates of Kueue's command line."""
        for arguments in self._containers("args"):
            for argument in arguments if isinstance(arguments, list) else ():
                option, _, value = str(argument).partition("=")
                if option.lstrip("-") == "feature-gates":
                    return value
        return ""

    @property
    def account(self) -> str:
        """The name of Kueue's account for the API server."""
        given = value_at(self.deployment or {}, ("spec", "template", "spec", "serviceAccountName"))
        return f"system:serviceaccount:{self.namespace}:{given or 'default'}"

    @property
    def replicas(self) -> int:
        """The pods that Kueue is to have."""
        given = value_at(self.deployment or {}, ("spec", "replicas"))
        return given if isinstance(given, int) else 1

    def _containers(self, name: str) -> Iterator[Any]:
        path = ("spec", "template", "spec", "containers")
        found = value_at(self.deployment or {}, path)
        for each in found if isinstance(found, list) else ():
            if isinstance(each, Mapping) and name in each:
                yield each[name]


def _name(obj: Object) -> str:
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        return "?"
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return f"{namespace}/{name}" if namespace else str(name)


def _controls(owner: object) -> bool:
    return isinstance(owner, Mapping) and owner.get("controller") is True


def _deployment(survey: Survey, obj: Object) -> None:
    labels = value_at(obj, ("metadata", "labels"))
    here = value_at(obj, ("metadata", "namespace")) == survey.namespace
    wanted = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
    if here and isinstance(labels, Mapping) and wanted.items() <= labels.items():
        survey.deployment = dict(obj)


def _config_map(survey: Survey, obj: Object) -> None:
    text = value_at(obj, ("data", CONFIGURATION))
    if value_at(obj, ("metadata", "namespace")) == survey.namespace and isinstance(text, str):
        survey.configuration = text


def _definition(survey: Survey, obj: Object) -> None:
    group, name = value_at(obj, ("spec", "group")), str(value_at(obj, ("metadata", "name")))
    versions = value_at(obj, ("spec", "versions"))
    stored = value_at(obj, ("status", "storedVersions"))
    found = Definition(
        name,
        tuple(
            str(each.get("name"))
            for each in (versions if isinstance(versions, list) else ())
            if isinstance(each, Mapping) and each.get("served")
        ),
        tuple(map(str, stored)) if isinstance(stored, list) else (),
    )
    if group == GROUP:
        survey.definitions.append(found)


def _webhooks(survey: Survey, obj: Object) -> None:
    name = str(value_at(obj, ("metadata", "name")))
    if "kueue" in name:
        survey.webhooks.append(name)


def _check(survey: Survey, obj: Object) -> None:
    survey.checks[_name(obj)] = str(value_at(obj, ("spec", "controllerName")))


def _workload(survey: Survey, obj: Object) -> None:
    conditions = value_at(obj, ("status", "conditions"))
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, Mapping) and (each.get("type"), each.get("status")) == (
            "Finished",
            "True",
        ):
            return
    if value_at(obj, ("status", "clusterName")) or value_at(
        obj, ("status", "nominatedClusterNames")
    ):
        survey.elsewhere.add(_name(obj))
    pod_sets = value_at(obj, ("spec", "podSets"))
    for each in pod_sets if isinstance(pod_sets, list) else ():
        if value_at(each, ("template", "spec", "resourceClaims")):
            survey.claiming.add(_name(obj))
            return


_TAKES: Final = {
    ("apps", "Deployment"): _deployment,
    ("", "ConfigMap"): _config_map,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _webhooks,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _webhooks,
    (GROUP, "AdmissionCheck"): _check,
    (GROUP, "Workload"): _workload,
}

"""The columns of each kind's table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from policyd.api.meta import Json
from policyd.local.apiserver.reading import cells
from policyd.local.apiserver.reading.ages import age
from policyd.local.apiserver.reading.jsonpath import compile_path
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.status import Object

Cell = Callable[[Object, float], Json]
"""Makes a cell of an object and the present moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column; those with a priority above 0 are for `-o wide`."""

    name: str
    cell: Cell
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    format: str = ""
    priority: int = 0


def _at(path: str, *, default: Json = "<none>") -> Cell:
    return lambda value, _now: cells.at(value, path, default)


def _name(value: Object, _now: float) -> Json:
    return value["metadata"]["name"]


def _age(value: Object, now: float) -> Json:
    return age(value["metadata"].get("creationTimestamp"), now)


NAME = TableColumn(name="Name", cell=_name, format="name")
AGE = TableColumn(name="Age", cell=_age)
DEFAULT = (NAME, AGE)

CONTAINERS = TableColumn(name="Containers", cell=cells.container_names, priority=1)
IMAGES = TableColumn(name="Images", cell=cells.images, priority=1)
SELECTOR = TableColumn(name="Selector", cell=cells.selector, priority=1)


def _count(name: str, path: str) -> TableColumn:
    return TableColumn(name=name, cell=_at(path, default=0), type="integer")


CREATED_AT = _at("metadata.creationTimestamp", default="")
ROLE = (NAME, TableColumn(name="Created At", cell=CREATED_AT, type="date"))
BINDING = (
    NAME,
    TableColumn(name="Role", cell=cells.bound_role),
    AGE,
    TableColumn(name="Users", cell=partial(cells.subjects, "User"), priority=1),
    TableColumn(name="Groups", cell=partial(cells.subjects, "Group"), priority=1),
    TableColumn(name="ServiceAccounts", cell=partial(cells.subjects, "ServiceAccount"), priority=1),
)

COLUMNS: Mapping[str, Sequence[TableColumn]] = {
    "pods": (
        NAME,
        TableColumn(name="Ready", cell=cells.pod_ready),
        TableColumn(name="Status", cell=cells.pod_status),
        TableColumn(name="Restarts", cell=cells.pod_restarts),
        AGE,
        TableColumn(name="IP", cell=_at("status.podIP"), priority=1),
        TableColumn(name="Node", cell=_at("spec.nodeName"), priority=1),
        TableColumn(name="Nominated Node", cell=_at("status.nominatedNodeName"), priority=1),
        TableColumn(name="Readiness Gates", cell=cells.readiness_gates, priority=1),
    ),
    "jobs.batch": (
        NAME,
        TableColumn(name="Status", cell=cells.job_status),
        TableColumn(name="Completions", cell=cells.job_completions),
        TableColumn(name="Duration", cell=cells.job_duration),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ),
    "nodes": (
        NAME,
        TableColumn(name="Status", cell=cells.node_status),
        TableColumn(name="Roles", cell=cells.node_roles),
        AGE,
        TableColumn(name="Version", cell=_at("status.nodeInfo.kubeletVersion", default="")),
        TableColumn(name="Internal-IP", cell=partial(cells.node_address, "InternalIP"), priority=1),
        TableColumn(name="External-IP", cell=partial(cells.node_address, "ExternalIP"), priority=1),
        TableColumn(name="OS-Image", cell=partial(cells.node_fact, "osImage"), priority=1),
        TableColumn(name="Kernel-Version", cell=cells.node_kernel, priority=1),
        TableColumn(
            name="Container-Runtime",
            cell=partial(cells.node_fact, "containerRuntimeVersion"),
            priority=1,
        ),
    ),
    "namespaces": (NAME, TableColumn(name="Status", cell=_at("status.phase", default="")), AGE),
    "deployments.apps": (
        NAME,
        TableColumn(name="Ready", cell=partial(cells.ready_of, wanted="spec.replicas")),
        TableColumn(name="Up-to-date", cell=_at("status.updatedReplicas", default=0)),
        TableColumn(name="Available", cell=_at("status.availableReplicas", default=0)),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ),
    "replicasets.apps": (
        NAME,
        _count("Desired", "spec.replicas"),
        _count("Current", "status.replicas"),
        _count("Ready", "status.readyReplicas"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ),
    "statefulsets.apps": (
        NAME,
        TableColumn(name="Ready", cell=partial(cells.ready_of, wanted="spec.replicas")),
        AGE,
        CONTAINERS,
        IMAGES,
    ),
    "daemonsets.apps": (
        NAME,
        _count("Desired", "status.desiredNumberScheduled"),
        _count("Current", "status.currentNumberScheduled"),
        _count("Ready", "status.numberReady"),
        AGE,
    ),
    "cronjobs.batch": (
        NAME,
        TableColumn(name="Schedule", cell=_at("spec.schedule")),
        TableColumn(name="Timezone", cell=_at("spec.timeZone")),
        TableColumn(name="Suspend", cell=cells.cron_job_suspended),
        TableColumn(name="Active", cell=cells.cron_job_active, type="integer"),
        TableColumn(name="Last Schedule", cell=cells.cron_job_last),
        AGE,
    ),
    "events": (
        TableColumn(name="Last Seen", cell=cells.event_last_seen),
        TableColumn(name="Type", cell=_at("type", default="")),
        TableColumn(name="Reason", cell=_at("reason", default="")),
        TableColumn(name="Object", cell=cells.event_object),
        TableColumn(name="Subobject", cell=_at("involvedObject.fieldPath", default=""), priority=1),
        TableColumn(name="Source", cell=cells.event_source, priority=1),
        TableColumn(name="Message", cell=cells.event_message),
        TableColumn(name="First Seen", cell=cells.event_first_seen, priority=1),
        TableColumn(name="Count", cell=_at("count", default=1), priority=1),
        TableColumn(name="Name", cell=_name, priority=1, format="name"),
    ),
    "configmaps": (NAME, TableColumn(name="Data", cell=cells.data_count), AGE),
    "secrets": (
        NAME,
        TableColumn(name="Type", cell=_at("type", default="")),
        TableColumn(name="Data", cell=cells.data_count),
        AGE,
    ),
    "services": (
        NAME,
        TableColumn(name="Type", cell=_at("spec.type", default="")),
        TableColumn(name="Cluster-IP", cell=_at("spec.clusterIP")),
        TableColumn(name="External-IP", cell=_at("spec.externalName")),
        TableColumn(name="Port(s)", cell=cells.service_ports),
        AGE,
        TableColumn(name="Selector", cell=cells.service_selector, priority=1),
    ),
    "priorityclasses.scheduling.k8s.io": (
        NAME,
        TableColumn(name="Value", cell=_at("value", default=0), type="integer"),
        TableColumn(
            name="Global-Default", cell=_at("globalDefault", default=False), type="boolean"
        ),
        AGE,
        TableColumn(name="PreemptionPolicy", cell=_at("preemptionPolicy", default="")),
    ),
    "clusterrolebindings.rbac.authorization.k8s.io": BINDING,
    "clusterroles.rbac.authorization.k8s.io": ROLE,
    "rolebindings.rbac.authorization.k8s.io": BINDING,
    "roles.rbac.authorization.k8s.io": ROLE,
    "leases.coordination.k8s.io": (
        NAME,
        TableColumn(name="Holder", cell=_at("spec.holderIdentity", default="")),
        AGE,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        NAME,
        TableColumn(
            name="Created At", cell=_at("metadata.creationTimestamp", default=""), type="date"
        ),
    ),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": (
        NAME,
        TableColumn(name="Webhooks", cell=cells.webhook_count, type="integer"),
        AGE,
    ),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": (
        NAME,
        TableColumn(name="Webhooks", cell=cells.webhook_count, type="integer"),
        AGE,
    ),
}
"""The tables of built-in kinds; others have name and age."""


def columns_of(served: Served) -> Sequence[TableColumn]:
    """Return the columns of a kind's table."""
    if served.custom is None:
        return COLUMNS.get(served.storage, DEFAULT)
    if not served.custom.columns:
        return DEFAULT
    return (NAME, *(_custom(column) for column in served.custom.columns))


def _custom(column: Object) -> TableColumn:
    kind = column["type"]
    path = compile_path(column["jsonPath"])

    def cell(value: Object, now: float) -> Json:
        found = path(value)
        if kind == "date":
            return age(found, now) if isinstance(found, str) else found
        return found if kind in {"integer", "number", "boolean"} else cells.text(found)

    return TableColumn(
        name=column["name"],
        cell=cell,
        type=kind,
        format=column.get("format", ""),
        priority=column.get("priority", 0),
    )

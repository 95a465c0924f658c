"""The columns of each kind's table."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Literal, NamedTuple

import msgspec

from policyd.api.data import tables
from policyd.api.meta import Json
from policyd.local.apiserver.reading import cells
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.status import Object
from policyd.status.ages import age

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


def _within(path: str, cell: Cell) -> Cell:
    """Return a cell of the template at a path, as if that were the object."""
    return lambda value, now: cell(cells.at(value, path, {}), now)


def _name(value: Object, _now: float) -> Json:
    return value["metadata"]["name"]


def _age(value: Object, now: float) -> Json:
    return age(value["metadata"].get("creationTimestamp"), now)


NAME = TableColumn(name="Name", cell=_name, format="name")
AGE = TableColumn(name="Age", cell=_age)
DEFAULT = (NAME, AGE)

COMMON: Mapping[str, Cell] = {
    "Name": _name,
    "Age": _age,
    "Created At": _at("metadata.creationTimestamp", default=""),
    "Containers": cells.container_names,
    "Images": cells.images,
    "Selector": cells.selector,
}
"""The cells that several kinds have, by the names of their columns."""

_BOUND: Mapping[str, Cell] = {
    "Role": cells.bound_role,
    "Users": partial(cells.subjects, "User"),
    "Groups": partial(cells.subjects, "Group"),
    "ServiceAccounts": partial(cells.subjects, "ServiceAccount"),
}
_READY = partial(cells.ready_of, wanted="spec.replicas")
_WEBHOOKS: Mapping[str, Cell] = {"Webhooks": cells.webhook_count}

CELLS: Mapping[str, Mapping[str, Cell]] = {
    "pods": {
        "Ready": cells.pod_ready,
        "Status": cells.pod_status,
        "Restarts": cells.pod_restarts,
        "IP": _at("status.podIP"),
        "Node": _at("spec.nodeName"),
        "Nominated Node": _at("status.nominatedNodeName"),
        "Readiness Gates": cells.readiness_gates,
    },
    "jobs.batch": {
        "Status": cells.job_status,
        "Completions": cells.job_completions,
        "Duration": cells.job_duration,
    },
    "nodes": {
        "Status": cells.node_status,
        "Roles": cells.node_roles,
        "Version": _at("status.nodeInfo.kubeletVersion", default=""),
        "Internal-IP": partial(cells.node_address, "InternalIP"),
        "External-IP": partial(cells.node_address, "ExternalIP"),
        "OS-Image": partial(cells.node_fact, "osImage"),
        "Kernel-Version": cells.node_kernel,
        "Container-Runtime": partial(cells.node_fact, "containerRuntimeVersion"),
    },
    "namespaces": {"Status": _at("status.phase", default="")},
    "deployments.apps": {
        "Ready": _READY,
        "Up-to-date": _at("status.updatedReplicas", default=0),
        "Available": _at("status.availableReplicas", default=0),
    },
    "replicasets.apps": {
        "Desired": _at("spec.replicas", default=0),
        "Current": _at("status.replicas", default=0),
        "Ready": _at("status.readyReplicas", default=0),
    },
    "statefulsets.apps": {"Ready": _READY},
    "daemonsets.apps": {
        "Desired": _at("status.desiredNumberScheduled", default=0),
        "Current": _at("status.currentNumberScheduled", default=0),
        "Ready": _at("status.numberReady", default=0),
        "Up-to-date": _at("status.updatedNumberScheduled", default=0),
        "Available": _at("status.numberAvailable", default=0),
        "Node Selector": partial(cells.labels, "spec.template.spec.nodeSelector"),
    },
    "cronjobs.batch": {
        "Schedule": _at("spec.schedule"),
        "Timezone": _at("spec.timeZone"),
        "Suspend": cells.cron_job_suspended,
        "Active": cells.cron_job_active,
        "Last Schedule": cells.cron_job_last,
        "Containers": _within("spec.jobTemplate", cells.container_names),
        "Images": _within("spec.jobTemplate", cells.images),
        "Selector": _within("spec.jobTemplate", cells.selector),
    },
    "events": {
        "Last Seen": cells.event_last_seen,
        "Type": _at("type", default=""),
        "Reason": _at("reason", default=""),
        "Object": cells.event_object,
        "Subobject": _at("involvedObject.fieldPath", default=""),
        "Source": cells.event_source,
        "Message": cells.event_message,
        "First Seen": cells.event_first_seen,
        "Count": _at("count", default=1),
    },
    "configmaps": {"Data": cells.data_count},
    "secrets": {"Type": _at("type", default=""), "Data": cells.data_count},
    "services": {
        "Type": _at("spec.type", default=""),
        "Cluster-IP": _at("spec.clusterIP"),
        "External-IP": _at("spec.externalName"),
        "Port(s)": cells.service_ports,
        "Selector": partial(cells.labels, "spec.selector"),
    },
    "priorityclasses.scheduling.k8s.io": {
        "Value": _at("value", default=0),
        "Global-Default": _at("globalDefault", default=False),
        "PreemptionPolicy": _at("preemptionPolicy", default=""),
    },
    "clusterrolebindings.rbac.authorization.k8s.io": _BOUND,
    "clusterroles.rbac.authorization.k8s.io": {},
    "rolebindings.rbac.authorization.k8s.io": _BOUND,
    "roles.rbac.authorization.k8s.io": {},
    "leases.coordination.k8s.io": {"Holder": _at("spec.holderIdentity", default="")},
    "customresourcedefinitions.apiextensions.k8s.io": {},
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
}
"""How the cells of built-in kinds are made, beside COMMON; others have name and age."""


@cache
def _builtin(storage: str) -> Sequence[TableColumn]:
    """Return the columns that the API server has for a kind."""
    if storage not in CELLS:
        return DEFAULT
    made = {**COMMON, **CELLS[storage]}
    columns = msgspec.json.decode(tables().columns[storage])
    return tuple(TableColumn(cell=made[column["name"]], **column) for column in columns)


def columns_of(served: Served) -> Sequence[TableColumn]:
    """Return the columns of a kind's table."""
    if served.custom is None:
        return _builtin(served.storage)
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


class _Step(NamedTuple):
    dotted: str | None
    quoted: str | None
    position: str | None
    key: str | None
    sign: str | None
    wanted: str | None


_STEP = re.compile(
    r"\.([\w-]+(?:\\\.[\w-]+)*)"  # .name, with escaped dots
    r"|\['([^']+)'\]"  # ['name']
    r"|\[(\d+|\*)\]"  # [0] or [*]
    r"|\[\?\(@\.([\w.]+)\s*([!=]=)\s*['\"]([^'\"]*)['\"]\)\]"  # [?(@.type=="Ready")]
)


@lru_cache(maxsize=1024)
def compile_path(path: str) -> Callable[[Json], Json]:
    """Compile a path to a function that returns the first value there, or None."""
    steps = [_Step(*match.groups()) for match in _STEP.finditer(path)]

    def find(value: Json) -> Json:
        found = [value]
        for step in steps:
            found = [inner for outer in found for inner in _follow(outer, step)]
        return found[0] if found else None

    return find


def _follow(value: Json, step: _Step) -> list[Json]:
    if isinstance(value, dict):
        name = (step.dotted or step.quoted or "").replace("\\.", ".")
        return [value[name]] if name in value else []
    if not isinstance(value, list):
        return []
    if step.key:
        there = [(item, cells.at(item, step.key, None)) for item in value]
        same = step.sign == "=="
        return [
            item
            for item, found in there
            if found is not None and (cells.text(found) == step.wanted) is same
        ]
    if step.position == "*":
        return value
    return value[int(step.position) :][:1] if step.position else []

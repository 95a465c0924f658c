"""CustomResourceDefinitions, made from the wire types: one source for reading and storing.

The schemas are slim unless the full ones are asked for. Every write of an object pays for its
validation, so a slim one has types, required fields, enums and list semantics, but no patterns and
no CEL rules. Other rules are checked by the webhooks. A full one has these as well, and works
without them. Both store pod templates unread. policyd's own kinds have one schema: only conditions
in their status, which policyd writes itself, would differ.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
from msgspec import inspect

from policyd.api import kueue, policy
from policyd.api.kueue.names import GROUP, VERSION
from policyd.api.kueue.rules import RULES
from policyd.api.meta import Json
from policyd.api.schema import FULL, QUANTITY

OWN_MARKS = frozenset({"x-policyd-required", "x-policyd-unsaid", "x-policyd-written"})
"""Annotations of types that only this module reads."""

ANYTHING: dict[str, Json] = {"x-kubernetes-preserve-unknown-fields": True}
_INT_OR_STRING: dict[str, Json] = {
    "x-kubernetes-int-or-string": True,
    FULL: {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": f"^{QUANTITY}$",
    },
}
STRING: dict[str, Json] = {"type": "string"}


Notes = Callable[[type], Mapping[str, str]]
"""Returns the descriptions of a class's fields, by name."""


def no_notes(_owner: type) -> Mapping[str, str]:
    """Say nothing of any field."""
    return {}


class PrinterColumn(NamedTuple):
    """A column of `kubectl get`; those of priority 1 need `-o wide`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


class CustomKind(NamedTuple):
    """The parts of a CustomResourceDefinition besides the schema.

    Attributes:
        type: The wire type.
        plural: Its name in paths.
        short: Short names for kubectl.
        namespaced: Whether its objects are namespaced.
        columns: The columns that kubectl prints beside the name; the age if there are none.
        selectable: Paths of fields that field selectors may name.
        group: API group.
        version: API version.
    """

    type: type[msgspec.Struct]
    plural: str
    short: tuple[str, ...] = ()
    namespaced: bool = False
    columns: tuple[PrinterColumn, ...] = ()
    selectable: tuple[str, ...] = ()
    group: str = GROUP
    version: str = VERSION


_PENDING = PrinterColumn("Pending Workloads", ".status.pendingWorkloads", "integer")
_ADMITTED = PrinterColumn("Admitted Workloads", ".status.admittedWorkloads", "integer")
_STATE = PrinterColumn("State", ".status.conditions[?(@.type=='Active')].reason")
_BORROWING = ".status.flavorsReservation[*].resources[?(@.borrowed!='0')]"
_AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "date")
_READY = PrinterColumn("Ready", ".status.conditions[?(@.type=='Ready')].status")
_WHY = PrinterColumn("Reason", ".status.conditions[?(@.type=='Ready')].reason", priority=1)

KINDS = (
    CustomKind(
        kueue.ClusterQueue,
        "clusterqueues",
        ("cq",),
        columns=(
            PrinterColumn("Cohort", ".spec.cohortName"),
            PrinterColumn("Strategy", ".spec.queueingStrategy", priority=1),
            _PENDING,
            _ADMITTED._replace(priority=1),
            _STATE,
            PrinterColumn("Borrowed", f"{_BORROWING}.borrowed"),
            PrinterColumn("Borrowed Resource", f"{_BORROWING}.name", priority=1),
        ),
    ),
    CustomKind(
        kueue.LocalQueue,
        "localqueues",
        ("queue", "queues", "lq"),
        namespaced=True,
        columns=(PrinterColumn("ClusterQueue", ".spec.clusterQueue"), _PENDING, _ADMITTED, _STATE),
    ),
    CustomKind(kueue.Cohort, "cohorts", ("co",)),
    CustomKind(kueue.ResourceFlavor, "resourceflavors", ("flavor", "flavors", "rf")),
    CustomKind(kueue.Topology, "topologies", ("topo",)),
    CustomKind(
        kueue.Workload,
        "workloads",
        ("kwl", "kueueworkload", "kueueworkloads"),
        namespaced=True,
        columns=(
            PrinterColumn("Queue", ".spec.queueName"),
            PrinterColumn("Reserved in", ".status.admission.clusterQueue"),
            PrinterColumn("Admitted", ".status.conditions[?(@.type=='Admitted')].status"),
            PrinterColumn("Finished", ".status.conditions[?(@.type=='Finished')].status"),
            PrinterColumn("Reason", ".status.conditions[?(@.type=='QuotaReserved')].reason"),
            _AGE,
            PrinterColumn(
                "Quota", ".status.conditions[?(@.type=='QuotaReserved')].message", priority=1
            ),
        ),
        selectable=(".status.admission.clusterQueue",),
    ),
    CustomKind(
        kueue.WorkloadPriorityClass,
        "workloadpriorityclasses",
        ("wpc",),
        columns=(PrinterColumn("Value", ".value", "integer"),),
    ),
    CustomKind(kueue.AdmissionCheck, "admissionchecks", ("ac",)),
    CustomKind(kueue.ProvisioningRequestConfig, "provisioningrequestconfigs", ("prc",)),
    CustomKind(
        kueue.MultiKueueCluster,
        "multikueueclusters",
        ("mkc",),
        columns=(
            PrinterColumn("Connected", ".status.conditions[?(@.type=='Active')].status"),
            _AGE,
        ),
    ),
    CustomKind(kueue.MultiKueueConfig, "multikueueconfigs", ("mkconf",)),
    CustomKind(
        policy.Policy,
        "policies",
        ("pdpol",),
        columns=(
            PrinterColumn("Enforcement", ".spec.enforcement"),
            _READY,
            _AGE,
            PrinterColumn("Shadow of", ".spec.shadowOf", priority=1),
            _WHY,
        ),
        group=policy.GROUP,
        version=policy.VERSION,
    ),
    CustomKind(
        policy.PolicyBinding,
        "policybindings",
        ("polb",),
        columns=(
            PrinterColumn("Policy", ".spec.policyName"),
            PrinterColumn("Enforcement", ".spec.enforcement"),
            _READY,
            _AGE,
            _WHY,
        ),
        group=policy.GROUP,
        version=policy.VERSION,
    ),
)
"""Every kind that policyd brings along."""


def definition(kind: CustomKind, *, notes: Notes = no_notes, full: bool = False) -> dict[str, Json]:
    """Return the CustomResourceDefinition of a kind.

    Args:
        kind: The kind.
        notes: Returns the descriptions of a Struct's fields, by their names in Python.
        full: Whether the schema has patterns, bounds and CEL rules, too, if the kind is Kueue's.
    """
    full = full and kind.group == GROUP
    name = kind.type.__name__
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": kind.plural,
                "singular": name.lower(),
                **({"shortNames": list(kind.short)} if kind.short else {}),
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(kind, notes, full=full)],
        },
    }


def schema(type_: type[msgspec.Struct], *, full: bool = False) -> dict[str, Json]:
    """Return the structural OpenAPI schema of a wire type, slim or full."""
    return _schema_of(inspect.type_info(type_), full=full)


def _schema_of(info: inspect.Type, *, full: bool) -> dict[str, Json]:
    chosen: dict[str, Json] = _chosen(_schema(info), full=full)
    return chosen


def _chosen(part: Json, *, full: bool) -> Json:
    """Put the parts of the full schema in their place, or leave them out."""
    if isinstance(part, list):
        return [_chosen(each, full=full) for each in part]
    if not isinstance(part, dict):
        return part
    more = part.get(FULL, {}) if full else {}
    merged = {name: value for name, value in part.items() if name != FULL} | more
    return {name: _chosen(value, full=full) for name, value in merged.items()}


def _version(kind: CustomKind, notes: Notes, *, full: bool) -> dict[str, Json]:
    info = inspect.type_info(kind.type)
    whole = _schema_of(info, full=full)
    _describe(whole, info, notes)
    _count_from_zero(whole, kind.columns)
    known = {"apiVersion": dict(STRING), "kind": dict(STRING), "metadata": {"type": "object"}}
    whole["properties"] |= known
    required = [name for name in whole.pop("required", ()) if name not in known]
    if required:
        whole["required"] = required
    version: dict[str, Json] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": whole},
    }
    if "status" in whole["properties"]:
        version["subresources"] = {"status": {}}
    if kind.columns:
        version["additionalPrinterColumns"] = [_column(column) for column in kind.columns]
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return version


def _describe(found: dict[str, Json], info: inspect.Type, notes: Notes) -> None:
    """Add the description of each field, if known."""
    match info:
        case inspect.Metadata(type=inner):
            _describe(found, inner, notes)
        case inspect.StructType() if "properties" in found:
            for field in info.fields:
                part = found["properties"][field.encode_name]
                _describe(part, field.type, notes)
                note = notes(info.cls).get(field.name)
                part.update({"description": note} if note else {})
        case inspect.VarTupleType() if "items" in found:
            _describe(found["items"], info.item_type, notes)
        case inspect.DictType() if "additionalProperties" in found:
            _describe(found["additionalProperties"], info.value_type, notes)
        case inspect.UnionType() if "properties" in found or "items" in found:
            (option,) = [o for o in info.types if not isinstance(o, inspect.NoneType)]
            _describe(found, option, notes)


def _count_from_zero(whole: dict[str, Json], columns: tuple[PrinterColumn, ...]) -> None:
    """Let kubectl print 0 for counts that are omitted from the status."""
    for column in columns:
        _, part, *path = column.path.split(".")
        if column.type == "integer" and part == "status":
            (name,) = path
            whole["properties"][part]["properties"][name]["default"] = 0


def _column(column: PrinterColumn) -> dict[str, Json]:
    shown = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return shown | ({"priority": column.priority} if column.priority else {})


def _schema(info: inspect.Type) -> dict[str, Json]:
    match info:
        case inspect.Metadata():
            found = _marked(info)
        case inspect.StructType():
            found = _object(info)
        case inspect.DictType():
            found = {"type": "object", "additionalProperties": _schema(info.value_type)}
        case inspect.VarTupleType():
            found = {"type": "array", "items": _schema(info.item_type), **_sizes(info)}
        case inspect.UnionType():
            found = _union(info)
        case _:
            found = _scalar(info)
    return found


def _scalar(info: inspect.Type) -> dict[str, Json]:
    match info:
        case inspect.LiteralType():
            return {"type": "string", "enum": list(info.values)}
        case inspect.StrType():
            return dict(STRING)
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType():
            bounds = {"minimum": info.ge, "maximum": info.le}
            return {"type": "integer", **{k: v for k, v in bounds.items() if v is not None}}
        case inspect.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case _:
            raise TypeError(f"no schema for {info}")


def _marked(info: inspect.Metadata) -> dict[str, Json]:
    marks = {k: v for k, v in (info.extra_json_schema or {}).items() if k not in OWN_MARKS}
    if marks.pop("x-policyd-opaque", False):
        return marks
    found = _schema(info.type)
    more = found.get(FULL, {}) | marks.pop(FULL, {})
    return found | marks | ({FULL: more} if more else {})


def _sizes(info: inspect.VarTupleType) -> dict[str, Json]:
    sizes = {"minItems": info.min_length, "maxItems": info.max_length}
    return {name: size for name, size in sizes.items() if size is not None}


def _union(info: inspect.UnionType) -> dict[str, Json]:
    options = [option for option in info.types if not isinstance(option, inspect.NoneType)]
    if len(options) == 1:
        return _schema(options[0])
    if all(isinstance(option, inspect.StrType | inspect.IntType) for option in options):
        return dict(_INT_OR_STRING)
    return dict(ANYTHING)


def _object(info: inspect.StructType) -> dict[str, Json]:
    properties = {field.encode_name: _property(field) for field in info.fields}
    required = [field.encode_name for field in info.fields if _required(field)]
    described = (info.cls.__doc__ or "").partition("\n")[0]
    return {
        "type": "object",
        **({"description": described} if described else {}),
        "properties": properties,
        **({"required": required} if required else {}),
        **_only_full(info, required),
    }


def _only_full(info: inspect.StructType, required: list[str]) -> dict[str, Json]:
    """Return the parts of an object in the full schema only: rules, and fields always written."""
    rules = [rule.in_schema for rule in RULES.get(info.cls, ())]
    written = [f.encode_name for f in info.fields if _written(f) and not _required(f)]
    more: dict[str, Json] = {"required": [*required, *written]} if written else {}
    more |= {"x-kubernetes-validations": rules} if rules else {}
    return {FULL: more} if more else {}


def _written(field: inspect.Field) -> bool:
    if field.default_factory in {dict, list, set} or _has(field, "default"):
        return False
    return field.default_factory is not msgspec.NODEFAULT or _has(field, "x-policyd-written")


def _property(field: inspect.Field) -> dict[str, Json]:
    found = _schema(field.type)
    if _has(field, "x-policyd-unsaid"):
        return found
    if isinstance(field.default, str | int) and field.default:
        found["default"] = field.default
    return found


def _required(field: inspect.Field) -> bool:
    return field.required or _has(field, "x-policyd-required")


def _has(field: inspect.Field, mark: str) -> bool:
    marks = field.type.extra_json_schema if isinstance(field.type, inspect.Metadata) else None
    return mark in (marks or {})

"""Kueue's objects of version v1beta1, turned into v1beta2 and back.

Works on decoded JSON, so that fields that policyd does not read survive. A field that one version
lacks is dropped on the way to it. The argument is not changed; the result may share parts with it.
Values that are read must be of the types in `v1beta1_shapes.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from policyd.api.kueue.names import API_VERSION, GROUP
from policyd.api.kueue.v1beta1_shapes import SHAPES, Other
from policyd.api.meta import Json
from policyd.errors import PolicydError

OLD_API_VERSION: Final = f"{GROUP}/v1beta1"

_SOURCES: Final = {
    f"{GROUP}/workloadpriorityclass": (GROUP, "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}
"""v1beta1's `priorityClassSource`, and the group and kind that v1beta2 names instead."""
_SOURCE_OF: Final = {reference: source for source, reference in _SOURCES.items()}

Fields = dict[str, Json]

MOST_DOMAINS: Final = 100_000
"""Domains of a topology assignment that are written out one by one."""


class UnconvertibleError(PolicydError):
    """An object is not as its version has it, or has no form in the other one.

    Attributes:
        place: The field, if it is known: `spec.admissionChecks`.
    """

    place = ""


class WrongShapeError(UnconvertibleError):
    """A field that is looked into is of another type than it may be."""

    def __init__(self, message: str, *, place: str) -> None:
        super().__init__(message)
        self.place = place


class TooManyDomainsError(UnconvertibleError):
    """A topology assignment says in a few words more than v1beta1 could write out."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"a topology assignment of {number} domains cannot be had as `{OLD_API_VERSION}`,"
            f" which writes out {MOST_DOMAINS} at most"
        )


def is_known_version(document: Fields) -> bool:
    """Tell whether an object of Kueue's group is of one of the two versions."""
    version = document.get("apiVersion")
    return version in (OLD_API_VERSION, API_VERSION) or not str(version).startswith(f"{GROUP}/")


def upgraded(document: Json) -> Json:
    """Return an object as v1beta2 has it; one of another group or version as it is.

    Raises:
        WrongShapeError: If a field is of another type than it may be.
    """
    if not isinstance(document, dict) or document.get("apiVersion") != OLD_API_VERSION:
        return document
    return _converted(document, API_VERSION, _UPGRADES)


def downgraded(document: Json) -> Json:
    """Return an object as v1beta1 has it; one of another group or version as it is.

    Raises:
        WrongShapeError: If a field is of another type than it may be.
        TooManyDomainsError: If its topology assignment cannot be written out.
    """
    if not isinstance(document, dict) or document.get("apiVersion") != API_VERSION:
        return document
    return _converted(document, OLD_API_VERSION, _DOWNGRADES)


def _converted(
    document: Fields, version: str, steps: Mapping[str, Callable[[Fields, Fields], None]]
) -> Fields:
    kind = str(document.get("kind", ""))
    try:
        msgspec.convert(document, SHAPES.get(kind, Other))
    except msgspec.ValidationError as error:
        what, place = _in_words(str(error))
        raise WrongShapeError(
            f"{title(document)} cannot be had as `{version}`: {what}", place=place
        ) from error
    parts = {name: dict(document.get(name) or {}) for name in ("spec", "status")}
    step = steps.get(kind)
    if step is not None:
        step(parts["spec"], parts["status"])
    kept = {name: part for name, part in parts.items() if part or name in document}
    return {**document, "apiVersion": version, **kept}


def _in_words(error: str) -> tuple[str, str]:
    """Turn the decoder's `… - at $.spec.x` into `spec.x: …`, and say where that is."""
    what, _, place = error.rstrip("`").replace("$.", "").partition(" - at `")
    what = what[:1].lower() + what[1:]
    return (f"`{place}`: {what}" if place else what), place


def title(document: Fields) -> str:
    """Return the kind and the name of an object, for messages."""
    metadata = document.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{document.get('kind', 'an object')} `{name}`"


def _rename(fields: Fields, old: str, new: str) -> None:
    if old in fields:
        fields[new] = fields.pop(old)


def _upgrade_cluster_queue(spec: Fields, status: Fields) -> None:
    _rename(spec, "cohort", "cohortName")
    names = spec.pop("admissionChecks", None)
    if names:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": name} for name in names]}
    fungibility = spec.get("flavorFungibility")
    if fungibility:
        words = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}
        spec["flavorFungibility"] = {
            name: words.get(value, value) for name, value in fungibility.items()
        }
    status.pop("pendingWorkloadsStatus", None)
    _drop_admission_fair_sharing({}, status)


def _downgrade_cluster_queue(spec: Fields, _status: Fields) -> None:
    _rename(spec, "cohortName", "cohort")
    spec.pop("concurrentAdmissionPolicy", None)


def _drop_admission_fair_sharing(_spec: Fields, status: Fields) -> None:
    """Drop the part that only LocalQueues still have."""
    if status.get("fairSharing"):
        status["fairSharing"] = _without(status["fairSharing"], "admissionFairSharingStatus")


def _upgrade_local_queue(_spec: Fields, status: Fields) -> None:
    _rename(status, "flavorUsage", "flavorsUsage")
    status.pop("flavors", None)


def _downgrade_local_queue(_spec: Fields, status: Fields) -> None:
    _rename(status, "flavorsUsage", "flavorUsage")


def _upgrade_workload(spec: Fields, status: Fields) -> None:
    name, source = spec.pop("priorityClassName", ""), spec.pop("priorityClassSource", "")
    if source in _SOURCES:
        group, kind = _SOURCES[source]
        spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
    old = "accumulatedPastExexcutionTimeSeconds"  # so it is written in v1beta1
    _rename(status, old, "accumulatedPastExecutionTimeSeconds")
    _convert_topology(status, _slices)


def _downgrade_workload(spec: Fields, status: Fields) -> None:
    reference = spec.pop("priorityClassRef", None)
    if reference:
        source = _SOURCE_OF.get((reference.get("group", ""), reference.get("kind", "")), "")
        spec |= {"priorityClassName": reference.get("name", ""), "priorityClassSource": source}
    new = "accumulatedPastExexcutionTimeSeconds"
    _rename(status, "accumulatedPastExecutionTimeSeconds", new)
    spec.pop("preemptionGates", None)
    status.pop("preemptionGates", None)
    if spec.get("podSets"):
        spec["podSets"] = [_without_constraints(pod_set) for pod_set in spec["podSets"]]
    _convert_topology(status, _domains)


def _without(fields: Fields, *names: str) -> Fields:
    return {name: value for name, value in fields.items() if name not in names}


def _without_constraints(pod_set: Fields) -> Fields:
    request = pod_set.get("topologyRequest")
    if not request:
        return pod_set
    kept = _without(request, "podsetSliceRequiredTopologyConstraints")
    return {**pod_set, "topologyRequest": kept}


def _convert_topology(status: Fields, convert: Callable[[Fields], Fields]) -> None:
    admission = status.get("admission")
    if not admission or "podSetAssignments" not in admission:
        return
    assignments = [
        {**each, "topologyAssignment": convert(each["topologyAssignment"])}
        if each.get("topologyAssignment")
        else each
        for each in admission["podSetAssignments"] or ()
    ]
    status["admission"] = {**admission, "podSetAssignments": assignments}


def _slices(assignment: Fields) -> Fields:
    """Write a list of domains as one slice, in which common values are written once."""
    domains, levels = assignment.get("domains") or [], assignment.get("levels") or []
    converted = _without(assignment, "domains")
    if domains:
        counts = [domain.get("count", 0) for domain in domains]
        columns = [[d["values"][level] for d in domains] for level in range(len(levels))]
        converted["slices"] = [
            {
                "domainCount": len(domains),
                "podCounts": _common(counts, counts),
                "valuesPerLevel": [_common(c, {"roots": c}) for c in columns],
            }
        ]
    return converted


def _common(values: list[Json], individual: Json) -> Fields:
    if all(value == values[0] for value in values):
        return {"universal": values[0]}
    return {"individual": individual}


def _domains(assignment: Fields) -> Fields:
    converted = _without(assignment, "slices")
    slices = assignment.get("slices") or ()
    number = sum(each.get("domainCount", 0) for each in slices)
    if number > MOST_DOMAINS:
        raise TooManyDomainsError(number)
    converted["domains"] = [domain for each in slices for domain in _domains_of(each)]
    return converted


def _domains_of(part: Fields) -> Iterator[Fields]:
    levels, counts = part.get("valuesPerLevel") or (), part.get("podCounts") or {}
    for index in range(part.get("domainCount", 0)):
        universal = counts.get("universal")
        count = counts["individual"][index] if universal is None else universal
        yield {"values": [_level_value(level, index) for level in levels], "count": count}


def _level_value(level: Fields, index: int) -> str:
    universal = level.get("universal")
    if universal is not None:
        return str(universal)
    values = level["individual"]
    return f"{values.get('prefix') or ''}{values['roots'][index]}{values.get('suffix') or ''}"


def _upgrade_admission_check(spec: Fields, _status: Fields) -> None:
    spec.pop("retryDelayMinutes", None)


def _upgrade_multi_kueue_cluster(spec: Fields, _status: Fields) -> None:
    names = [name for name in ("kubeConfig", "clusterProfileRef") if name in spec]
    source = {name: spec.pop(name) for name in names}
    if any(any(part.values()) for part in source.values() if part):
        spec["clusterSource"] = source


def _downgrade_multi_kueue_cluster(spec: Fields, _status: Fields) -> None:
    spec |= spec.pop("clusterSource", None) or {}


def _downgrade_multi_kueue_config(spec: Fields, _status: Fields) -> None:
    spec.pop("quotaManagement", None)


KINDS: Final = frozenset(
    {
        "AdmissionCheck",
        "ClusterQueue",
        "Cohort",
        "LocalQueue",
        "MultiKueueCluster",
        "MultiKueueConfig",
        "ProvisioningRequestConfig",
        "ResourceFlavor",
        "Topology",
        "Workload",
        "WorkloadPriorityClass",
    }
)
"""The kinds of both versions; all others are passed on with the newer version's name."""

_UPGRADES: Final = {
    "AdmissionCheck": _upgrade_admission_check,
    "ClusterQueue": _upgrade_cluster_queue,
    "Cohort": _drop_admission_fair_sharing,
    "LocalQueue": _upgrade_local_queue,
    "MultiKueueCluster": _upgrade_multi_kueue_cluster,
    "Workload": _upgrade_workload,
}
_DOWNGRADES: Final = {
    "ClusterQueue": _downgrade_cluster_queue,
    "LocalQueue": _downgrade_local_queue,
    "MultiKueueCluster": _downgrade_multi_kueue_cluster,
    "MultiKueueConfig": _downgrade_multi_kueue_config,
    "Workload": _downgrade_workload,
}

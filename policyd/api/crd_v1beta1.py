"""Version v1beta1 of Kueue's kinds, for CustomResourceDefinitions that serve it.

Its schemas are those of v1beta2, but where `kueue/v1beta1.py` converts: one source for both.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Final

from policyd.api.crd import ANYTHING, KINDS, STRING, Notes, definition, no_notes
from policyd.api.kueue.names import API_VERSION, GROUP
from policyd.api.kueue.v1beta1 import MOST_DOMAINS, OLD_API_VERSION
from policyd.api.meta import Json

OLD_VERSION: Final = OLD_API_VERSION.removeprefix(f"{GROUP}/")

Schema = dict[str, Json]


def _texts(most: int) -> Schema:
    return {
        "type": "array",
        "items": STRING,
        "x-kubernetes-list-type": "atomic",
        "maxItems": most,
    }


_DROPPED: Final = "Not used: it is dropped as the object is stored."


def _described(text: str) -> Schema:
    return {"description": text}


_DOMAINS: Final[Schema] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "values": {**_texts(16), "description": "The value of each level's node label."},
            "count": {"type": "integer", "description": "Pods of the domain."},
        },
        "required": ["values", "count"],
    },
    "x-kubernetes-list-type": "atomic",
    "maxItems": MOST_DOMAINS,
    "description": "The domains, and how many pods go to each.",
}


def old_versions(*, notes: Notes = no_notes) -> dict[str, Schema]:
    """Return v1beta1 of each of Kueue's kinds, by the name of its definition.

    Args:
        notes: Returns the descriptions of a Struct's fields, by their names in Python.
    """
    kinds = [definition(kind, notes=notes) for kind in KINDS if kind.group == GROUP]
    return {
        made["metadata"]["name"]: _old(made["spec"]["names"]["kind"], made["spec"]["versions"][0])
        for made in kinds
    }


def _old(kind: str, version: Schema) -> Schema:
    """Return the schema of a kind in v1beta1, given the current one."""
    old = deepcopy(version)
    # The API server refuses versions that select by the same fields and differ in their schemas.
    old.pop("selectableFields", None)
    properties = old["schema"]["openAPIV3Schema"]["properties"]
    parts = (properties.get(name, {}).get("properties", {}) for name in ("spec", "status"))
    _EDITS.get(kind, _as_it_is)(*parts)
    for column in old.get("additionalPrinterColumns", ()):
        column["jsonPath"] = _OLD_PATHS.get(column["jsonPath"], column["jsonPath"])
    warning = f"{OLD_API_VERSION} {kind} is deprecated; use {API_VERSION}"
    return {
        **old,
        "name": OLD_VERSION,
        "storage": False,
        "deprecated": True,
        "deprecationWarning": warning,
    }


_OLD_PATHS: Final = {".spec.cohortName": ".spec.cohort"}


def _as_it_is(_spec: Schema, _status: Schema) -> None:
    """Change nothing."""


def _cluster_queue(spec: Schema, status: Schema) -> None:
    spec["cohort"] = spec.pop("cohortName")
    del spec["concurrentAdmissionPolicy"]
    spec["admissionChecks"] = {
        **_texts(64),
        "description": "AdmissionChecks that workloads of the queue must pass, for all flavors.",
    }
    fungibility = spec["flavorFungibility"]["properties"]
    for name, word in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
        fungibility[name]["enum"] = [word, *fungibility[name]["enum"]]
    status["pendingWorkloadsStatus"] = ANYTHING | _described(_DROPPED)
    _admission_fair_sharing(spec, status)


def _admission_fair_sharing(_spec: Schema, status: Schema) -> None:
    properties = status["fairSharing"]["properties"]
    properties["admissionFairSharingStatus"] = ANYTHING | _described(_DROPPED)


def _local_queue(_spec: Schema, status: Schema) -> None:
    status["flavorUsage"] = status.pop("flavorsUsage")
    flavors = {"type": "array", "items": {"type": "object", **ANYTHING}}
    status["flavors"] = flavors | _described(_DROPPED)


def _workload(spec: Schema, status: Schema) -> None:
    del spec["priorityClassRef"], spec["preemptionGates"]
    spec["priorityClassName"] = STRING | _described("The class that `priority` is from.")
    spec["priorityClassSource"] = STRING | _described(
        "`kueue.x-k8s.io/workloadpriorityclass` or `scheduling.k8s.io/priorityclass`."
    )
    request = spec["podSets"]["items"]["properties"]["topologyRequest"]["properties"]
    del request["podsetSliceRequiredTopologyConstraints"]
    status.pop("preemptionGates", None)
    seconds = status.pop("accumulatedPastExecutionTimeSeconds")
    status["accumulatedPastExexcutionTimeSeconds"] = seconds  # so it is written in v1beta1
    assignment = status["admission"]["properties"]["podSetAssignments"]["items"]["properties"]
    topology = assignment["topologyAssignment"]["properties"]
    del topology["slices"]
    topology["domains"] = _DOMAINS


def _admission_check(spec: Schema, _status: Schema) -> None:
    spec["retryDelayMinutes"] = {"type": "integer"} | _described(_DROPPED)


_EDITS: Final[Mapping[str, Callable[[Schema, Schema], None]]] = {
    "AdmissionCheck": _admission_check,
    "ClusterQueue": _cluster_queue,
    "Cohort": _admission_fair_sharing,
    "LocalQueue": _local_queue,
    "Workload": _workload,
}

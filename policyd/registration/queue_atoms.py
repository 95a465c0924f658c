"""The requests that the queue needs to see, for any policies."""

from typing import Final

from policyd.api.admission import Scope
from policyd.api.gpus import NUM_DEVICES, PARTS
from policyd.api.kueue.names import GROUP, MANAGED, POD_SET, QUEUE_NAME, VERSION
from policyd.api.selectors import Requirement
from policyd.jobs.integrations import POD, Integrations
from policyd.jobs.kinds.batch_job import BATCH_JOB
from policyd.jobs.kinds.registry import KINDS, PARENTS
from policyd.jobs.pods import SUSPENDING_PARENT
from policyd.registration.atoms import RuleAtom
from policyd.registration.requirements import Requirements, requirements_of

IN_A_QUEUE: Final = Requirement(key=QUEUE_NAME, operator="Exists")
"""The label that names a queue."""

IN_NO_QUEUE: Final = Requirement(key=QUEUE_NAME, operator="DoesNotExist")

OF_A_SET: Final = Requirement(key="statefulset.kubernetes.io/pod-name", operator="Exists")
"""Every pod of a StatefulSet has this label."""

HELD_FOR_A_SET: Final = (
    f"has(object.metadata.annotations) && '{SUSPENDING_PARENT}' in object.metadata.annotations"
)
"""CEL that is true of new pods of a StatefulSet that queues; they name no queue."""

MANAGED_POD: Final = Requirement(key=MANAGED, operator="Exists")
UNMANAGED_POD: Final = Requirement(key=MANAGED, operator="DoesNotExist")

OF_A_JOB: Final = Requirement(key=POD_SET, operator="Exists")
"""Every pod of a job that was started has this label."""

GATED: Final = "has(oldObject.spec.schedulingGates) && size(oldObject.spec.schedulingGates) > 0"
"""CEL of a pod that is changed: whether it was held."""


def _part(of: str, name: str) -> str:
    return f"{of}.?metadata.?annotations[?'{name}'].orValue('')"


PART_CHANGED: Final = " || ".join(
    f"{_part('object', name)} != {_part('oldObject', name)}" for name in (*PARTS, NUM_DEVICES)
)
"""CEL of a pod that is changed: whether it would request another part of a GPU."""

_QUEUE_KINDS: Final[tuple[tuple[str, Scope], ...]] = (
    ("admissionchecks", "Cluster"),
    ("clusterqueues", "Cluster"),
    ("cohorts", "Cluster"),
    ("localqueues", "Namespaced"),
    ("multikueueclusters", "Cluster"),
    ("multikueueconfigs", "Cluster"),
    ("provisioningrequestconfigs", "Cluster"),
    ("resourceflavors", "Cluster"),
    ("topologies", "Cluster"),
    ("workloadpriorityclasses", "Cluster"),
    ("workloads", "Namespaced"),
    ("workloads/status", "Namespaced"),
)


def _jobs(integrations: Integrations, operation: str) -> frozenset[RuleAtom]:
    kinds = [kind for kind in KINDS if integrations.has(kind.group, kind.kind)]
    atoms = {RuleAtom(k.group, k.version, "Namespaced", k.plural, operation) for k in kinds}
    return frozenset(atoms | (_pods(operation) if integrations.has(*POD) else set()))


def _pods(operation: str) -> set[RuleAtom]:
    return {RuleAtom("", "v1", "Namespaced", "pods", operation)}


def _parents(integrations: Integrations) -> frozenset[RuleAtom]:
    kinds = [kind for kind in PARENTS if integrations.has(kind.group, kind.kind)]
    named = {(kind.group, kind.version, kind.plural) for kind in kinds}
    if integrations.has(BATCH_JOB.group, BATCH_JOB.kind):
        named.add((BATCH_JOB.group, BATCH_JOB.version, "cronjobs"))
    return frozenset(
        RuleAtom(group, version, "Namespaced", plural, operation)
        for group, version, plural in named
        for operation in ("CREATE", "UPDATE")
    )


def _queues(operation: str) -> frozenset[RuleAtom]:
    return frozenset(
        RuleAtom(GROUP, VERSION, scope, resource, operation) for resource, scope in _QUEUE_KINDS
    )


def held_jobs(integrations: Integrations) -> frozenset[RuleAtom]:
    """Return the jobs and pods that may be held, and the kinds that create such pods."""
    return _jobs(integrations, "CREATE") | _parents(integrations)


def prepared_jobs(integrations: Integrations) -> frozenset[RuleAtom]:
    """Return new jobs that get something even if they name no queue."""
    return frozenset(
        RuleAtom(kind.group, kind.version, "Namespaced", kind.plural, "CREATE")
        for kind in KINDS
        if kind.defaults is not None and integrations.has(kind.group, kind.kind)
    )


def checked_jobs(integrations: Integrations) -> frozenset[RuleAtom]:
    """Return the jobs, pods and kinds that create pods that are checked."""
    return held_jobs(integrations) | _jobs(integrations, "UPDATE")


def namespaces_of_jobs(integrations: Integrations) -> Requirements:
    """Return the requirements on the labels of a namespace whose jobs queue."""
    selector = integrations.namespaces
    return frozenset() if selector is None else requirements_of(selector)


def new_jobs(integrations: Integrations) -> frozenset[RuleAtom]:
    """Return the jobs that get the default queue of their namespace, if it has one."""
    return frozenset(atom for atom in held_jobs(integrations) if atom.operation == "CREATE")


def members(integrations: Integrations) -> frozenset[RuleAtom]:
    """Return pods that may be held for a StatefulSet: they name no queue themselves."""
    groups = [kind for kind in PARENTS if kind.in_groups]
    on = any(integrations.has(kind.group, kind.kind) for kind in groups)
    return frozenset(_pods("CREATE")) if on else frozenset()


QUEUES: Final = _queues("CREATE") | _queues("UPDATE")
"""Kueue's kinds that are checked."""

_FINALIZED: Final = frozenset({"clusterqueues", "resourceflavors", "topologies"})

NEW_QUEUES: Final = frozenset(atom for atom in _queues("CREATE") if atom.resource in _FINALIZED)
"""Kueue's kinds that get a finalizer when they are created."""

CHANGED_PODS: Final = frozenset(_pods("UPDATE"))

RESIZED_PODS: Final = frozenset({RuleAtom("", "v1", "Namespaced", "pods/resize", "UPDATE")})
"""The subresource that changes the resource requests of a running pod."""

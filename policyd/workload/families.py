"""Families: a workload and its variants, one for each flavor, which compete for its admission.

The workload of a job in a ClusterQueue with a `concurrentAdmissionPolicy` is the parent. It does
not queue: its variants do, and it takes over the admission of the one that is admitted. A variant
is what its parent says it is: one that asks for something else, or for the flavor of another one,
is a stranger, which gets no quota.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from policyd.api.kueue import ClusterQueue, Workload
from policyd.api.kueue.names import (
    ADMISSION_GATED_BY,
    ALLOWED_FLAVORS,
    API_VERSION,
    PRIORITY_BOOST,
    SLICE_REPLACEMENT_FOR,
)
from policyd.api.meta import Json, OwnerReference
from policyd.jobs.base import controller_of
from policyd.jobs.lifecycle import has_quota
from policyd.jobs.workload import workload_name
from policyd.workload.transitions import is_admitted

PARENT: Final = "kueue.x-k8s.io/concurrent-admission-parent"
"""Label of a workload that has variants."""
GATE: Final = "kueue.x-k8s.io/concurrent-admission"
"""Preemption gate of variants: one of a parent may preempt at a time."""
NOT_A_VARIANT: Final = (
    "the Workload that controls this one has no such variant: one has the pod sets, the queue"
    " and the priority of its parent, and a flavor of the ClusterQueue for itself"
)


@dataclass(frozen=True, slots=True)
class WorkloadFamily:
    """A parent and all workloads that it controls.

    Attributes:
        parent: The workload of a job.
        owned: The workloads that it controls, variants or not.
        queue: Its ClusterQueue, if that has a policy about variants; None if there are to be none.
    """

    parent: Workload
    owned: Sequence[Workload]
    queue: ClusterQueue | None

    @property
    def flavors(self) -> list[str]:
        """The flavors of the queue, the most favorable first."""
        return [] if self.queue is None else flavors_of(self.queue)

    @property
    def migrates(self) -> bool:
        """Whether a job moves on to a more favorable flavor."""
        policy = None if self.queue is None else self.queue.spec.concurrent_admission_policy
        return policy is not None and policy.migration.mode != "RetainFirstAdmission"

    @property
    def last_acceptable(self) -> str:
        """The last flavor to which it moves on; empty for any."""
        policy = None if self.queue is None else self.queue.spec.concurrent_admission_policy
        bounds = None if policy is None else policy.migration.constraints
        named = "" if bounds is None else bounds.last_acceptable_flavor_name
        return named if named in self.flavors else ""

    @property
    def variants(self) -> list[Workload]:
        """The variants, in the order of their flavors: of several for one, the first by name."""
        found: dict[str, Workload] = {}
        for each in sorted(self.owned, key=lambda workload: workload.metadata.name):
            holds = is_admitted(each) and has_quota(self.parent)  # one that runs may have shrunk
            if each.metadata.deletion_timestamp is None and (holds or fits(each, self.parent)):
                found.setdefault(flavor_of(each), each)
        return [found[flavor] for flavor in self.flavors if flavor in found]


def parent_of(workload: Workload) -> OwnerReference | None:
    """Return the workload that controls another one; None if none does."""
    owner = controller_of(workload.metadata)
    of_workload = owner and (owner.kind, owner.api_version) == ("Workload", API_VERSION)
    return owner if of_workload else None


def parent_key(workload: Workload) -> str:
    """Return the key of the workload that controls another; "" if none does."""
    owner = parent_of(workload)
    return "" if owner is None else f"{workload.metadata.namespace}/{owner.name}"


def without_variants(workloads: Iterable[Workload]) -> list[Workload]:
    """Return workloads without the variants of others, which stand for all of these.

    A variant whose parent is not among them goes with it.
    """
    given = list(workloads)
    single = {each.metadata.key for each in given if each.metadata.labels.get(PARENT) != "true"}
    single.add("")
    return [each for each in given if parent_key(each) in single]


def has_gate(workload: Workload) -> bool:
    """Tell whether a workload has the preemption gate that the controller gives to variants."""
    return any(gate.name == GATE for gate in workload.spec.preemption_gates)


def flavor_of(workload: Workload) -> str:
    """Return the flavor of a variant; empty if it is none."""
    return workload.metadata.annotations.get(ALLOWED_FLAVORS, "").partition(",")[0].strip()


def flavors_of(queue: ClusterQueue) -> list[str]:
    """Return the flavors of a queue, which has one resource group if it has variants, in order."""
    return [each.name for group in queue.spec.resource_groups for each in group.flavors]


def has_variants(workload: Workload, queue: ClusterQueue | None) -> bool:
    """Tell whether a workload has variants in a queue.

    One that got its quota without them, before there was a policy, goes on without them.
    """
    if queue is None or queue.spec.concurrent_admission_policy is None:
        return False
    marked = workload.metadata.labels.get(PARENT) == "true"
    return parent_of(workload) is None and (marked or not has_quota(workload))


def fits(variant: Workload, parent: Workload) -> bool:
    """Tell whether a variant asks for what its parent does, where and as urgently as that does."""
    return _asked(variant) == _asked(parent)


def _asked(workload: Workload) -> tuple[object, ...]:
    spec, annotations = workload.spec, workload.metadata.annotations
    noted = [annotations.get(each, "") for each in (PRIORITY_BOOST, ADMISSION_GATED_BY)]
    return spec.pod_sets, spec.queue_name, spec.priority, noted


def variant_body(parent: Json, flavor: str) -> Json:
    """Return the body of the variant for a flavor, given the whole parent."""
    metadata, spec = parent["metadata"], dict(parent["spec"])
    owner = OwnerReference(
        api_version=API_VERSION,
        kind="Workload",
        name=metadata["name"],
        uid=metadata["uid"],
        controller=True,
    )
    spec.pop("active", None)
    spec["preemptionGates"] = [*spec.get("preemptionGates", ()), {"name": GATE}]
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != PARENT}
    annotations = {**(metadata.get("annotations") or {}), ALLOWED_FLAVORS: flavor}
    annotations.pop(SLICE_REPLACEMENT_FOR, None)
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": workload_name(owner, "variant", flavor),
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [msgspec.to_builtins(owner)],
        },
        "spec": spec,
    }

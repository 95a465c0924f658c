"""Kueue's own objects at admission: denied as Kueue denies them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self

import msgspec

from policyd.admission.decisions import SPEAKER, changed
from policyd.api.admission import AdmissionRequest
from policyd.api.gpus import flavor_errors
from policyd.api.kueue import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    MultiKueueCluster,
    MultiKueueConfig,
    ProvisioningRequestConfig,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
from policyd.api.kueue.gates import DEFAULT_GATES, ValidationGates
from policyd.api.kueue.limits import limit_errors
from policyd.api.kueue.names import GROUP, RESOURCE_IN_USE_FINALIZER, VERSION
from policyd.api.kueue.queue_validation import (
    validate_cluster_queue,
    validate_cohort,
    validate_local_queue,
)
from policyd.api.kueue.validation import (
    FieldError,
    validate_admission_check,
    validate_multi_kueue_cluster,
    validate_multi_kueue_config,
    validate_resource_flavor,
    validate_topology,
)
from policyd.api.kueue.workload_validation import validate_workload
from policyd.engine.model.decision import ALLOWED, Decision, Denial
from policyd.jobs.integrations import Integrations
from policyd.patch.draft import Draft
from policyd.usage.budgets import HOLD, HOURS, TIME_ZONE, BudgetError, budget_of


class _Kind(NamedTuple):
    """A kind that is checked: given the object and, on an update, its old version."""

    type: type[Any]
    check: Callable[[Any, Any, ValidationGates], list[FieldError]]


_KINDS: Final = {
    "AdmissionCheck": _Kind(AdmissionCheck, lambda new, old, _: validate_admission_check(new, old)),
    "ClusterQueue": _Kind(
        ClusterQueue, lambda new, old, gates: validate_cluster_queue(new, old, gates=gates)
    ),
    "Cohort": _Kind(Cohort, lambda new, _old, _: validate_cohort(new)),
    "LocalQueue": _Kind(LocalQueue, lambda new, old, _: validate_local_queue(new, old)),
    "MultiKueueCluster": _Kind(
        MultiKueueCluster, lambda new, _old, _: validate_multi_kueue_cluster(new)
    ),
    "MultiKueueConfig": _Kind(
        MultiKueueConfig, lambda new, _old, _: validate_multi_kueue_config(new)
    ),
    "ProvisioningRequestConfig": _Kind(ProvisioningRequestConfig, lambda _new, _old, _: []),
    "ResourceFlavor": _Kind(ResourceFlavor, lambda new, old, _: validate_resource_flavor(new, old)),
    "Topology": _Kind(Topology, lambda new, old, _: validate_topology(new, old)),
    "Workload": _Kind(Workload, lambda new, old, gates: validate_workload(new, old, gates=gates)),
    "WorkloadPriorityClass": _Kind(WorkloadPriorityClass, lambda _new, _old, _: []),
}


BUDGET_ANNOTATIONS: Final = (HOURS, TIME_ZONE, HOLD)

_HELD: Final = frozenset({"ClusterQueue", "ResourceFlavor", "Topology"})
"""Kinds that the controller lets go only when nothing uses them any more."""

_FINALIZERS: Final = ("metadata", "finalizers")


@dataclass(frozen=True, slots=True)
class QueueAdmission:
    """Decides on Kueue's objects: ClusterQueues, flavors, Workloads and others.

    Attributes:
        gates: The feature gates that change the validation.
    """

    gates: ValidationGates = DEFAULT_GATES

    @classmethod
    def of(cls, integrations: Integrations) -> Self:
        """Return one with the feature gates that are set, and the defaults of the others."""
        chosen = {**dict.fromkeys(integrations.on, True), **dict.fromkeys(integrations.off, False)}
        return cls(msgspec.convert(chosen, ValidationGates))

    def change(self, request: AdmissionRequest, decision: Decision) -> Decision:
        """Give new queues, flavors and topologies the finalizer that Kueue gives them."""
        kind = request.kind
        if kind.group != GROUP or kind.kind not in _HELD or request.operation != "CREATE":
            return decision
        return decision if decision.denials else changed(request, decision, _hold)

    def check(self, request: AdmissionRequest) -> Decision:
        """Return the objections to one of Kueue's objects that is created or changed."""
        known = _KINDS.get(request.kind.kind) if request.kind.group == GROUP else None
        if known is None or request.kind.version != VERSION or request.operation == "DELETE":
            return ALLOWED
        try:
            new = msgspec.json.decode(request.object, type=known.type)
            old = msgspec.json.decode(request.old_object, type=known.type | None)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _refused(Denial(policy=SPEAKER, message=f"the object cannot be read: {error}"))
        if new.metadata.deletion_timestamp is not None:
            return ALLOWED  # mistakes must not prevent its deletion
        if own := _annotation_denials(new, old):
            return _refused(*own)
        if old is not None and known.type is not Workload and _is_same(new, old):
            return ALLOWED  # old mistakes must not prevent a status
        unfit = list(limit_errors(new, old))
        reported = {error.path for error in unfit}
        errors = [*unfit, *(e for e in known.check(new, old, self.gates) if e.path not in reported)]
        # Schema errors come first: the API server calls no webhook for an invalid object.
        return _refused(*map(_denial, sorted(errors, key=lambda error: not error.schema)))


def _hold(_request: AdmissionRequest, draft: Draft) -> None:
    if RESOURCE_IN_USE_FINALIZER not in (draft.get(_FINALIZERS) or ()):
        draft.append(_FINALIZERS, RESOURCE_IN_USE_FINALIZER)


def _is_same(new: Any, old: Any) -> bool:  # noqa: ANN401 - of any kind
    """Tell whether an object is unchanged, except for metadata and status."""
    besides = {name: getattr(new, name) for name in ("metadata", "status") if hasattr(new, name)}
    return bool(new == msgspec.structs.replace(old, **besides))


def _annotation_denials(new: Any, old: Any) -> tuple[Denial, ...]:  # noqa: ANN401 - of any kind
    """Return why the annotations beyond Kueue's cannot be meant; those from before may stay."""
    if not isinstance(new, ResourceFlavor):
        return _budget_denials(new, old)
    if old is not None and new.metadata.annotations == old.metadata.annotations:
        return ()
    return tuple(map(_denial, flavor_errors(new.metadata.annotations)))


def _budget_denials(new: Any, old: Any) -> tuple[Denial, ...]:  # noqa: ANN401 - of any kind
    """Return why the budget that a queue is given cannot be meant; one from before may stay."""
    annotations = new.metadata.annotations
    given = {name: annotations[name] for name in BUDGET_ANNOTATIONS if name in annotations}
    if not isinstance(new, ClusterQueue | LocalQueue) or not given:
        return ()
    if old is not None and given.items() <= old.metadata.annotations.items():
        return ()
    try:
        budget_of(annotations)
    except BudgetError as error:
        hint = f"; {error.hint}" if error.hint else ""
        message = f"metadata.annotations: {error}{hint}"
        return (Denial(policy=SPEAKER, message=message, path="metadata.annotations"),)
    return ()


def _denial(error: FieldError) -> Denial:
    reason: Literal["Invalid", "Forbidden"] = "Invalid" if error.schema else "Forbidden"
    return Denial(policy=SPEAKER, message=error.words, path=error.path, reason=reason)


def _refused(*denials: Denial) -> Decision:
    return Decision(denials=denials) if denials else ALLOWED

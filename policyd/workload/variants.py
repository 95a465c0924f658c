"""What is to be done about a family of workloads: pure decisions, step by step."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from policyd.api.kueue import PreemptionGateState, Workload, WorkloadStatus
from policyd.api.kueue.names import EVICTED, FINISHED, PODS_READY, QUOTA_RESERVED
from policyd.api.meta import Condition, condition_true, find_condition, timestamp
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.workload.families import GATE, WorkloadFamily, flavor_of, has_gate
from policyd.workload.obstacles import BY_SCHEDULER, GATED
from policyd.workload.time_limits import backoff_left
from policyd.workload.transitions import (
    BLOCKED_ON_GATES,
    after_eviction,
    evict,
    finish,
    is_admitted,
    release,
    reserve,
    set_condition,
    time_of,
    with_status,
)

GATE_SECONDS: Final = 300.0
"""How long the preemption of one variant may take before the next may preempt."""
VARIANT_EVICTED: Final = "VariantEvicted"
NO_VARIANT: Final = "ConcurrentAdmission"
_OWN_REASONS: Final = frozenset({VARIANT_EVICTED, NO_VARIANT})
_FOR_GOOD: Final = "DeactivatedDueTo"


class MakeVariant(NamedTuple):
    """Create the variant for a flavor."""

    flavor: str


class DropVariant(NamedTuple):
    """Delete a workload that is no variant, or no longer."""

    variant: Workload
    why: str


class SwitchVariant(NamedTuple):
    """Activate or deactivate a variant, and say why."""

    variant: Workload
    active: bool
    why: str


class PutStatus(NamedTuple):
    """Write the status of the parent, or of a variant."""

    workload: Workload
    status: WorkloadStatus


class UngateVariant(NamedTuple):
    """Let a variant preempt."""

    variant: Workload
    status: WorkloadStatus


FamilyStep = MakeVariant | DropVariant | SwitchVariant | PutStatus | UngateVariant


def family_steps(
    family: WorkloadFamily, *, now: float, detailed: bool = True
) -> tuple[list[FamilyStep], float | None]:
    """Return what is to be done about a family now, and the seconds until more may be.

    Args:
        family: The parent and its variants.
        now: Seconds since the epoch.
        detailed: As in `sync_admitted`.
    """
    parent, variants = family.parent, family.variants
    kept = {each.metadata.uid for each in variants}
    steps: list[FamilyStep] = [
        DropVariant(each, _why_strange(each, family))
        for each in family.owned
        if _is_stranger(each, kept, family)
    ]
    if family.queue is None or parent.metadata.deletion_timestamp is not None:
        return steps, None
    if is_finished(parent):
        return [*steps, *_finished(parent, variants, now)], None
    have = {flavor_of(each) for each in variants}
    steps += [MakeVariant(flavor) for flavor in family.flavors if flavor not in have]
    stopping = _stopping(parent, variants, now, detailed=detailed)
    if stopping is not None:
        return [*steps, *stopping], None
    admitted = next(filter(is_admitted, variants), None)
    steps += _switches(family, variants, admitted)
    steps += _synced(parent, variants, admitted, now, detailed=detailed)
    opened, left = _opened(variants, now)
    return [*steps, *opened], left


def _is_stranger(workload: Workload, kept: set[str], family: WorkloadFamily) -> bool:
    """Tell whether a workload is to go; without a policy, only variants that policyd made do."""
    metadata = workload.metadata
    if metadata.uid in kept or metadata.deletion_timestamp is not None:
        return False
    return family.queue is not None or has_gate(workload)


def _why_strange(workload: Workload, family: WorkloadFamily) -> str:
    flavor = flavor_of(workload)
    if flavor not in family.flavors:
        return f'flavor "{flavor}" no longer in ClusterQueue'
    return "it does not ask for what its parent does, or another Variant has its flavor"


def _finished(parent: Workload, variants: Sequence[Workload], now: float) -> Iterator[FamilyStep]:
    end = find_condition(parent.status.conditions, FINISHED)
    assert end is not None, "the parent is finished"
    for each in variants:
        if not is_finished(each):
            yield PutStatus(each, finish(each, reason=end.reason, message=end.message, now=now))


def _stopping(
    parent: Workload, variants: Sequence[Workload], now: float, *, detailed: bool
) -> list[FamilyStep] | None:
    """Return what a family that stops does next; None if it does not stop.

    A variant keeps its quota until the job has stopped, which its parent knows.
    """
    eviction = find_condition(parent.status.conditions, EVICTED)
    stops = eviction is not None and eviction.status == "True"
    for each in filter(has_quota, variants):
        if condition_true(each.status.conditions, EVICTED):
            if has_quota(parent) and is_admitted(each):
                return [PutStatus(parent, _evicted(parent, VARIANT_EVICTED, now))]
            return [PutStatus(each, after_eviction(each, now=now, detailed=detailed))]
        if eviction is None or not stops or has_quota(parent) or eviction.reason in _OWN_REASONS:
            continue
        if (time_of(each, QUOTA_RESERVED) or now) <= (time_of(parent, EVICTED) or 0.0):
            reason, message = eviction.reason, eviction.message
            return [PutStatus(each, evict(each, reason=reason, message=message, now=now))]
    return None


def _evicted(parent: Workload, reason: str, now: float) -> WorkloadStatus:
    if condition_true(parent.status.conditions, EVICTED):
        return parent.status
    message = {VARIANT_EVICTED: "Admitted variant was evicted", NO_VARIANT: "No variant is running"}
    return evict(parent, reason=reason, message=message[reason], now=now)


def _switches(
    family: WorkloadFamily, variants: Sequence[Workload], admitted: Workload | None
) -> Iterator[SwitchVariant]:
    """Yield the variants to activate or to deactivate, with Kueue's reasons.

    One that an admission check has rejected, say, stays deactivated.
    """
    for index, each in enumerate(variants):
        active, why = _to_be_active(family, variants, index, admitted)
        eviction = find_condition(each.status.conditions, EVICTED)
        given_up = eviction is not None and eviction.reason.startswith(_FOR_GOOD)
        if active is not None and active is not each.spec.active and not (active and given_up):
            yield SwitchVariant(each, active, why)


def _to_be_active(
    family: WorkloadFamily, variants: Sequence[Workload], index: int, admitted: Workload | None
) -> tuple[bool | None, str]:
    """Tell whether a variant is to be active, and why; None if it may stay as it is."""
    if not family.parent.spec.active:
        return False, f'Parent Workload "{family.parent.metadata.key}" not active'
    if admitted is None:
        return True, "no other Variant being admitted"
    best, key = variants.index(admitted), f'"{admitted.metadata.key}"'
    if index == best:
        return None, ""
    if not family.migrates:
        return False, f"RetainFirstAdmission: another Variant {key} is admitted"
    last, flavors = family.last_acceptable, family.flavors
    why = f"being higher priority than admitted Variant {key}"
    if last and flavors.index(flavor_of(variants[index])) > flavors.index(last):
        why = f'being below lastAcceptableFlavor: "{last}" and another Variant admitted {key}'
        return False, why
    if index > best:
        why = f"being lower priority than admitted Variant {key}"
    elif last:
        why = why.replace("being ", f'being at least lastAcceptableFlavor: "{last}" and ', 1)
    return index < best, why


def _synced(
    parent: Workload,
    variants: Sequence[Workload],
    admitted: Workload | None,
    now: float,
    *,
    detailed: bool,
) -> Iterator[FamilyStep]:
    """Yield the statuses that the parent takes over from variants, and one of them from it."""
    if admitted is not None:
        ready = find_condition(parent.status.conditions, PODS_READY)
        if ready is not None:
            yield PutStatus(admitted, set_condition(admitted, ready, now=now))
        yield PutStatus(parent, _like(parent, admitted, now))
    elif not has_quota(parent):
        yield from _pending(parent, variants, now, detailed=detailed)
    else:
        yield PutStatus(parent, _evicted(parent, NO_VARIANT, now))


def _like(parent: Workload, variant: Workload, now: float) -> WorkloadStatus:
    """Return the status of a parent whose variant is admitted."""
    given = variant.status.admission
    if not has_quota(parent):
        waits = not parent.spec.active or (backoff_left(parent, now=now) or 0.0) > 0
        return parent.status if given is None or waits else _admitted_by(parent, variant, now)
    if _assigned(parent) != _assigned(variant):
        return _evicted(parent, VARIANT_EVICTED, now)
    # The pods of a node that failed have another place.
    return msgspec.structs.replace(parent.status, admission=given)


def _assigned(workload: Workload) -> object:
    admission = workload.status.admission
    assignments = () if admission is None else admission.pod_set_assignments
    return [(each.name, each.flavors, each.count) for each in assignments]


def _admitted_by(parent: Workload, variant: Workload, now: float) -> WorkloadStatus:
    admission = variant.status.admission
    assert admission is not None, "what is admitted has an admission"
    bare = with_status(parent, msgspec.structs.replace(parent.status, admission_checks=()))
    status = reserve(bare, admission, now=now)
    message = f"The variant {variant.metadata.name} is admitted"
    admitted = Condition("Admitted", "True", "Admitted", message)
    return set_condition(with_status(parent, status), admitted, now=now)


def _pending(
    parent: Workload, variants: Sequence[Workload], now: float, *, detailed: bool
) -> Iterator[FamilyStep]:
    """Yield why a parent waits: the reasons of its variants, each with its flavor.

    What keeps the parent itself from queueing is on it already, and stays.
    """
    own = find_condition(parent.status.conditions, QUOTA_RESERVED)
    waits = own is None or own.reason in BY_SCHEDULER | {"PendingEvaluation"}
    found = [
        (flavor_of(each), reserved)
        for each in variants
        if (reserved := find_condition(each.status.conditions, QUOTA_RESERVED)) is not None
        and reserved.status == "False"
        and each.spec.active
    ]
    if not (parent.spec.active and waits and found):
        return
    by_scheduler = (r.reason for _, r in found if r.reason in BY_SCHEDULER and r.reason != GATED)
    reason = next(by_scheduler, "PendingEvaluation")
    message = "; ".join(f"variant {flavor}: {reserved.message}" for flavor, reserved in found)
    yield PutStatus(
        parent, release(parent, reason=reason, message=message, now=now, detailed=detailed)
    )


def _opened(variants: Sequence[Workload], now: float) -> tuple[list[FamilyStep], float | None]:
    """Return which variant may preempt now: the first that would, if none before it still may.

    A variant that was not considered yet may not have to preempt: those behind it wait for it.
    """
    waiting = [
        each
        for each in variants
        if each.spec.active and not (has_quota(each) or is_finished(each)) and has_gate(each)
    ]
    closed = [each for each in waiting if not _open_since(each)]
    first = next((each for each in closed if _is_considered(each)), None)
    if first is None or not condition_true(first.status.conditions, BLOCKED_ON_GATES):
        return [], None
    since = max((_open_since(each) for each in waiting), default=0.0)
    left = since + GATE_SECONDS - now
    if left > 0:
        return [], left
    others = [gate for gate in first.status.preemption_gates if gate.name != GATE]
    gates = (*others, PreemptionGateState(GATE, "Open", timestamp(now)))
    status = msgspec.structs.replace(first.status, preemption_gates=gates)
    return [UngateVariant(first, status)], GATE_SECONDS


def _is_considered(variant: Workload) -> bool:
    """Tell whether a variant would preempt, or was not considered yet."""
    conditions = variant.status.conditions
    known = find_condition(conditions, QUOTA_RESERVED) is not None
    return condition_true(conditions, BLOCKED_ON_GATES) or not known


def _open_since(variant: Workload) -> float:
    """Return when the gate of a variant was opened, in seconds since the epoch; 0 if it is not."""
    for gate in variant.status.preemption_gates:
        if (gate.name, gate.position) == (GATE, "Open") and gate.last_transition_time is not None:
            return gate.last_transition_time.timestamp()
    return 0.0

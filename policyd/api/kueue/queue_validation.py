"""Validation of ClusterQueues, Cohorts and LocalQueues beyond their schemas."""

from collections.abc import Iterator
from typing import Final

import msgspec

from policyd.api.kueue.gates import DEFAULT_GATES, ValidationGates
from policyd.api.kueue.queues import (
    AdmissionCheckRule,
    ClusterQueue,
    ClusterQueueSpec,
    Cohort,
    FairSharing,
    LocalQueue,
    ResourceGroup,
    ResourceQuota,
)
from policyd.api.kueue.validation import (
    IMMUTABLE,
    NEGATIVE,
    FieldError,
    amount_errors,
    selector_errors,
    supported_values,
)
from policyd.api.names import label_key_problems
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.api.schema import QuantityText

_MOST_FLAVORS: Final = 256
_MOST_RESOURCES: Final = 256
_MOST_QUOTAS: Final = 512
_MOST_VARIANTS: Final = 16
_LEAST_WEIGHT: Final = parse_quantity("1n")


def validate_cluster_queue(
    queue: ClusterQueue, old: ClusterQueue | None = None, *, gates: ValidationGates = DEFAULT_GATES
) -> list[FieldError]:
    """Return the errors in a ClusterQueue, given the old one."""
    spec, before = queue.spec, old.spec if old is not None else None
    alone = "must be nil when cohort is empty" if not spec.cohort_name else ""
    errors = list(_groups(spec.resource_groups, alone, capped=True))
    if spec.namespace_selector is not None:
        errors.extend(selector_errors(spec.namespace_selector, "spec.namespaceSelector"))
    errors.extend(_fungibility(spec))
    errors.extend(_preemption(spec))
    errors.extend(_fair_sharing(spec.fair_sharing))
    errors.extend(_checks(spec, before, gates))
    if gates.concurrent_admission:
        errors.extend(_concurrent_admission(spec))
        new_policy = spec.concurrent_admission_policy
        if before is not None and before.concurrent_admission_policy != new_policy:
            value = msgspec.to_builtins(new_policy)
            errors.append(FieldError("spec.concurrentAdmissionPolicy", value, IMMUTABLE))
    return errors


def validate_cohort(cohort: Cohort) -> list[FieldError]:
    """Return the errors in a Cohort."""
    alone = "must be nil when parent is empty" if not cohort.spec.parent_name else ""
    return [
        *_groups(cohort.spec.resource_groups, alone, capped=False),
        *_fair_sharing(cohort.spec.fair_sharing),
    ]


def validate_local_queue(queue: LocalQueue, old: LocalQueue | None = None) -> list[FieldError]:
    """Return the errors in a LocalQueue, given the old one."""
    name = queue.spec.cluster_queue
    errors = list(_fair_sharing(queue.spec.fair_sharing))
    if old is not None and old.spec.cluster_queue != name:
        errors.append(FieldError("spec.clusterQueue", name, IMMUTABLE, schema=True))
    return errors


def _groups(groups: tuple[ResourceGroup, ...], alone: str, *, capped: bool) -> Iterator[FieldError]:
    resources: set[str] = set()
    flavors: set[str] = set()
    for index, group in enumerate(groups):
        path = f"spec.resourceGroups[{index}]"
        for position, resource in enumerate(group.covered_resources):
            where = f"{path}.coveredResources[{position}]"
            for problem in label_key_problems(resource):
                yield FieldError(where, resource, problem)
            if resource in resources:
                yield FieldError(where, resource, "", "Duplicate")
            resources.add(resource)
        for position, flavor in enumerate(group.flavors):
            where = f"{path}.flavors[{position}]"
            if flavor.name in flavors:
                yield FieldError(f"{where}.name", flavor.name, "", "Duplicate")
            flavors.add(flavor.name)
            yield from _names(flavor.resources, group, where)
            for number, quota in enumerate(flavor.resources):
                yield from _quota(quota, f"{where}.resources[{number}]", alone, capped=capped)
    yield from _totals(groups)


def _names(
    quotas: tuple[ResourceQuota, ...], group: ResourceGroup, where: str
) -> Iterator[FieldError]:
    names = tuple(quota.name for quota in quotas)
    if len(names) != len(group.covered_resources):
        message = "must have the same number of resources as the coveredResources"
        yield FieldError(f"{where}.resources", len(names), message, schema=True)
    for number, (name, covered) in enumerate(zip(names, group.covered_resources, strict=False)):
        if name != covered:
            path = f"{where}.resources[{number}].name"
            yield FieldError(path, name, "must match the name in coveredResources")


def _quota(quota: ResourceQuota, where: str, alone: str, *, capped: bool) -> Iterator[FieldError]:
    yield from amount_errors(quota.nominal_quota, f"{where}.nominalQuota")
    for name, limit in (
        ("borrowingLimit", quota.borrowing_limit),
        ("lendingLimit", quota.lending_limit),
    ):
        if limit is None:
            continue
        path = f"{where}.{name}"
        if alone:
            # Kueue's schema says so of ClusterQueues' limits of borrowing, its webhooks of others.
            unborrowed = capped and name == "borrowingLimit"
            yield FieldError(path, str(limit), alone, schema=unborrowed)
        wrong = list(amount_errors(limit, path))
        yield from wrong
        if capped and name == "lendingLimit" and not wrong and _exceeds(limit, quota.nominal_quota):
            yield FieldError(path, str(limit), "must be less than or equal to the nominalQuota")


def _totals(groups: tuple[ResourceGroup, ...]) -> Iterator[FieldError]:
    path = "spec.resourceGroups"
    sums = (
        ("flavors", sum(len(group.flavors) for group in groups), _MOST_FLAVORS),
        ("covered resources", sum(len(g.covered_resources) for g in groups), _MOST_RESOURCES),
    )
    for what, total, most in sums:
        if total > most:
            message = f"total number of {what} across all resourceGroups must be ≤ {most}"
            yield FieldError(path, total, f"{message}, got {total}")
    for index, group in enumerate(groups):
        quotas = len(group.flavors) * len(group.covered_resources)
        if quotas > _MOST_QUOTAS:
            message = f"number of flavors times covered resources must be ≤ {_MOST_QUOTAS}"
            yield FieldError(f"{path}[{index}]", quotas, f"{message}, got {quotas}")


def _fungibility(spec: ClusterQueueSpec) -> Iterator[FieldError]:
    fungibility = spec.flavor_fungibility
    tries = {fungibility.when_can_borrow, fungibility.when_can_preempt}
    if fungibility.preference is not None and tries != {"TryNextFlavor"}:
        message = (
            f'preference "{fungibility.preference}" requires both whenCanBorrow and whenCanPreempt'
            " to be TryNextFlavor"
        )
        path = "spec.flavorFungibility.preference"
        yield FieldError(path, fungibility.preference, message, schema=True)


def _preemption(spec: ClusterQueueSpec) -> Iterator[FieldError]:
    borrows = spec.preemption.borrow_within_cohort.policy
    if spec.preemption.reclaim_within_cohort == "Never" and borrows != "Never":
        message = "borrowWithinCohort.policy must be Never while reclaimWithinCohort is Never"
        value = msgspec.to_builtins(spec.preemption)
        yield FieldError("spec.preemption", value, message, schema=True)


def _fair_sharing(sharing: FairSharing | None) -> Iterator[FieldError]:
    if sharing is None:
        return
    path = "spec.fairSharing"
    try:
        weight = parse_quantity(sharing.weight)
    except QuantityError as error:
        yield FieldError(path, str(sharing.weight), str(error), schema=True)
        return
    if weight.sign() < 0:
        yield FieldError(path, str(sharing.weight), NEGATIVE)
    elif weight.sign() > 0 and not weight > _LEAST_WEIGHT:
        yield FieldError(path, str(sharing.weight), "the weight must be 0, or greater than 1n")


def _checks(
    spec: ClusterQueueSpec, before: ClusterQueueSpec | None, gates: ValidationGates
) -> Iterator[FieldError]:
    known = _flavors(spec)
    supported = supported_values(known)
    tolerated: set[tuple[str, frozenset[str]]] = set()
    if before is not None and not gates.reject_updates_to_cq_with_invalid_on_flavors:
        same = _flavors(before) == known
        tolerated = {_checked(rule) for rule in _rules(before)} if same else set()
    for index, rule in enumerate(_rules(spec)):
        if _checked(rule) in tolerated:
            continue
        for position, flavor in enumerate(rule.on_flavors):
            if flavor not in known:
                where = f"spec.admissionChecksStrategy.admissionChecks[{index}]"
                path = f"{where}.onFlavors[{position}]"
                yield FieldError(path, flavor, supported, "NotSupported")


def _rules(spec: ClusterQueueSpec) -> tuple[AdmissionCheckRule, ...]:
    strategy = spec.admission_checks_strategy
    return () if strategy is None else strategy.admission_checks


def _checked(rule: AdmissionCheckRule) -> tuple[str, frozenset[str]]:
    return rule.name, frozenset(rule.on_flavors)


def _flavors(spec: ClusterQueueSpec) -> frozenset[str]:
    return frozenset(flavor.name for group in spec.resource_groups for flavor in group.flavors)


def _concurrent_admission(spec: ClusterQueueSpec) -> Iterator[FieldError]:
    policy = spec.concurrent_admission_policy
    if policy is None:
        return
    path, count = "spec.resourceGroups", len(spec.resource_groups)
    if spec.queueing_strategy == "StrictFIFO":
        message = (
            "StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined"
        )
        yield FieldError("spec.queueingStrategy", spec.queueing_strategy, message)
    if count != 1:
        message = "must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined"
        yield FieldError(path, count, message)
    elif len(spec.resource_groups[0].flavors) > _MOST_VARIANTS:
        message = f"must be {_MOST_VARIANTS} at most when ConcurrentAdmissionPolicy is defined"
        yield FieldError(f"{path}[0].flavors", len(spec.resource_groups[0].flavors), message)
    constraints, mode = policy.migration.constraints, policy.migration.mode
    where = "spec.concurrentAdmissionPolicy.migration.constraints"
    if constraints is None:
        return
    if mode not in {"", "TryPreferredFlavors"}:
        message = f'may only be set when migration.mode is "TryPreferredFlavors" (got "{mode}")'
        yield FieldError(where, "", message, "Forbidden")
    last = constraints.last_acceptable_flavor_name
    if last and last not in _flavors(spec):
        yield FieldError(f"{where}.lastAcceptableFlavorName", last, "", "NotFound")


def _exceeds(limit: QuantityText, nominal: QuantityText) -> bool:
    try:
        return parse_quantity(limit) > parse_quantity(nominal)
    except QuantityError:
        return False

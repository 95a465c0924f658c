"""What a new job can expect of its queue, as a warning: whether it would start, and if not, why.

The same for a dry run and a real creation; nothing is written. Where the snapshot of the queues
is not sufficient, there is no warning.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isinf
from typing import Final

import msgspec

from policyd.admission.submissions import Submission
from policyd.alloc.reasons import OverCapacity
from policyd.alloc.workload import QueuedPodSet, QueuedWorkload
from policyd.api.kueue import Workload
from policyd.api.kueue.names import PRIORITY_CLASS
from policyd.api.meta import ObjectMeta
from policyd.devices.extended import is_extended_resource
from policyd.errors import did_you_mean
from policyd.forecast.correction import Interval
from policyd.jobs.base import queue_name
from policyd.jobs.kinds.ray_cluster import MOST_POD_SETS
from policyd.jobs.pods import group_name
from policyd.jobs.workload import Priority, new_spec
from policyd.snapshot.dry_run import (
    AdmissionDryRun,
    DryRunResult,
    NeverFits,
    TakenQuota,
    WouldStart,
    WouldWait,
)
from policyd.snapshot.rules import BudgetRule, LocalQueueRule, QueueRules
from policyd.status.quantities import format_amount
from policyd.status.remedies import Shortfall
from policyd.workload.held_quota import pods_ask_for_gpus
from policyd.workload.pod_set_values import pod_set_values, rules_of_snapshot

LONGEST: Final = 256
"""Characters of a warning: the API server cuts all of them where they have more than 4,096."""
MOST_NAMED: Final = 3
MOST_RESOURCES: Final = 100
"""Resources that a pod requests: the time of a plan grows with them."""
_UID: Final = "/"
"""Of a workload that does not exist yet."""

Planned = Callable[[QueuedWorkload, DryRunResult], None]


def unheeded(_workload: QueuedWorkload, _result: DryRunResult) -> None:
    """Do nothing with a result."""


def key_of(submission: Submission) -> str:
    """Return what snapshots call a job: `namespace/name`, of the group of a pod if it has one."""
    metadata = submission.metadata
    return f"{metadata.namespace}/{group_name(metadata) or metadata.name}"


def verdict(
    dry_run: AdmissionDryRun,
    submission: Submission,
    *,
    namespace_labels: Mapping[str, str],
    now: float,
    planned: Planned = unheeded,
) -> str:
    """Say what a job can expect; "" if that is not known.

    Args:
        dry_run: How the queues are.
        submission: The job.
        namespace_labels: Of its namespace.
        now: Seconds since the epoch.
        planned: Called with the job and with what becomes of it, if that is known.
    """
    name, namespace = queue_name(submission.metadata), submission.metadata.namespace
    local = dry_run.local_queue(namespace, name)
    if local is None:
        text = _missing(name, namespace, dry_run.local_queues(namespace))
    else:
        text = (
            _closed(dry_run, local, namespace_labels)
            or _held_by_budget(dry_run.rules, submission, local)
            or _too_many(submission)
            or _planned(dry_run, submission, local, now, planned)
        )
        text = _with_budget(text, dry_run.rules, submission, local)
    return _bounded(text and f"{submission.about}{text}")


def _missing(name: str, namespace: str, there: Sequence[str]) -> str:
    has = f"namespace {namespace} has {_listed(there)}" if there else f"{namespace} has none"
    near = did_you_mean(name, there)
    hint = f" ({near})" if near else ""
    return f"would wait: there is no LocalQueue {name} yet; {has}{hint}"


def _closed(dry_run: AdmissionDryRun, local: LocalQueueRule, labels: Mapping[str, str]) -> str:
    """Say why a LocalQueue takes no workloads of a namespace at present; "" if it does."""
    rule, use = dry_run.queue(local.cluster_queue), dry_run.status(local.cluster_queue)
    if rule is None or use is None:
        return (
            f"would wait: ClusterQueue {local.cluster_queue} of LocalQueue {local.name} does not"
            " exist"
        )
    if not local.open:
        return f"would wait: LocalQueue {local.name} is stopped"
    if not use.active:
        return f"would wait: ClusterQueue {use.name} is not active: {use.message}"
    if rule.namespaces is None or not rule.namespaces.matches(labels):
        return (
            f"would wait: ClusterQueue {use.name} takes no workloads of namespace"
            f" {local.namespace}: its namespaceSelector does not match"
        )
    return ""


def _held_by_budget(rules: QueueRules, submission: Submission, local: LocalQueueRule) -> str:
    """Say that a budget is used up which holds a job; "" if none does."""
    found = (each for each in _budgets(rules, submission, local) if each.held)
    return next((f"would wait: {each.message}" for each in found), "")


def _too_many(submission: Submission) -> str:
    """Say that a job has more pod sets than a workload can have; "" if it has not."""
    count = len(submission.pod_sets)
    if count <= MOST_POD_SETS:
        return ""
    return f"can never start: it has {count} pod sets, and workloads have {MOST_POD_SETS} at most"


def _with_budget(
    message: str, rules: QueueRules, submission: Submission, local: LocalQueueRule
) -> str:
    """Add how far the budgets of a job's queues are used up."""
    used = (each for each in _budgets(rules, submission, local) if not each.held)
    return "; ".join(filter(None, (message, *(each.message for each in used))))


def _budgets(
    rules: QueueRules, submission: Submission, local: LocalQueueRule
) -> Sequence[BudgetRule]:
    if not rules.budgets or not pods_ask_for_gpus(submission.pod_sets):
        return ()
    names = {local.cluster_queue, f"{local.namespace}/{local.name}"}
    return [each for each in rules.budgets if each.queue in names]


def _planned(
    dry_run: AdmissionDryRun,
    submission: Submission,
    local: LocalQueueRule,
    now: float,
    planned: Planned,
) -> str:
    rules, made = dry_run.rules, _made(dry_run.rules, submission)
    if made is None:
        return ""
    submission = made
    priority = _priority(rules, submission)
    if isinstance(priority, str):
        return priority
    workload = Workload(
        metadata=ObjectMeta(name="", namespace=local.namespace),
        spec=new_spec(
            submission.metadata, pod_sets=submission.pod_sets, priority=Priority(value=priority)
        ),
    )
    given = rules_of_snapshot(rules, local.namespace)
    pod_sets, objection = pod_set_values(workload, {}, given)
    if objection is not None:
        return f"would wait: {objection.message}"
    queued = QueuedWorkload(
        key=key_of(submission),
        uid=_UID,
        cluster_queue=local.cluster_queue,
        local_queue=f"{local.namespace}/{local.name}",
        priority=priority,
        queued_at=now,
        pod_sets=pod_sets,
    )
    is_large = any(len(each.requests) > MOST_RESOURCES for each in pod_sets)
    unknown = is_large or _may_be_backed(dry_run, local.cluster_queue, pod_sets)
    result = None if unknown else dry_run.result(queued)
    if result is None:
        return ""
    start = dry_run.start_of(queued, result, now=now)
    planned(queued, result)
    if start is None:
        return result_text(result, local.cluster_queue)
    low, median, high = (max(0.0, each - now) for each in (start.low, start.median, start.high))
    forecast = Interval(low=low, median=median, high=high)
    return result_text(result, local.cluster_queue, forecast)


def _may_be_backed(dry_run: AdmissionDryRun, queue: str, pod_sets: Iterable[QueuedPodSet]) -> bool:
    """Tell whether device classes may back requests that a queue does not cover.

    These count as other resources, which only the controller knows.
    """
    rule = dry_run.queue(queue)
    if rule is None or not dry_run.rules.resources.device_class_mappings:
        return False
    covered = {name for group in rule.spec.groups for name in group.resources}
    asked = {name for each in pod_sets for name in each.requests}
    return any(is_extended_resource(name) for name in asked - covered)


def _made(rules: QueueRules, submission: Submission) -> Submission | None:
    """Return a job with its pods; None if the object that it is made from is not known."""
    if submission.made is None:
        return submission
    found = rules.bases.get(submission.basis)
    if found is None:
        return None
    try:
        pod_sets = submission.made(found)
    except (msgspec.ValidationError, AttributeError, TypeError):
        return None  # what the job lays over it does not fit
    if not pod_sets or any(each.template.spec.resource_claims for each in pod_sets):
        return None
    return replace(submission, pod_sets=pod_sets)


def _priority(rules: QueueRules, submission: Submission) -> int | str:
    """Return the priority of a job, or say which class is missing."""
    own = submission.metadata.labels.get(PRIORITY_CLASS)
    if own:
        found = rules.priorities.get(own)
        there = _listed(sorted(rules.priorities))
        missing = f"would wait: there is no WorkloadPriorityClass {own}; there is {there}"
        return missing if found is None else found
    of_pods = (each.template.spec.priority_class_name for each in submission.pod_sets)
    name = next(filter(None, (submission.named, *of_pods)), rules.default_priority)
    known = rules.pod_priorities.get(name) if name else 0
    return f"would wait: there is no PriorityClass {name}" if known is None else known


def result_text(result: DryRunResult, queue: str, forecast: Interval | None = None) -> str:
    """Say what would become of a job, given its ClusterQueue and when it is forecast to start."""
    match result:
        case WouldStart():
            return _start_text(result, queue)
        case NeverFits():
            return _never_text(result, queue)
        case WouldWait(ahead=ahead, shortfalls=shortfalls, message=message):
            place = "" if ahead is None else f"{ordinal(ahead + 1)} in {queue}"
            why = message
            if shortfalls:
                why = f"{_missing_text(shortfalls)} needed"
            elif not why:
                why = "where those before it go first"
            text = f"would wait: {', '.join(filter(None, (place, why)))}"
            return f"{text}{forecast_clause(forecast)}"


def _start_text(starts: WouldStart, queue: str) -> str:
    devices = _devices_first(starts.quota)
    parts = []
    for each in devices:
        part = f"{format_amount(each.resource, each.amount)} {each.resource} of {each.flavor}"
        if each is devices[0]:
            part += f" from {queue}"
        if each.borrowed:
            borrowed = format_amount(each.resource, each.borrowed)
            part += f", {borrowed} of them borrowed from {starts.lender}"
        parts.append(part)
    if not parts:
        parts = [f"it requests no quota of {queue}"]
    start = "would get quota now" if starts.checks else "would start now"
    conditions = []
    if starts.victims:
        conditions.append(
            "once a workload is preempted"
            if starts.victims == 1
            else f"once {starts.victims} workloads are preempted"
        )
    if starts.placed:
        conditions.append("if its nodes have room")
    noun = "check" if len(starts.checks) == 1 else "checks"
    then = f"; then it has to pass {noun} {_listed(starts.checks)}" if starts.checks else ""
    return f"{' '.join((start, ' and '.join(conditions))).strip()}: {', '.join(parts)}{then}"


def _never_text(never: NeverFits, queue: str) -> str:
    over = [each for each in never.shortfalls if isinstance(each, OverCapacity)]
    if not over:
        return f"can never start in {queue}: {never.message}"
    parts = [
        f"{format_amount(each.resource, each.requested + each.assumed)} {each.resource} of"
        f" {each.flavor} requested, {format_amount(each.resource, each.capacity)} is all that it"
        " can ever have"
        for each in over
    ]
    return f"can never start in {queue}: {', '.join(parts)}"


def _missing_text(shortfalls: Sequence[Shortfall]) -> str:
    sums: dict[str, int] = {}
    for each in shortfalls:
        missing = (
            each.assumed + each.requested - each.capacity
            if isinstance(each, OverCapacity)
            else each.missing
        )
        sums[each.resource] = max(sums.get(each.resource, 0), missing)
    names = sorted(sums, key=lambda name: ("/" not in name, name))
    return ", ".join(f"{format_amount(name, sums[name])} more {name}" for name in names)


def _devices_first(quota: Sequence[TakenQuota]) -> list[TakenQuota]:
    """Return the devices that a job gets, or all if there are none; of each flavor one amount."""
    some = [each for each in quota if "/" in each.resource] or list(quota)
    return sorted(some, key=lambda each: (each.resource, each.flavor))


def forecast_clause(forecast: Interval | None) -> str:
    """Say when a job is forecast to start; "" if that is not known, or no end is in sight."""
    if forecast is None or isinf(forecast.high):
        return ""
    low, median, high = (
        max(0, round(each / 60)) for each in (forecast.low, forecast.median, forecast.high)
    )
    between = "" if low == high else f" ({low}–{high} min)"  # noqa: RUF001
    return f"; start in {median} min{between}"


def ordinal(number: int) -> str:
    """Write a place: `1st`, `2nd`, `11th`."""
    last = number % 10 if number % 100 not in {11, 12, 13} else 0
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(last, 'th')}"


def _listed(names: Sequence[str]) -> str:
    """List names, not too many of them."""
    more = len(names) - MOST_NAMED
    shown = ", ".join(names[:MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown or "none"


def _bounded(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"

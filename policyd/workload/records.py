"""What a Workload says of itself: its times and waits, where it ran, who preempted it.

A Workload has one condition of each type. So of several evictions only the last has a time; of the
others there is a number.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, Literal

from msgspec.structs import replace

from policyd.alloc.amount import total_of
from policyd.alloc.value import Value
from policyd.api import kueue
from policyd.api.kueue.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    IS_GROUP_WORKLOAD,
    PODS_READY,
    PREEMPTED,
    QUOTA_RESERVED,
)
from policyd.api.kueue.topology_assignment import decode_topology
from policyd.api.meta import Condition, ObjectMeta, condition_true, find_condition, rfc3339
from policyd.api.names import OWNER
from policyd.api.pod_requests import amounts, pod_requests
from policyd.api.quantity import QuantityError
from policyd.api.schema import QuantityText
from policyd.jobs.base import controller_of
from policyd.jobs.kinds.registry import parent_of_owner
from policyd.jobs.lifecycle import has_quota, is_finished

RecordState = Literal["Pending", "QuotaReserved", "Admitted", "Stopping", "Inactive", "Finished"]

_PREEMPTOR: Final = re.compile(r"\(UID: ([^,()]+),")
_PREEMPTOR_PATH: Final = re.compile(r"; preemptor path: ([^;\s]+)")


class WorkloadTimes(Value, frozen=True, rename="camel"):
    """When a Workload came how far, as conditions that are true say.

    Attributes:
        created: When it was made.
        reserved: Since when it has quota.
        admitted: When it was last admitted.
        ready: Since when its pods are ready.
        finished: When it ended.
        waited_seconds: How long it waited in all, without its runs before evictions.
        ran_seconds: How long it was admitted in all; None if never.
    """

    created: str | None = None
    reserved: str | None = None
    admitted: str | None = None
    ready: str | None = None
    finished: str | None = None
    waited_seconds: int = 0
    ran_seconds: int | None = None


class WorkloadRecord(Value, frozen=True, rename="camel"):
    """What a Workload says of its time in the queue and after it.

    Attributes:
        job: `Kind/name` of its job; that of the Workload if it stands for itself.
        owner: The person that a label names; "" if none does.
        state: How far it has come.
        outcome: The reason that it finished with, or is pending with.
        message: That in a sentence.
        flavors: Those that it has, or had.
        domains: Numbers of pods by node, or by another domain where a topology placed them.
        requests: What it requests in total, or was admitted with.
        evictions: How often it was evicted, by reason.
        preempted_by: The uid of the workload for which it was preempted last; "" if for none.
        preemptor_path: Where that one queued.
        cluster: The cluster that it was sent to, by MultiKueue; "" if it runs in this one.
        nominated_clusters: Clusters that it may be sent to, and waits for.
    """

    namespace: str
    job: str
    workload: str
    uid: str
    owner: str
    local_queue: str
    cluster_queue: str
    priority: int
    priority_class: str
    state: RecordState
    times: WorkloadTimes
    outcome: str = ""
    message: str = ""
    flavors: tuple[str, ...] = ()
    domains: Mapping[str, int] = {}
    requests: Mapping[str, int] = {}
    evictions: Mapping[str, int] = {}
    preempted_by: str = ""
    preemptor_path: str = ""
    cluster: str = ""
    nominated_clusters: tuple[str, ...] = ()


class PodSetRecord(Value, frozen=True, rename="camel"):
    """A pod set of a Workload.

    Attributes:
        count: How many pods it asks for.
        admitted: With how many it was admitted; None if it was not.
        requests: Of one pod.
        flavors: By resource.
        topology: How close together its pods are to be; "" if anywhere.
        domains: How many of them a topology placed where.
    """

    name: str
    count: int
    admitted: int | None = None
    requests: Mapping[str, int] = {}
    flavors: Mapping[str, str] = {}
    topology: str = ""
    domains: Mapping[str, int] = {}


class ConditionRecord(Value, frozen=True, rename="camel"):
    """A condition of a Workload, or the state of one of its admission checks."""

    type: str
    status: str
    reason: str
    message: str
    since: str | None


def record_of(workload: kueue.Workload, *, now: float) -> WorkloadRecord:
    """Return what a Workload says of itself; `now` is in seconds since the epoch."""
    metadata, spec, status = workload.metadata, workload.spec, workload.status
    state = _state(workload)
    class_ = spec.priority_class_ref
    record = WorkloadRecord(
        namespace=metadata.namespace,
        job=job_of(metadata) or f"Workload/{metadata.name}",
        workload=metadata.name,
        uid=metadata.uid,
        owner=owner_of(workload),
        local_queue=spec.queue_name,
        cluster_queue="" if status.admission is None else status.admission.cluster_queue,
        priority=spec.priority or 0,
        priority_class="" if class_ is None else f"{class_.kind}/{class_.name}",
        state=state,
        times=_times(workload, now),
        evictions=_evictions(workload),
        preempted_by=preemptor_of(workload),
        preemptor_path=preemptor_path(workload),
        cluster=status.cluster_name or "",
        nominated_clusters=status.nominated_cluster_names,
        requests=_requests(workload),
    )
    if status.admission is not None:
        assigned = status.admission.pod_set_assignments
        record = replace(
            record,
            flavors=tuple(sorted({name for each in assigned for name in each.flavors.values()})),
            domains=total_of(*map(_domains, assigned)),
        )
    condition = (
        why_inactive(status.conditions)
        if state == "Inactive"
        else find_condition(status.conditions, _CONDITIONS[state])
    )
    return (
        record
        if condition is None
        else replace(record, outcome=condition.reason, message=condition.message)
    )


_CONDITIONS: Final[Mapping[RecordState, str]] = {
    "Pending": QUOTA_RESERVED,
    "QuotaReserved": ADMITTED,
    "Admitted": ADMITTED,
    "Stopping": EVICTED,
    "Finished": FINISHED,
}
"""The condition that tells of each state but `Inactive`."""


def why_inactive(conditions: tuple[Condition, ...]) -> Condition | None:
    """Return the condition that tells why a workload is deactivated; None for none.

    That of its eviction says more, if it was evicted by that and not for another reason before.
    """
    found = (find_condition(conditions, kind) for kind in (EVICTED, QUOTA_RESERVED))
    return next((each for each in found if each and each.reason.startswith("Deactivated")), None)


def pod_set_records(workload: kueue.Workload) -> Iterator[PodSetRecord]:
    """Yield the pod sets of a Workload with what was assigned to each."""
    admission = workload.status.admission
    given = {} if admission is None else {e.name: e for e in admission.pod_set_assignments}
    for each in workload.spec.pod_sets:
        assigned = given.get(each.name)
        record = PodSetRecord(
            name=each.name,
            count=each.count,
            requests=_of_one_pod(each),
            topology=_topology(each.topology_request),
        )
        if assigned is not None:
            record = replace(
                record,
                admitted=each.count if assigned.count is None else assigned.count,
                flavors=assigned.flavors,
                domains=_domains(assigned),
            )
        yield record


def condition_records(workload: kueue.Workload) -> Iterator[ConditionRecord]:
    """Yield the conditions of a Workload, in the order in which they changed last."""
    found = [
        ConditionRecord(c.type, c.status, c.reason, c.message, _since(c.last_transition_time))
        for c in workload.status.conditions
    ]
    yield from sorted(found, key=lambda each: each.since or "")


def check_records(workload: kueue.Workload) -> Iterator[ConditionRecord]:
    """Yield the admission checks of a Workload."""
    for each in workload.status.admission_checks:
        since = _since(each.last_transition_time)
        yield ConditionRecord(each.name, each.state, "", each.message, since)


def job_of(workload: ObjectMeta) -> str:
    """Return `Kind/name` of the job that a Workload stands for; "" if it stands for itself.

    A group of pods stands for the object that makes them, such as a StatefulSet. Of kinds of one
    name, that of another group than the first has its group: `Job.batch.volcano.sh`.

    Args:
        workload: The metadata of the Workload.
    """
    is_group = workload.annotations.get(IS_GROUP_WORKLOAD) == "true"
    owner = None if is_group else controller_of(workload)
    if owner is not None:
        return f"{owner.kind}/{owner.name}"
    parents = ((parent_of_owner(each), each.name) for each in workload.owner_references)
    return next((f"{kind.key}/{name}" for kind, name in parents if kind is not None), "")


def owner_of(workload: kueue.Workload) -> str:
    """Return the person that a Workload or its pods name as their owner; "" if none is named."""
    metadata = [workload.metadata, *(each.template.metadata for each in workload.spec.pod_sets)]
    for each in metadata:
        named = each.labels.get(OWNER) or each.annotations.get(OWNER)
        if named:
            return named
    return ""


def preemptor_of(workload: kueue.Workload) -> str:
    """Return the uid of the workload for which another was preempted last; "" if for none.

    It is in the message of the condition, also after the victim got quota again.
    """
    preempted = find_condition(workload.status.conditions, PREEMPTED)
    found = None if preempted is None else _PREEMPTOR.search(preempted.message)
    return "" if found is None else found[1]


def preemptor_path(workload: kueue.Workload) -> str:
    """Return where that workload queued, from the top of its tree; "" if it is not known."""
    preempted = find_condition(workload.status.conditions, PREEMPTED)
    found = None if preempted is None else _PREEMPTOR_PATH.search(preempted.message)
    return "" if found is None else found[1]


def preemptor_text(path: str) -> str:
    """Return what a preemptor is called of which only the path is known."""
    queue = path.rpartition("/")[2]
    return f"a workload of ClusterQueue {queue}" if queue else "a workload that is gone"


def _state(workload: kueue.Workload) -> RecordState:
    if is_finished(workload):
        return "Finished"
    if has_quota(workload):
        conditions = workload.status.conditions
        if condition_true(conditions, EVICTED):
            return "Stopping"
        return "Admitted" if condition_true(conditions, ADMITTED) else "QuotaReserved"
    return "Pending" if workload.spec.active else "Inactive"


def _times(workload: kueue.Workload, now: float) -> WorkloadTimes:
    """Return when a Workload came how far, and for how long it waited and ran."""
    created = workload.metadata.creation_timestamp
    start = now if created is None else created.timestamp()
    admitted, finished = _moment(workload, ADMITTED), _moment(workload, FINISHED)
    earlier = workload.status.accumulated_past_execution_time_seconds
    end = now if finished is None else finished
    runs = None if admitted is None else max(0.0, end - admitted)
    ran = None if runs is None and earlier is None else (runs or 0.0) + (earlier or 0)
    return WorkloadTimes(
        created=None if created is None else rfc3339(start),
        reserved=_text(_moment(workload, QUOTA_RESERVED)),
        admitted=_text(admitted),
        ready=_text(_moment(workload, PODS_READY)),
        finished=_text(finished),
        waited_seconds=int(max(0.0, end - start - (ran or 0.0))),
        ran_seconds=None if ran is None else int(ran),
    )


def _moment(workload: kueue.Workload, kind: str) -> float | None:
    """Return since when a condition is true; None if it is not."""
    found = find_condition(workload.status.conditions, kind)
    if found is None or found.status != "True" or found.last_transition_time is None:
        return None
    return found.last_transition_time.timestamp()


def _since(moment: datetime | None) -> str | None:
    return None if moment is None else _text(moment.timestamp())


def _text(moment: float | None) -> str | None:
    return None if moment is None else rfc3339(moment)


def _evictions(workload: kueue.Workload) -> dict[str, int]:
    stats = workload.status.scheduling_stats
    found: dict[str, int] = {}
    for each in () if stats is None else stats.evictions:
        cause = f"{each.reason}DueTo{each.underlying_cause}"
        name = cause if each.underlying_cause else each.reason
        found[name] = found.get(name, 0) + each.count
    return found


def _requests(workload: kueue.Workload) -> dict[str, int]:
    """Return what a Workload was admitted with; before that, what its pod sets request."""
    admission = workload.status.admission
    if admission is not None:
        return total_of(*(_read(e.resource_usage) for e in admission.pod_set_assignments))
    return total_of(
        *(
            {name: amount * each.count for name, amount in _of_one_pod(each).items()}
            for each in workload.spec.pod_sets
        )
    )


def _read(quantities: Mapping[str, QuantityText]) -> dict[str, int]:
    try:
        return dict(amounts(quantities))
    except QuantityError:
        return {}


def _of_one_pod(pod_set: kueue.PodSet) -> dict[str, int]:
    try:
        return dict(pod_requests(pod_set.template.spec))
    except QuantityError:
        return {}


def _domains(assigned: kueue.PodSetAssignment) -> dict[str, int]:
    topology = assigned.topology_assignment
    if topology is None:
        return {}
    return total_of(*({"/".join(values): pods} for values, pods in decode_topology(topology)))


def _topology(asked: kueue.TopologyRequest | None) -> str:
    if asked is None:
        return ""
    if asked.required:
        return f"one {asked.required}"
    return f"one {asked.preferred} if possible" if asked.preferred else ""

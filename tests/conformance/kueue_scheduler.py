"""Kueue's tables of scheduling cycles: objects in, one cycle, objects and events out.

A cycle is planned by the core, committed, and carried out by the controller's own reconciler
against an API server in memory, so that statuses and events are those that users see.
"""

import asyncio
import logging
import re

import msgspec
import structlog
from msgspec.structs import replace

from policyd.alloc.cycle import plan_cycle
from policyd.api.kueue import Workload
from policyd.api.quantity import parse_quantity
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.workload_reconciler import WorkloadReconciler
from policyd.controller.writes import Writes
from policyd.jobs.lifecycle import is_finished
from policyd.kube.errors import ApiError
from policyd.testing.objects import refusal
from policyd.workload.conversion import admission_object
from tests.conformance.kueue_objects import (
    DEFAULT_UID,
    Cluster,
    decode,
    keys_of,
    run_table,
    settings_of,
)

MERGE_PATCH = "WorkloadRequestUseMergePatch"

TRIES = 2
"""The controller tries again what was refused; the second time without the cycle's decision."""

BEFORE = "1970-01-01T00:00:00Z"
"""When objects were created of which the tables do not say it."""

ADDED = re.compile(r"(; (\S+ )?held by [^;]*)*(; to help it: .*)?$")
GIVEN_UID = re.compile(rf"{DEFAULT_UID}-[^,;)]*")
WAITED = re.compile(r"wait time since queued was \d+s")

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


class Events:
    """Remembers the events that are recorded."""

    def __init__(self):
        self.recorded = []

    def record(self, about, *, kind, reason, message):
        key = f"{about.namespace}/{about.name}"
        self.recorded.append({"Key": key, "EventType": kind, "Reason": reason, "Message": message})


class Scheduler(Cluster):
    """A cluster in which cycles are run, and carried out."""

    def __init__(self, settings, **options):
        super().__init__(settings, **options)
        pace, metrics = self.clock.pace(), ControllerMetrics()
        self.events = Events()
        self.plan = None
        writes = Writes(self.client, self.events, leading=lambda: True, pace=pace)
        self.reconciler = WorkloadReconciler(
            self.cache, writes, add=lambda _key, _rank: None, metrics=metrics
        )

    def put(self, *bodies):
        for body in bodies:
            mirror = self._mirror.get(body.get("kind"))
            if mirror is not None:
                uid = decode(body, mirror.into).metadata.uid
                metadata = {"creationTimestamp": BEFORE, **body["metadata"], "uid": uid}
                whole = {**self.stored(body), "metadata": metadata}
                stored = self.client.store.put(mirror.resource, whole)
                version = int(stored["metadata"]["resourceVersion"])
                self.see(mirror, decode(whole, mirror.into, version=version))

    def schedule(self):
        """Run a cycle, and whatever it decides."""
        self.plan = plan_cycle(self.state)
        self.reconciler.cycles.cycle()
        asyncio.run(self._carry_out())

    async def _carry_out(self):
        for key, _ in self.reconciler.cycles.hand_over():
            for _ in range(TRIES):
                try:
                    await self.reconciler.reconcile(key)
                    break
                except ApiError:
                    continue


def run_schedule(path):
    """Run one cycle, and compare everything that Kueue's test compares."""
    return run_table(path, _one_cycle)


def _one_cycle(case):
    scheduler = Scheduler(settings_of(case))
    for kind in ("Namespace", "ResourceFlavor", "ClusterQueue", "LocalQueue", "Cohort"):
        scheduler.put_all(case, kind)
    scheduler.put_all(case)
    if case.input.get("admissionError"):
        error = case.input["admissionError"]
        refused = refusal(409, "Conflict", error.get("$error", ""))
        scheduler.client.fail(refused, verb="patch", times=1_000)
    scheduler.schedule()
    checks = (
        ("wantAssignments", assignments),
        ("wantLeft", lambda s: pending(s, parked=False)),
        ("wantInadmissibleLeft", lambda s: pending(s, parked=True)),
        ("wantSkippedPreemptions", lambda s: skipped(s, case)),
        ("wantPreemptionTargetRecomputations", lambda s: recomputed(s, case)),
    )
    for column, found in checks:
        if column in case.want:
            wanted, got = plain(case.want[column] or {}), found(scheduler)
            if wanted != got:
                return f"{column}: expected {wanted}, got {got}"
    return statuses(scheduler, case) or events(scheduler, case)


def plain(value):
    """Make lists sorted, and admissions comparable."""
    match value:
        case {"clusterQueue": str(), "podSetAssignments": _}:
            return comparable(value)
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case list():
            return sorted(value)
    return value


def comparable(admission):
    """Return an admission with quantities as numbers."""
    return {
        "queue": admission["clusterQueue"],
        "pod_sets": [
            (
                each.get("name", ""),
                each.get("count", 0),
                tuple(sorted((each.get("flavors") or {}).items())),
                tuple(
                    sorted(
                        (r, parse_quantity(q)) for r, q in (each.get("resourceUsage") or {}).items()
                    )
                ),
            )
            for each in admission.get("podSetAssignments") or ()
        ],
    }


def assignments(scheduler):
    """Return who holds what.

    The tables run no controller that takes finished workloads out of the cache.
    """
    held = {
        key: comparable(msgspec.to_builtins(admission_object(holding.admission)))
        for queue in scheduler.state.queues.values()
        for key, holding in queue.holdings.items()
    }
    finished = {
        workload.metadata.key: comparable(msgspec.to_builtins(workload.status.admission))
        for workload in scheduler.mirrors.workloads
        if is_finished(workload) and workload.status.admission is not None
    }
    return held | finished


def pending(scheduler, *, parked):
    """Return who waits, by queue."""
    found = {}
    for queue in scheduler.state.queues.values():
        if queue.spec is None:
            continue
        keys = sorted(keys_of(queue.pending, parked=parked))
        if keys:
            found[queue.name] = keys
    return found


def skipped(scheduler, case):
    """Count preemptions that had to wait for others, for the queues that the table names."""
    wanted = case.want["wantSkippedPreemptions"] or {}
    return {queue: scheduler.plan.skipped.count(queue) for queue in wanted}


def recomputed(scheduler, case):
    """Count what became of victims chosen again, as far as the table says it."""
    wanted = case.want["wantPreemptionTargetRecomputations"] or {}
    found = scheduler.plan.recomputed
    return {q: {r: found.count((q, r)) for r in results} for q, results in wanted.items()}


def statuses(scheduler, case, column="wantWorkloads"):
    """Compare the statuses of all workloads with what is wanted."""
    merged = case.gates.get(MERGE_PATCH) and case.want.get("wantWorkloadUseMergePatch")
    listed = [decode(body, Workload) for body in merged or case.want.get(column) or ()]
    there, keys = ({w.metadata.key for w in each} for each in (scheduler.mirrors.workloads, listed))
    if listed and there != keys:
        return f"workloads: expected {sorted(keys)}, got {sorted(there)}"
    for wanted in listed:
        got = scheduler.mirrors.workloads.get(wanted.metadata.key)
        want, have = (msgspec.to_builtins(comparable_status(each.status)) for each in (wanted, got))
        for field in sorted({*want, *have}):
            if want.get(field) != have.get(field):
                key = wanted.metadata.key
                return f"{key} {field}: expected {want.get(field)}, got {have.get(field)}"
    return ""


def comparable_status(status):
    """Return a status as it is compared: no order of conditions, and nothing of our own."""
    conditions = sorted(
        (replace(c, observed_generation=0, message=words(c.message)) for c in status.conditions),
        key=lambda c: c.type,
    )
    checks = tuple(replace(c, last_transition_time=None) for c in status.admission_checks)
    requests = tuple(
        replace(each, resources={r: parse_quantity(q) for r, q in each.resources.items()})
        for each in status.resource_requests
    )
    admission = status.admission
    if admission is not None:
        pod_sets = tuple(
            replace(
                each, resource_usage={r: parse_quantity(q) for r, q in each.resource_usage.items()}
            )
            for each in admission.pod_set_assignments
        )
        admission = replace(admission, pod_set_assignments=pod_sets)
    return replace(
        status,
        conditions=tuple(conditions),
        admission_checks=checks,
        resource_requests=requests,
        admission=admission,
    )


def events(scheduler, case):
    """Compare the events, if any are wanted."""
    wanted = case.want.get("wantEvents") or []
    if not wanted:
        return ""
    with_messages = not case.input.get("eventCmpOpts")
    want = sorted(recorded(event, with_messages) for event in wanted)
    got = sorted(recorded(event, with_messages) for event in scheduler.events.recorded)
    return "" if want == got else f"events: expected {want}, got {got}"


def recorded(event, with_message):
    message = event.get("Message", "") if with_message else ""
    return event["Key"], event["EventType"], event["Reason"], words(message)


def words(message):
    """Return a message without what the tables cannot know, or do not say."""
    return WAITED.sub("", GIVEN_UID.sub("", ADDED.sub("", message)))

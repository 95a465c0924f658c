"""Kueue's tables of scheduling cycles in which topologies decide: who goes where."""

import msgspec

from policyd.api.kueue import Admission
from policyd.api.kueue.names import ADMITTED
from policyd.api.meta import condition_true
from policyd.api.quantity import parse_quantity
from policyd.controller.topology.topologies import NodeChanges
from policyd.controller.watch.workload_values import needs_second_pass
from policyd.jobs.lifecycle import is_finished
from policyd.testing.objects import refusal
from policyd.workload.conversion import admission_object
from tests.conformance.kueue_objects import convert, decode, run_table, settings_of
from tests.conformance.kueue_scheduler import Scheduler, events, pending, plain, statuses

FIRST = (
    "Namespace",
    "Topology",
    "ResourceFlavor",
    "AdmissionCheck",
    "Node",
    "Pod",
    "ClusterQueue",
    "LocalQueue",
    "Cohort",
)
LIBRARY = "SchedulerLibraryIntegration"


class PlacingScheduler(Scheduler):
    """A cluster with nodes, in which cycles are run and carried out."""

    def __init__(self, settings, **options):
        super().__init__(settings, **options)
        mirrors = self.mirrors
        self._mirror |= {"Node": mirrors.nodes, "Pod": mirrors.placed}
        NodeChanges(self.cache, self.clock.pace())

    def put(self, *bodies):
        for body in bodies:
            mirror = self._mirror.get(body.get("kind"))
            if mirror is not None and body["kind"] in {"Node", "Pod"}:
                self._version += 1
                mirror.wrote(decode(body, mirror.into, version=self._version))
            else:
                super().put(body)


def run_schedule(path):
    """Run one cycle, and compare who goes where, who waits, and what is told."""
    return run_table(path, _one_cycle, rule=_library)


def _library(case):
    """Leave out the simulator that Kueue takes from the scheduler's library, where switched on."""
    return "the scheduler's library" if case.gates.get(LIBRARY) else ""


def _one_cycle(case):
    scheduler = PlacingScheduler(settings_of(case))
    for kind in FIRST:
        scheduler.put_all(case, kind)
    scheduler.put_all(case, "Workload")
    placed = {
        workload.metadata.key
        for workload in scheduler.mirrors.workloads
        if condition_true(workload.status.conditions, ADMITTED)
        and not workload.status.unhealthy_nodes
    }
    if case.input.get("patchStatusErr"):
        text = case.input["patchStatusErr"].get("$error", "")
        scheduler.client.fail(refusal(409, "Conflict", text), verb="patch", times=1_000)
    if any(map(needs_second_pass, scheduler.mirrors.workloads)):
        scheduler.clock.jump(1.0)
    scheduler.schedule()
    found = {k: v for k, v in assignments(scheduler).items() if k not in placed}
    wanted = {
        key: summarize(convert(each, Admission))
        for key, each in (case.want["wantNewAssignments"] or {}).items()
    }
    if found != wanted:
        return f"assignments: expected {wanted}, got {found}"
    for column, parked in (("wantLeft", False), ("wantInadmissibleLeft", True)):
        wanted, got = plain(case.want[column] or {}), pending(scheduler, parked=parked)
        if wanted != got:
            return f"{column}: expected {wanted}, got {got}"
    return statuses(scheduler, case) or events(scheduler, case)


def run_second_pass(path):
    """Place what has its quota, whoever else must wait until what is admitted runs."""
    return run_table(path, _second_pass)


def _second_pass(case):
    scheduler = PlacingScheduler(settings_of(case, blocks_until_ready=True))
    for kind in (*FIRST, "Workload"):
        scheduler.put_all(case, kind)
    scheduler.clock.jump(1.0)
    scheduler.schedule()
    wanted = summarize(convert(case.data["observed"]["got"]["status"]["admission"], Admission))
    (found,) = assignments(scheduler).values()
    return "" if found == wanted else f"expected {wanted}, got {found}"


def run_scans(path):
    """Run some cycles, between which quota comes and goes and who waits is tried again."""
    return run_table(path, _scans)


def _scans(case):
    scheduler = PlacingScheduler(settings_of(case, fair_sharing=True))
    for kind in FIRST:
        scheduler.put_all(case, kind)
    scheduler.put_all(case, "Workload")
    for operation, arguments, _ in case.operations():
        if operation.endswith(".UpdateClusterQueue"):
            scheduler.put(arguments["cq"])
        elif operation.endswith(".schedule"):
            for queue in scheduler.state.queues:
                scheduler.state.wake(queue)
            scheduler.schedule()
    holding = scheduler.state.holding("default/pending")
    admitted = () if holding is None else holding.admission.pod_sets
    found = "".join(flavor for each in admitted for flavor in each.flavors.values())
    wanted = case.want["wantPendingFlavor"]
    return "" if found == wanted else f"expected {wanted}, got {found}"


def assignments(scheduler):
    """Return who holds what, and where."""
    held = {
        key: summarize(admission_object(holding.admission))
        for queue in scheduler.state.queues.values()
        for key, holding in queue.holdings.items()
    }
    finished = {
        workload.metadata.key: summarize(workload.status.admission)
        for workload in scheduler.mirrors.workloads
        if is_finished(workload) and workload.status.admission is not None
    }
    return held | finished


def summarize(admission):
    """Return an admission with quantities as numbers, to be compared."""
    pod_sets = [
        {
            **msgspec.to_builtins(each),
            "resourceUsage": {r: parse_quantity(q) for r, q in each.resource_usage.items()},
        }
        for each in admission.pod_set_assignments
    ]
    return {"queue": admission.cluster_queue, "pod_sets": pod_sets}

"""Kueue's tables of the parts of a cycle: order, progress, reservations, the requests of slices."""

from policyd.alloc.cluster_queue import NominatedWorkload
from policyd.alloc.cycle import in_turn, plan_cycle, reserved_charges
from policyd.alloc.flavors.assignment import (
    Assignment,
    FlavorOption,
    GroupRequests,
    GroupResult,
    Progress,
    SearchResult,
)
from policyd.alloc.flavors.options import RequestKey, replacing
from policyd.alloc.nominate import still_valid
from policyd.alloc.pending import Ticket
from policyd.alloc.plan import Admit
from policyd.alloc.reasons import Mode
from policyd.alloc.settings import Gates, QueueingSettings, UsageBasedOrder
from policyd.api.quantity import parse_quantity
from tests.conformance.kueue_flavors import admission_of
from tests.conformance.kueue_objects import NOW, Cluster, run_table, settings_of
from tests.conformance.kueue_scheduler import Scheduler, assignments, plain, statuses

SETUP = ("Namespace", "ResourceFlavor", "ClusterQueue", "LocalQueue", "Cohort")
QUOTA = "1k"


def run_order(path):
    """Sort nominated workloads without fair sharing."""
    return run_table(path, _order)


def ticket_of(workload):
    return Ticket(workload, RequestKey())


def _order(case):
    by_creation = (case.input["workloadOrdering"] or {}).get(
        "PodsReadyRequeuingTimestamp"
    ) == "Creation"
    gates = Gates.of(case.gates)
    cluster = Cluster(QueueingSettings(gates=gates, requeues_by_creation=by_creation))
    entries = []
    for each in case.input["input"]:
        ticket = ticket_of(cluster.value(each["Obj"], "queue"))
        ticket.preemptor = each.get("IsPreemptor", False)
        assignment = Assignment()
        assignment.level = (each.get("assignment") or {}).get("Borrowing", 0)
        entries.append(NominatedWorkload(ticket, None, None, assignment))
    found = [entry.ticket.workload.key for entry in in_turn(entries, gates)]
    return "" if found == case.want["wantOrder"] else f"got {found}"


def run_outdated(path):
    """Tell whether remembered progress is out of date."""
    return run_table(path, _outdated)


def _outdated(case):
    arguments = case.input["args"] or {}
    last = arguments.get("last") or {}
    remembered = Progress(
        tried=(),
        request_key=last.get("SchedulingHash", ""),
        generation=last.get("ClusterQueueGeneration", 0),
        cycle=last.get("SchedulingCycle", 0),
    )
    now = Progress(
        tried=(),
        request_key=arguments.get("currentSchedulingHash", ""),
        generation=arguments.get("currentCQGeneration", 0),
        cycle=arguments.get("currentSchedulingCycle", 0),
    )
    found = not still_valid(remembered, now, preserves=case.input["preserveProgress"])
    return "" if found == case.want["want"] else f"got {found}"


def run_unfinished(path):
    """Tell whether there are flavors left to try."""
    return run_table(path, _unfinished)


def _unfinished(case):
    tried = (case.input.get("state") or {}).get("LastTriedFlavorIdx") or ()
    assignment, option = Assignment(), FlavorOption("flavor", (), {})
    for each in tried:
        searches = [SearchResult(option, tried=place) for place in each.values()]
        assignment.add(GroupResult(GroupRequests((), (), ""), searches))
    found = assignment.unfinished
    return "" if found == case.want["wantPendingFlavors"] else f"got {found}"


def run_borrowing(path):
    """Tell whether an assignment borrows: those that do come after those that do not."""
    return run_table(path, _borrowing)


def _borrowing(case):
    level, plain_one, other = case.input["borrowing"], Assignment(), Assignment()
    other.level = level
    value = Cluster().value({"metadata": {"name": "a"}, "spec": {}}, "queue")
    entries = [NominatedWorkload(ticket_of(value), None, None, each) for each in (other, plain_one)]
    found = in_turn(entries, Gates())[0].assignment is plain_one
    return "" if found == case.want["want"] else f"got {found}"


def run_reserved(path):
    """Work out what is kept free for who has to wait."""
    return run_table(path, _reserved)


def _reserved(case):
    cluster = Cluster(settings_of(case))
    cluster.put_all(case, *SETUP)
    cluster.put_all(case, "Workload")
    state = cluster.state
    state.settle()
    tree, node = state.tree, state.queues["cq"].node
    assignment = Assignment()
    assignment.mode = Mode.FIT if case.input["assignmentMode"] == "Fit" else Mode.BLOCKED
    assignment.level = case.input["borrowing"]
    assignment.charges = {
        tree.cell(node, tuple(name.split("/", 1))): amount
        for name, amount in case.input["assignmentUsage"].items()
    }
    reserved = reserved_charges(tree, assignment)
    found = {"/".join(tree.names[cell]): amount for cell, amount in reserved.items()}
    return "" if found == case.want["wantReserved"] else f"got {found}"


def run_slices(path):
    """Work out what an assignment charges, beyond what the slice has that it replaces."""
    return run_table(path, _slices)


def _slices(case):
    cluster = Cluster(settings_of(case))
    resources = ("cpu", "memory")
    quotas = [{"name": r, "nominalQuota": QUOTA} for r in resources]
    quotas[1]["nominalQuota"] = "1Ti"
    group = {"coveredResources": resources, "flavors": [{"name": "default", "resources": quotas}]}
    cluster.put(
        {"kind": "ResourceFlavor", "metadata": {"name": "default"}},
        {
            "kind": "ClusterQueue",
            "metadata": {"name": "cq"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
    )
    cluster.state.settle()
    options = cluster.state.queues["cq"].options
    fields = case.input["fields"]
    counts = [each.get("Count", 0) for each in fields.get("PodSets") or ()]
    workload = cluster.value(case.input["args"]["wl"]["Obj"], "cq")
    requests = options.requests(workload, counts)
    old = fields.get("replaceWorkloadSlice")
    if old:
        totals = [
            {**each, "Flavors": dict.fromkeys(resources, "default")}
            for each in old.get("TotalRequests") or ()
        ]
        requests = replacing(requests, admission_of({"TotalRequests": totals}))
    charges = options.search.assign(requests).charges
    names = cluster.state.tree.names
    found = {"/".join(names[cell]): amount for cell, amount in charges.items()}
    return "" if found == case.want["want"] else f"got {found}"


def run_requeue(path):
    """Let workloads wait again whose admission came to nothing."""
    return run_table(path, _requeue)


def _requeue(case):
    scheduler = Scheduler(settings_of(case))
    scheduler.put_all(case, *SETUP)
    scheduler.put_all(case)
    before = {w.metadata.key: w.status for w in scheduler.mirrors.workloads}
    for _ in range(2):
        plan = plan_cycle(scheduler.state)
        scheduler.state.commit(plan)
        for action in plan.actions:
            if isinstance(action, Admit):
                scheduler.cache.retract(action.workload.key)
    waiting = {
        queue.name: sorted(t.workload.key for t in queue.pending.active)
        for queue in scheduler.state.queues.values()
    }
    if waiting != case.want["wantWorkloads"]:
        return f"got {waiting}"
    after = {w.metadata.key: w.status for w in scheduler.mirrors.workloads}
    return "" if after == before else f"statuses changed: {after}"


def run_progress(path):
    """Run two cycles, the second after some workloads are gone."""
    return run_table(path, _two_cycles)


def _two_cycles(case):
    scheduler = Scheduler(settings_of(case))
    scheduler.put_all(case, *SETUP)
    scheduler.put_all(case)
    scheduler.schedule()
    if failure := statuses(scheduler, case):
        return f"after the first cycle: {failure}"
    for key in case.input.get("deleteWorkloads") or ():
        scheduler.remove("Workload", key)
    for _ in range(2):
        scheduler.schedule()
    wanted, got = plain(case.want["wantAdmissionsOnSecondSchedule"] or {}), assignments(scheduler)
    return "" if wanted == got else f"expected {wanted}, got {got}"


def sharing_of(config):
    """Return the settings of admission fair sharing that Kueue's configuration stands for."""
    if not config:
        return None
    return UsageBasedOrder(
        half_life_seconds=_duration(config.get("usageHalfLifeTime")),
        sampling_seconds=_duration(config.get("usageSamplingInterval")),
    )


def _duration(text):
    return float((text or "0s").removesuffix("s"))


def run_penalty(path):
    """Tell whether a workload's requests count at once against its LocalQueue."""
    return run_table(path, _penalty)


def _penalty(case):
    sharing = sharing_of(case.input.get("afsConfig"))
    scheduler = Scheduler(settings_of(case, admission_fair_sharing=sharing))
    quota = {"name": "cpu", "nominalQuota": QUOTA}
    flavors = [{"name": "default", "resources": [quota]}]
    scope = {"admissionMode": case.input["admissionMode"]} if case.input["admissionMode"] else None
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        **({"admissionScope": scope} if scope else {}),
    }
    scheduler.put(
        {"kind": "ResourceFlavor", "metadata": {"name": "default"}},
        {"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": spec},
        {
            "kind": "LocalQueue",
            "metadata": {"name": "lq", "namespace": "ns"},
            "spec": {"clusterQueue": "cq"},
        },
        case.input["wl"],
    )
    state = scheduler.state
    state.commit(plan_cycle(state))
    found = state.history is not None and state.history.awaits("ns/lq", "ns/wl")
    return "" if found == case.want["want"] else f"got {found}"


def run_by_usage(path):
    """Run as many cycles as there are workloads, LocalQueues ordered by what they used."""
    return run_table(path, _by_usage)


def _by_usage(case):
    on = case.gates.get("AdmissionFairSharing", True)
    sharing = UsageBasedOrder(half_life_seconds=10.0, sampling_seconds=1.0)
    settings = settings_of(case, fair_sharing=on, admission_fair_sharing=sharing if on else None)
    scheduler = Scheduler(settings)
    scheduler.put_all(case, *SETUP)
    if scheduler.state.history is not None:
        for queue, used in (case.input.get("initialUsage") or {}).items():
            key = queue if "/" in queue else f"default/{queue}"
            consumed = {r: _nanos(q) for r, q in used.items()}
            scheduler.state.history.seed(key, consumed, NOW)
    scheduler.state.now = NOW
    gone = case.input.get("deleteQueue")
    if gone:
        scheduler.state.history.remove_queue(f"default/{gone}")
    scheduler.put_all(case, "Workload")
    for _ in case.input["workloads"]:
        scheduler.schedule()
    return statuses(scheduler, case)


def _nanos(quantity):
    return parse_quantity(quantity).nano

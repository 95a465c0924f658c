"""Kueue's tables of flavor assignment: which flavor a workload would get, how, and why."""

from policyd.alloc.flavors.options import replacing
from policyd.alloc.flavors.search import better
from policyd.alloc.nominate import most_pods
from policyd.alloc.queue import Fungibility
from policyd.alloc.reasons import Mode, most_severe
from policyd.alloc.workload import PodSetFlavors, ReservedQuota
from policyd.api.quantity import parse_quantity
from policyd.status.messages import obstacle_text
from policyd.status.quantities import format_amount
from tests.conformance.kueue_objects import Cluster, run_table, settings_of

MODES = {Mode.NO_FIT: "NoFit", Mode.FIT: "Fit"}
"""Kueue's words for modes; all others need preemption."""

PREEMPTION_MODES = {"NoCandidates": Mode.BLOCKED, "Preempt": Mode.PREEMPT, "Reclaim": Mode.RECLAIM}
ANYBODY = {"preemptionPossiblity": "Preempt"}
"""What Kueue's tables take preemption for, where they do not say it."""


def needs_placement(case):
    """Tell whether pods are to be placed: quota alone does not decide then."""
    pod_sets = [*(case.input.get("wlPods") or ()), case.input.get("podSet") or {}]
    objects = case.objects.values()
    asked = any(p.get("topologyRequest") for p in pod_sets) or any(
        p.get("topologyRequest")
        for o in objects
        if o.get("kind") == "Workload"
        for p in o["spec"].get("podSets", ())
    )
    return asked and any(o.get("kind") == "Topology" for o in objects)


class Assigner:
    """A queue in its tree as a case has it, and the workload that asks."""

    def __init__(self, case):
        self.case = case
        sharing = bool(case.input.get("enableFairSharing"))
        self.cluster = cluster = self.opened(settings_of(case, fair_sharing=sharing))
        for kind in ("ResourceFlavor", "ClusterQueue", "Cohort"):
            cluster.put_all(case, kind)
        self.state = cluster.state
        self.queue = self.queue_name()
        for operation, arguments, _ in case.operations():
            if operation.endswith(".DeleteResourceFlavor"):
                cluster.remove("ResourceFlavor", arguments["rf"]["metadata"]["name"])
            elif operation.endswith(".AddOrUpdateWorkload"):
                cluster.put(arguments["w"])
        self.state.settle()
        for each in case.env.get("ops") or ():
            if each["op"].endswith("ClusterQueueSnapshot.AddUsage"):
                self.use(
                    each["recv"], (each["args"]["usage"].get("Quota") or {}).get("Assigned") or {}
                )

    def opened(self, settings):
        return Cluster(settings)

    def queue_name(self):
        for column in ("clusterQueue", "cq"):
            if self.case.input.get(column):
                return self.case.input[column]["metadata"]["name"]
        names = [a["cq"]["metadata"]["name"] for op, a, _ in self.case.operations() if "cq" in a]
        return "test-clusterqueue" if "test-clusterqueue" in names else names[0]

    def use(self, queue, quantities):
        node, tree = self.state.tree.hierarchy.queues[queue], self.state.tree
        charges = {
            tree.cell(node, tuple(name.split("/", 1))): amount
            for name, amount in quantities.items()
        }
        tree.charge(charges)

    def assign(self, arguments):
        """Choose flavors for the workload of a call of `flavorassigner.New`."""
        body = arguments["wl"]["Obj"]
        named = {"name": "wl", **body.get("metadata", {})}
        workload = self.cluster.value({**body, "metadata": named}, self.queue)
        options = self.state.queues[self.queue].options
        requests = options.requests(workload)
        slice_ = self.case.input.get("preemptWorkloadSlice") or self.case.input.get("replaceWl")
        if slice_:
            requests = replacing(requests, admission_of(slice_))
        return options.search.assign(requests, self.oracle)

    def oracle(self, cell, amount):
        """Answer what the table says that preemption could do."""
        name = "/".join(self.state.tree.names[cell])
        found = (self.case.input.get("simulationResult") or {}).get(name, ANYBODY)
        del amount
        possible = found.get("preemptionPossiblity", "NoCandidates")
        return PREEMPTION_MODES[possible], found.get("borrowingAfterSimulation", 0)


def admission_of(info):
    return ReservedQuota(
        cluster_queue="",
        pod_sets=tuple(
            PodSetFlavors(
                name=each["Name"],
                count=each.get("Count", 1),
                flavors=each.get("Flavors") or {},
                usage=each.get("Requests") or {},
            )
            for each in info.get("TotalRequests") or ()
        ),
    )


def assigned(case):
    assigner = Assigner(case)
    ((_, arguments, _),) = case.operations("flavorassigner.New")
    return assigner, assigner.assign(arguments)


def mode_of(assignment):
    return MODES.get(assignment.mode, "Preempt")


def run_assignments(path):
    """Choose flavors, and compare the whole assignment."""
    return run_table(path, compared_assignment)


def compared_assignment(case):
    """Choose flavors for a case, and say what is wrong."""
    assigner, found = assigned(case)
    if mode_of(found) != case.want["wantRepMode"]:
        return f"mode: expected {case.want['wantRepMode']}, got {mode_of(found)}"
    wanted, got = wanted_assignment(case), described(found, assigner)
    for field, want in wanted.items():
        if got[field] != want:
            return f"{field}: expected {want}, got {got[field]}"
    return ""


def wanted_assignment(case):
    want = case.want["wantAssignment"]
    usage = ((want.get("Usage") or {}).get("Quota") or {}).get("Assigned") or {}
    return {
        "pod_sets": [
            (
                each["Name"],
                each.get("Count", 0),
                {
                    r: (f["Name"], f["Mode"], f.get("TriedFlavorIdx", 0))
                    for r, f in (each.get("Flavors") or {}).items()
                },
                sorted((each.get("Status") or {}).get("reasons") or ()),
                {r: parse_quantity(q) for r, q in (each.get("Requests") or {}).items()},
            )
            for each in want.get("PodSets") or ()
        ],
        "borrowing": want.get("Borrowing", 0),
        "usage": usage,
    } | ({"reason": want["NoFitReason"]} if want.get("NoFitReason") else {})


def described(found, assigner):
    """Describe an assignment as the tables do."""
    names = assigner.state.tree.names
    return {
        "pod_sets": [
            (
                pod_set.name,
                pod_set.count,
                flavors_of(group),
                sorted(obstacle_text(obstacle) for obstacle in group.obstacles())
                if group.mode is not Mode.FIT
                else [],
                {
                    r: parse_quantity(format_amount(r, amount))
                    for r, amount in pod_set.totals.items()
                },
            )
            for group in found.groups
            for pod_set in group.requests.pod_sets
        ],
        "borrowing": found.level,
        "usage": {"/".join(names[cell]): amount for cell, amount in found.charges.items()},
        "reason": found.reason(),
    }


def flavors_of(group):
    """Return what each resource of a group of pod sets gets; nothing if one gets none."""
    if group.mode is Mode.NO_FIT:
        return {}
    found = {}
    for search in group.searches:
        notes = () if search.attempt is None else search.attempt.notes
        short = [cell for cell, _, _, possible in notes if possible]
        for resource, cell in zip(search.option.resources, search.option.charges, strict=True):
            mode = "Preempt" if cell in short else "Fit"
            found[resource] = (search.option.name, mode, search.tried)
    return found


def run_modes(path):
    """Choose flavors, and compare their names and the mode."""
    return run_table(path, _names)


def _names(case):
    _, found = assigned(case)
    flavors = {
        resource: option.name
        for group in found.groups
        if group.mode is not Mode.NO_FIT
        for option in group.options
        for resource in option.resources
    }
    got = {
        "wantMode": mode_of(found),
        "wantRepMode": mode_of(found),
        "wantAssigment": flavors,
        "wantFlavor": flavors.get("cpu", ""),
    }
    return _compare(case, got)


def _compare(case, got):
    for column, value in got.items():
        if column in case.want and case.want[column] != value:
            return f"{column}: expected {case.want[column]}, got {value}"
    return ""


def compared_reasons(case):
    """Choose flavors for a case, and say what is wrong about why there are none."""
    _, found = assigned(case)
    reason = found.reason() if found.mode is Mode.NO_FIT else ""
    if reason != case.want["wantNoFitReason"]:
        return f"expected {case.want['wantNoFitReason']}, got {reason}"
    # Kueue's test looks at those of its attempts only that the row names; all are known.
    pod_sets = case.data["observed"]["gotAssignment"]["PodSets"]
    wanted = {
        attempt["Flavor"]: attempt["NoFitReason"]
        for pod_set in pod_sets
        for attempt in pod_set.get("FlavorAssignmentAttempts") or ()
        if attempt["Mode"] == "NoFit"
    }
    got = {
        attempt.option.name: most_severe([obstacle.reason for obstacle in attempt.obstacles])
        for group in found.groups
        for search in group.searches
        for attempt in search.attempts
        if attempt.mode is Mode.NO_FIT
    }
    return "" if got == wanted else f"expected {wanted}, got {got}"


def run_preference(path):
    """Compare two ways to have a flavor."""
    return run_table(path, _preference)


def _preference(case):
    config = case.input["config"] or {}
    fungibility = Fungibility(preference=config.get("preference") or "BorrowingOverPreemption")

    def found(mode):
        return Mode(mode.get("preemptionMode", 0)), mode.get("borrowingLevel", 0)

    got = better(fungibility, found(case.input["a"]), found(case.input["b"]))
    return "" if got == case.want["wantPreferred"] else f"got {got}"


def run_search(path):
    """Search the most pods for which a predicate holds."""
    return run_table(path, _search)


def _search(case):
    pod_sets, limit = case.input["podSets"] or [], case.input["countLimit"]
    wanted = [each.get("count", 0) for each in pod_sets]
    least = [each.get("minCount", each.get("count", 0)) for each in pod_sets]
    found = most_pods(wanted, least, lambda counts: sum(counts) if sum(counts) <= limit else None)
    return _compare(case, {"wantFound": found is not None, "wantCount": found or 0})

"""Kueue's tables of flavors and topologies together: what is asked of which, and what is wrong."""

from policyd.alloc.cluster_queue import NominatedWorkload
from policyd.alloc.cycle import CycleRoom
from policyd.alloc.flavors.assignment import (
    Assignment,
    FlavorOption,
    GroupRequests,
    GroupResult,
    PodSetRequests,
    SearchResult,
)
from policyd.alloc.flavors.options import RequestKey
from policyd.alloc.flavors.search import EVERYWHERE, FlavorScan
from policyd.alloc.nominate import Chooser
from policyd.alloc.pending import Ticket
from policyd.alloc.reasons import Mode, most_severe
from policyd.alloc.topology.placing import Placer
from policyd.alloc.topology.values import HOSTNAME, Placement, TopologyPlacement
from policyd.api.kueue.names import QUOTA_RESERVED
from policyd.controller.topology.topologies import NodeChanges
from policyd.status.messages import placement_text
from tests.conformance import kueue_flavors
from tests.conformance.kueue_flavors import Assigner, mode_of, needs_placement
from tests.conformance.kueue_objects import Cluster, decode, run_table, settings_of

QUEUE, PLENTY = "test-clusterqueue", 1_000


def node(name):
    allocatable = {"cpu": PLENTY, "memory": f"{PLENTY}Gi", "pods": PLENTY}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name}},
        "status": {
            "allocatable": {k: str(v) for k, v in allocatable.items()},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


class PlacingCluster(Cluster):
    """A cluster with nodes."""

    def __init__(self, settings):
        super().__init__(settings)
        NodeChanges(self.cache, self.clock.pace())

    def put_node(self, body):
        self._version += 1
        self.mirrors.nodes.wrote(decode(body, self.mirrors.nodes.into, version=self._version))


def cluster_of(case, flavors, levels=()):
    """Return a queue with some flavors, all with a topology of hosts, and two big nodes."""
    cluster = PlacingCluster(settings_of(case))
    spec = {"levels": [{"nodeLabel": level} for level in levels or (HOSTNAME,)]}
    cluster.put({"kind": "Topology", "metadata": {"name": "hosts"}, "spec": spec})
    resources = ("cpu", "memory")
    groups = [
        {
            "coveredResources": list(resources),
            "flavors": [
                {
                    "name": name,
                    "resources": [{"name": r, "nominalQuota": "100Gi"} for r in resources],
                }
                for name in flavors
            ],
        }
    ]
    for name in flavors:
        spec = {"nodeLabels": {}, "topologyName": "hosts"}
        cluster.put({"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec})
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    cluster.put({"kind": "ClusterQueue", "metadata": {"name": QUEUE}, "spec": spec})
    for name in ("node-a", "node-b"):
        cluster.put_node(node(name))
    cluster.state.settle()
    return cluster


def assignment_of(pod_sets):
    """Return an assignment of flavors as a table gives it."""
    assignment = Assignment()
    for each in pod_sets:
        flavors = {r: f["Name"] for r, f in (each.get("Flavors") or {}).items()}
        asked = PodSetRequests(each["Name"], each.get("Count", 0), dict.fromkeys(flavors, 1))
        searches = [SearchResult(FlavorOption(name, (r,), {})) for r, name in flavors.items()]
        assignment.add(GroupResult(GroupRequests((asked,), (), ""), searches))
    return assignment


def placed(case, cluster, pod_sets, workload):
    named = {"name": "wl", "namespace": "default", **workload.get("metadata", {})}
    value = cluster.value({**workload, "metadata": named}, QUEUE)
    options = cluster.state.queues[QUEUE].options
    return Placer(cluster.state, options, value, assignment_of(pod_sets)).placed()


def recorded(assignment):
    """Return what is wrong with each pod set that cannot be placed."""
    return {
        name: ", ".join(placement_text(each.why) for each in found)
        for name, found in assignment.unplaced.items()
    }


def run_errors(path):
    """Ask topologies for what they never give."""
    return run_table(path, _errors)


def _errors(case):
    cluster = cluster_of(case, case.input["cq"].get("TASFlavors") or ())
    pod_sets = case.input["assignment"].get("PodSets") or ()
    found = placed(case, cluster, pod_sets, case.input["workload"]["Obj"])
    if (found.mode is Mode.NO_FIT) != bool(case.want["wantErr"]):
        return f"mode {found.mode}"
    if not case.want["wantErr"]:
        return ""
    wanted = case.want["wantErr"]["$error"]
    return "" if wanted in recorded(found).values() else f"expected {wanted}, got {recorded(found)}"


def run_requests(path):
    """Tell which pod sets are to be placed at all."""
    return run_table(path, _requests)


def _requests(case):
    pod_sets = case.input["podSets"]
    flavors = {f["Name"] for each in pod_sets for f in (each.get("Flavors") or {}).values()}
    workload = {"spec": {"podSets": case.input["wlPodSets"]}}
    found = placed(case, cluster_of(case, sorted(flavors)), pod_sets, workload)
    wanted, got = sorted(case.want["wantTASPodSets"] or ()), sorted(found.placements)
    return "" if wanted == got else f"expected {wanted}, got {got}"


def run_net_usage(path):
    """Let a workload have its new places in a cycle, beyond those that it has already."""
    return run_table(path, _net_usage)


def _net_usage(case):
    given = case.input
    pod_sets = (given.get("assignment") or {}).get("PodSets") or ()
    flavors = sorted((given.get("cq") or {}).get("TASFlavors") or {})
    placed = {
        each["Name"]: placement_of(each["TopologyAssignment"])
        for each in pod_sets
        if each.get("TopologyAssignment")
    }
    cluster = cluster_of(case, flavors, levels=next((p.levels for p in placed.values()), ()))
    cluster.put(holder(given, pod_sets))
    state = cluster.state
    state.settle()
    workload = cluster.value({**given["wl"]["Obj"], "metadata": WORKLOAD}, QUEUE)
    requests = {each.name: each.place.requests for each in workload.pod_sets}
    assignment = assignment_of(pod_sets)
    holding = state.holding(workload.key)
    assignment.held = holding and holding.admission
    assignment.placements = {
        name: Placement(flavor="", assignment=place, requests=requests[name])
        for name, place in placed.items()
    }
    options = state.queues[QUEUE].options
    ticket = Ticket(workload, RequestKey())
    entry = NominatedWorkload(ticket, options, ticket.requests(options), assignment)
    before = {flavor: state.ledger.nodes.usage(flavor) for flavor in flavors}
    with state.extension.cycle() as extension:
        CycleRoom(state, extension).keep(entry)
    found = {
        flavor: added
        for flavor in flavors
        if (added := more_than(before[flavor], state.ledger.nodes.usage(flavor)))
    }
    wanted = {
        flavor: {
            ",".join(each["Values"]): {
                "pods": (count := each.get("Count", 0)),
                **{r: n * count for r, n in (each.get("SinglePodRequests") or {}).items()},
            }
            for each in used
        }
        for flavor, used in (case.want["want"] or {}).items()
    }
    return "" if found == wanted else f"expected {wanted}, got {found}"


WORKLOAD = {"name": "wl", "namespace": "default"}


def holder(given, pod_sets):
    """Return the workload of a table as it is while it holds what it was admitted with before."""
    body = {**given["wl"]["Obj"], "kind": "Workload", "metadata": WORKLOAD}
    admission = given.get("prevAdmission")
    if admission is None:
        return body
    flavors = {
        each["Name"]: {r: f["Name"] for r, f in (each.get("Flavors") or {}).items()}
        for each in pod_sets
    }
    before = [
        {"flavors": flavors.get(each["name"], {}), **each}
        for each in admission.get("podSetAssignments") or ()
    ]
    reserved = {"type": QUOTA_RESERVED, "status": "True"}
    admission = {**admission, "clusterQueue": QUEUE, "podSetAssignments": before}
    return {**body, "status": {"admission": admission, "conditions": [reserved]}}


def placement_of(given):
    domains = tuple((tuple(d["Values"]), d.get("Count", 0)) for d in given.get("Domains") or ())
    return TopologyPlacement(levels=tuple(given.get("Levels") or ()), domains=domains)


def more_than(before, after):
    """Return what is used after and was not before, by domain and resource."""
    found = {}
    for domain, used in after.items():
        had = before.get(domain, {})
        more = {r: n - had.get(r, 0) for r, n in used.items() if n != had.get(r, 0)}
        if more:
            found[domain] = more
    return found


def run_groups(path):
    """Choose flavors for pod sets that are to be placed together."""
    return run_table(path, _groups)


def _groups(case):
    cluster = PlacingCluster(settings_of(case))
    for kind in ("Topology", "ResourceFlavor", "ClusterQueue"):
        cluster.put_all(case, kind)
    for key, body in case.objects.items():
        if body.get("kind") == "Node" and "#" not in key:
            cluster.put_node(body)
    state = cluster.state
    state.settle()
    body = {
        "metadata": {"name": "wl", "namespace": "default"},
        "spec": {"podSets": case.input["wlPods"]},
    }
    name = case.input["clusterQueue"]["metadata"]["name"]
    workload, options = cluster.value(body, name), state.queues[name].options
    ticket = Ticket(workload, RequestKey())
    found = Chooser(state, ticket, options, options.preempts).choose().assignment
    wrong = {pod_set: error["$error"] for pod_set, error in case.want["wantPodSetErrors"].items()}
    if {k: v for k, v in recorded(found).items() if k in wrong} != wrong:
        return f"expected {wrong}, got {recorded(found)}"
    got = {each.name: dict(each.flavors) for each in found.admission(name).pod_sets}
    for pod_set, flavors in case.want["wantPodSetFlavors"].items():
        wanted = {r: f["Name"] for r, f in flavors.items()}
        if got[pod_set] != wanted:
            return f"{pod_set}: expected {wanted}, got {got[pod_set]}"
    return ""


class PlacingAssigner(Assigner):
    """A queue in its tree, the nodes of its flavors, and the workload that asks."""

    def opened(self, settings):
        cluster = PlacingCluster(settings)
        cluster.put_all(self.case, "Topology")
        for body in self.case.objects.values():
            if body.get("kind") == "Node":
                cluster.put_node(body)
        return cluster

    def choose(self, scan=EVERYWHERE):
        body = next(a["wl"]["Obj"] for _, a, _ in self.case.operations("flavorassigner.New"))
        workload, options = self.cluster.value(body, self.queue), self.options
        ticket = Ticket(workload, RequestKey())
        return Chooser(self.state, ticket, options, options.preempts).choose(scan)

    @property
    def options(self):
        return self.state.queues[self.queue].options


def run_scan(path):
    """Choose flavors whose topologies count, and compare where the next search starts."""
    return run_table(path, _scan)


def _scan(case):
    placed = _placed(case)
    got = {
        "wantMode": mode_of(placed),
        "wantTriedFlavorIdx": placed.tried[0][0],
        # Kueue's assigner leaves the places for which others must go to its scheduler.
        "wantPlan": bool(placed.placements) and placed.mode is Mode.FIT,
    }
    wanted = {name: case.want[name] for name in got}
    return "" if got == wanted else f"expected {wanted}, got {got}"


def run_recomputed(path):
    """Choose again once others took the place, of the flavors that were chosen before."""
    return run_table(path, _recomputed)


def _recomputed(case):
    assigner = PlacingAssigner(case)
    first = assigner.choose().assignment
    for operation, arguments, _ in case.operations("schdcache.ClusterQueueSnapshot.AddUsage"):
        del operation
        for flavor, used in (arguments["usage"].get("TAS") or {}).items():
            assigner.state.ledger.nodes.hold("other", [_taken(flavor, each) for each in used])
    again = assigner.choose(FlavorScan(pins=first.flavors)).assignment
    if first.mode is not Mode.FIT or again.mode is Mode.FIT:
        return f"modes {first.mode} and {again.mode}"
    found, wanted = again.tried[0][0], case.want["wantRecomputedIdx"]
    return "" if found == wanted else f"expected {wanted}, got {found}"


def _taken(flavor, used):
    domains = ((tuple(used["Values"]), used.get("Count", 0)),)
    assignment = TopologyPlacement(levels=(HOSTNAME,), domains=domains)
    return Placement(
        flavor=flavor, assignment=assignment, requests=used.get("SinglePodRequests") or {}
    )


def _placed(case):
    """Return the assignment with places, or what is left of it where there are none."""
    assigner = PlacingAssigner(case)
    ((_, arguments, _),) = case.operations("flavorassigner.New")
    found = assigner.assign(arguments)
    workload = assigner.cluster.value(arguments["wl"]["Obj"], assigner.queue)
    return Placer(assigner.state, assigner.options, workload, found).placed()


def run_assignments(path):
    """Choose flavors, and places where any are asked for."""
    return run_table(path, _assignment)


def _assignment(case):
    if not needs_placement(case):
        return kueue_flavors.compared_assignment(case)
    found = _placed(case)
    if mode_of(found) != case.want["wantRepMode"]:
        return f"mode: expected {case.want['wantRepMode']}, got {mode_of(found)}"
    pod_sets = case.want["wantAssignment"]["PodSets"]
    wanted = {each["Name"]: each["Status"]["err"]["$error"] for each in pod_sets}
    return "" if recorded(found) == wanted else f"expected {wanted}, got {recorded(found)}"


def run_reasons(path):
    """Choose flavors, and places where any are asked for; compare why there are none."""
    return run_table(path, _reasons)


def _reasons(case):
    if not needs_placement(case):
        return kueue_flavors.compared_reasons(case)
    found = _placed(case)
    if found.reason() != case.want["wantNoFitReason"]:
        return f"expected {case.want['wantNoFitReason']}, got {found.reason()}"
    wanted, got = case.want["wantFlavorAttempts"], attempts(found)
    return "" if got == wanted else f"expected {wanted}, got {got}"


def attempts(found):
    """Return why which flavor would not do."""
    obstacles = {
        attempt.option.name: attempt.obstacles
        for group in found.groups
        for search in group.searches
        for attempt in search.attempts
    }
    for group in found.groups:
        for pod_set in group.requests.pod_sets:
            for option in group.options if pod_set.name in found.unplaced else ():
                obstacles[option.name] = found.unplaced[pod_set.name]
    return {name: most_severe([o.reason for o in why]) for name, why in obstacles.items()}

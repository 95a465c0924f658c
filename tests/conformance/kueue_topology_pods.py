"""Kueue's tables of pods and places: which pod goes where, and which pods have nothing to do."""

import asyncio
import json
from collections import Counter

from policyd.alloc.settings import Gates
from policyd.api.meta import find_condition
from policyd.controller.topology.node_failures import NodeFailures
from policyd.controller.topology.ungating import Ungating
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.mirrors import open_mirrors
from policyd.controller.watch.pod_places import PodPlaces
from policyd.controller.writes import Writes
from policyd.jobs.places import takes_room
from policyd.jobs.pods import QueuedPod
from policyd.jobs.topology import asks_for_topology
from policyd.kube.resources import PODS
from policyd.testing import FakeClient, FakeClock, ObjectStore
from policyd.testing.objects import refusal
from policyd.workload.node_health import DELAY_SECONDS
from tests.conformance.kueue_objects import NOW, decode, run_table
from tests.conformance.kueue_scheduler import Events


class PodCluster:
    """An API server in memory, and the mirrors of pods and workloads."""

    def __init__(self):
        self.clock = FakeClock(NOW)
        self.client = FakeClient(store=ObjectStore(clock=self.clock))
        self.mirrors = open_mirrors(self.client, self.clock.pace())
        self.events = Events()
        self.writes = Writes(self.client, self.events, leading=lambda: True, pace=self.clock.pace())
        self.places = PodPlaces(self.mirrors.placed, notify=lambda _change: None)

    def put(self, mirror, body):
        """Take an object in as the watch would."""
        stored = self.client.store.put(mirror.resource, body)
        uid = decode(body, mirror.into).metadata.uid
        metadata = {**body["metadata"], "uid": uid}
        version = int(stored["metadata"]["resourceVersion"])
        mirror.wrote(decode({**body, "metadata": metadata}, mirror.into, version=version))

    def take(self, body):
        """Take in an object of any kind that matters here."""
        mirrors = self.mirrors
        by_kind = {
            "Workload": mirrors.workloads,
            "Pod": mirrors.placed,
            "Node": mirrors.nodes,
            "ResourceFlavor": mirrors.flavors,
        }
        self.put(by_kind[body["kind"]], body)

    def stored(self, resource, body):
        metadata = body["metadata"]
        return self.client.store.get(resource, metadata.get("namespace", ""), metadata["name"])


def run_ungating(path):
    """Let the pods of a workload go."""
    return run_table(path, _ungating, rule=_expects)


def _expects(case):
    """Leave out what Kueue remembers of writes not seen yet: our mirrors see them at once."""
    return "expectations of writes" if case.input.get("expectUIDs") else ""


def _ungating(case):
    cluster = PodCluster()
    for body in case.input["workloads"]:
        cluster.put(cluster.mirrors.workloads, body)
    for body in case.input.get("pods") or ():
        cluster.put(cluster.mirrors.placed, body)
    ungating = Ungating(
        cluster.mirrors.workloads, cluster.mirrors.placed, cluster.places, cluster.writes
    )
    metadata = case.input["workloads"][0]["metadata"]
    asyncio.run(ungating.reconcile(ReconcileKey("Places", metadata["namespace"], metadata["name"])))
    exactly = case.input.get("nodeSelectorAssertMode") == "Exact"
    found = []
    for body in case.want["wantPods"]:
        pod = decode(cluster.stored(PODS, body), QueuedPod)
        wanted = decode(body, QueuedPod)
        found.append(pod)
        if pod.spec.scheduling_gates != wanted.spec.scheduling_gates:
            return f"{pod.metadata.name}: gates {pod.spec.scheduling_gates}"
        if exactly and pod.spec.node_selector != wanted.spec.node_selector:
            return f"{pod.metadata.name} goes to {pod.spec.node_selector}"
    return _counts(case, found)


def _counts(case, pods):
    counted = Counter(
        json.dumps(pod.spec.node_selector, sort_keys=True)
        for pod in pods
        if pod.spec.node_selector and pod.status.phase not in {"Failed", "Succeeded"}
    )
    wanted = {
        json.dumps(each["NodeSelector"], sort_keys=True): each["Count"]
        for each in case.want["wantCounts"] or ()
    }
    return "" if dict(counted) == wanted else f"counts: expected {wanted}, got {dict(counted)}"


def run_failures(path):
    """Follow nodes that fail."""
    return run_table(path, _failures)


def _failures(case):
    cluster = PodCluster()
    gates = Gates.of(case.gates)
    failures = NodeFailures(cluster.mirrors, cluster.places, cluster.writes, gates=gates)
    for body in case.input["initObjs"]:
        cluster.take(body)
    if "node" in case.input:  # what is asked then is asked after the time a node has
        cluster.take(case.input["node"])
        cluster.clock.jump(DELAY_SECONDS)
    if case.input.get("injectPatchError"):
        refused = refusal(500, "InternalError", "injected")
        cluster.client.fail(refused, verb="patch", plural="pods", times=100)
    waited = None
    for request in case.input.get("reconcileRequests") or [{"NamespacedName": named_node(case)}]:
        name = request["NamespacedName"].removeprefix("/")
        waited = asyncio.run(failures.reconcile(ReconcileKey("Node", "", name)))
    return failed_differently(case, cluster, waited)


def named_node(case):
    return case.input["nodeName"]


def failed_differently(case, cluster, waited):
    """Compare what stands on the workload, which pods were ended, and when to look again."""
    want = case.want
    (workload,) = cluster.mirrors.workloads
    nodes = [each.name for each in workload.status.unhealthy_nodes]
    if "wantStatus" in want:
        wanted_nodes = [named_node(case)] if want["wantStatus"] else []
    else:
        wanted_nodes = [each["name"] for each in want["wantUnhealthyNodes"] or ()]
    if nodes != wanted_nodes and not case.input.get("ignoreUnhealthyNodes"):
        return f"unhealthy nodes: expected {wanted_nodes}, got {nodes}"
    ended = sorted(
        pod.metadata.name
        for pod in cluster.mirrors.placed
        if any(c.type == "TerminatedByKueue" for c in pod.status.conditions)
    )
    wanted = want.get("wantPatchedPods") or want.get("wantDeleted")
    if wanted and (ended != sorted(wanted)):
        return f"ended: expected {wanted}, got {ended}"
    if want.get("wantRequeue", "0s") != f"{int(waited or 0)}s":
        return f"looks again after {waited}"
    evicted = find_condition(workload.status.conditions, "Evicted")
    expected = want.get("wantEvictedCond")
    if bool(expected) != (evicted is not None):
        return f"evicted: {evicted}"
    if expected and (evicted.reason, evicted.message) != (expected["reason"], expected["message"]):
        return f"evicted: expected {expected}, got {evicted}"
    return ""


def run_requests(path):
    """Tell whether a pod asks for a topology."""
    return run_table(path, _asks)


def _asks(case):
    pod = decode(case.input["pod"], QueuedPod)
    found = asks_for_topology(pod.metadata.annotations)
    return "" if found == case.want["want"] else f"got {found}"


def run_room(path):
    """Tell whether a pod takes room that no topology gave."""
    return run_table(path, _room)


def _room(case):
    found = takes_room(decode(case.input["pod"], QueuedPod))
    return "" if found == case.want["want"] else f"got {found}"

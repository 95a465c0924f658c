"""Kueue's tables of queues, flavors and priority classes: what is said of them, and done."""

import asyncio
import copy
import json
from fractions import Fraction

import msgspec

from policyd.alloc.amount import total_of
from policyd.alloc.settings import QueueingSettings, UsageBasedOrder
from policyd.alloc.usage_history import ConsumedUsage
from policyd.api.kueue import ClusterQueue
from policyd.api.kueue.names import ACTIVE, RESOURCE_IN_USE_FINALIZER
from policyd.api.meta import Condition
from policyd.api.quantity import parse_quantity
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.queues.in_use import InUse
from policyd.controller.queues.queue_status_values import cluster_queue_status
from policyd.controller.queues.queue_statuses import QueueStatuses
from policyd.controller.reconcile import Dispatcher
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.writes import Writes
from policyd.kube.workqueue import WorkQueue
from policyd.status.queues import queue_figures
from policyd.testing.objects import refusal
from tests.conformance.kueue_objects import NOW, decode, run_table, seconds
from tests.conformance.kueue_scene import (
    Notes,
    Scene,
    compared,
    difference,
    seconds_of,
    workload_key,
)

OWN_FINALIZER = "the webhook gives what is created its finalizer: nothing is written for it later"
REPORTED_LATER = (
    "usage that is known and not told before it is sampled: the product tells it at once"
)
NO_QUEUE = "errors of Kueue's two caches, which know different queues: the product has one"


class QueueScene(Scene):
    """A case's objects, and what writes the statuses of queues and lets go of what is deleted."""

    def __init__(self, case, *, stored=lambda body: body, **settings):
        chosen = QueueingSettings(**settings) if settings else None
        super().__init__(case, stored=stored, settings=chosen)
        cluster = self.cluster
        pace = cluster.clock.pace()
        notes = Notes(cluster.client, pace)
        writes = Writes(cluster.client, notes, leading=lambda: True, pace=pace)
        self.in_use = InUse(cluster.cache, writes)
        self.statuses = QueueStatuses(cluster.cache, writes, metrics=ControllerMetrics(), pace=pace)

    def hold(self, key):
        """Keep an object while it is in use, or let it go."""
        asyncio.run(self.in_use.reconcilers()[key.subject](key))
        self.watch()

    def flush(self, name):
        self.statuses.note(name)
        asyncio.run(self.statuses.flush())


def run_local_queues(path):
    """What is said of LocalQueues, and what is remembered of their usage."""

    def failure(case):
        given, want = case.input, case.want["wantLocalQueue"]
        queue = given["localQueue"]
        key = f"{queue['metadata']['namespace']}/{queue['metadata']['name']}"
        rules = fair_sharing(given.get("afsConfig"))
        scene = QueueScene(case, **({"admission_fair_sharing": rules} if rules else {}))
        for body in objects_of(given, by_usage=bool(rules)):
            scene.put(body)
        if given.get("deleteClusterQueue"):
            scene.cluster.remove("ClusterQueue", given["clusterQueue"]["metadata"]["name"])
        remember(scene, given, key)
        scene.flush(key)
        (stored,) = scene.all("LocalQueue")
        wrong = difference(summarize(stored), summarize(want), "queue")
        return wrong or unlike_ledger(scene, case.want.get("wantConsumedResources"), key)

    yield from run_table(path, failure, rule=reported_later)


def unlike_ledger(scene, wanted, key):
    """Say how what is remembered of a queue differs from what the table has there, if anything."""
    if wanted is None:
        return ""
    entry = scene.cluster.state.history.entries[key]
    consumed = {name: nano(text) for name, text in (wanted.get("Resources") or {}).items()}
    expected = [consumed, seconds(wanted["LastUpdate"])]
    return difference([dict(entry.consumed), entry.updated_at], expected, "ledger")


def reported_later(case):
    """Kueue writes what a queue used when it samples it next; the product when it is known."""
    known = (case.input.get("initialConsumedResources") or {}).get("StatusAccounted")
    expected = case.want["wantLocalQueue"]["status"].get("fairSharing")
    return REPORTED_LATER if known and not expected else ""


def fair_sharing(spec):
    if not spec:
        return None
    return UsageBasedOrder(
        half_life_seconds=seconds_of(spec.get("usageHalfLifeTime", "0s")),
        sampling_seconds=seconds_of(spec.get("usageSamplingInterval", "0s")),
    )


def objects_of(given, *, by_usage):
    """Yield a case's objects; the usage of queues that say nothing of it counts in this table."""
    cluster_queue = copy.deepcopy(given["clusterQueue"]) if given.get("clusterQueue") else None
    if cluster_queue is not None:
        if by_usage:
            scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
            cluster_queue["spec"]["admissionScope"] = scope
        yield cluster_queue
    yield copy.deepcopy(given["localQueue"])
    yield from copy.deepcopy(given.get("runningWls") or ())


def remember(scene, given, key):
    """Take over what was used before, and look at what is used now if that is due."""
    history, before = scene.cluster.state.history, given.get("initialConsumedResources") or {}
    if history is None:
        return
    if before:
        consumed = {name: nano(text) for name, text in (before.get("Resources") or {}).items()}
        if not before.get("StatusAccounted") and key in history.entries:
            # The product knows a queue's status before a workload of it can be admitted.
            consumed = total_of(history.entries[key].consumed, consumed)
        history.entries[key] = ConsumedUsage(seconds(before["LastUpdate"]), consumed)
    pending = given.get("pendingEntryPenalty")
    if pending:
        entry = history.entries.setdefault(key, ConsumedUsage(NOW))
        entry.penalties["pending"] = {name: nano(text) for name, text in pending.items()}
    entry = history.entries.get(key)
    if pending or entry is None or NOW - entry.updated_at >= history.rules.sampling_seconds:
        scene.statuses.sample_once()


def nano(text):
    return int(Fraction(parse_quantity(str(text)).nano))


def summarize(queue):
    """Return what is compared: usage by amounts, whatever way they are written."""
    found = compared(queue)
    status = found.get("status", {})
    for name in ("flavorsReservation", "flavorsUsage", "flavorUsage", "lastUpdate"):
        status.pop(name, None)
    past = status.get("fairSharing", {}).get("admissionFairSharingStatus", {})
    past.pop("lastUpdate", None)
    used = {name: nano(text) for name, text in past.get("consumedResources", {}).items()}
    status["used"] = {name: amount for name, amount in used.items() if amount}
    status.pop("fairSharing", None)
    return {"status": status}


def run_figures(path):
    """What is said of ClusterQueues."""

    def failure(case):
        scene, given = Scene(case), case.input
        name = case.data["locals"]["cq"]["metadata"]["name"]
        body = {**case.data["locals"]["cq"], "status": given["cqStatus"]}
        active = Condition(
            ACTIVE, given["newConditionStatus"], given["newReason"], given["newMessage"]
        )
        figures = queue_figures(scene.cluster.state, name)
        status = cluster_queue_status(decode(body, ClusterQueue), figures, active, now=NOW)
        got = json.loads(msgspec.json.encode(status))
        wanted = case.want["wantCqStatus"]
        return difference(
            [conditions({"status": got}), got.get("pendingWorkloads", 0)],
            [conditions({"status": wanted}), wanted["pendingWorkloads"]],
            "status",
        )

    yield from run_table(
        path, failure, rule=lambda case: NO_QUEUE if case.want["wantError"] else ""
    )


def without_queue(case):
    return NO_QUEUE if case.want["wantError"] else ""


def conditions(queue):
    return sorted(
        [c.get(name, "") for name in ("type", "status", "reason", "message")]
        for c in queue.get("status", {}).get("conditions", ())
    )


def as_the_webhook(body):
    """Return a queue as it is stored: with what keeps it while it is in use."""
    if body["kind"] == "ClusterQueue":
        body["metadata"]["finalizers"] = [RESOURCE_IN_USE_FINALIZER]
    return body


def run_terminating(path):
    """A ClusterQueue that is deleted stays as long as somebody holds its quota."""

    def failure(case):
        scene = QueueScene(case, stored=as_the_webhook)
        for _, arguments, _ in case.operations("client.Delete"):
            scene.delete(arguments["obj"])
        scene.hold(ReconcileKey("ClusterQueue", "", "cq"))
        scene.flush("cq")
        queues = scene.all("ClusterQueue")
        want = case.want
        if want["wantDeleted"] or not queues:
            return difference(not queues, want["wantDeleted"], "deleted")
        status = queues[0]["status"]
        (active,) = [c for c in status["conditions"] if c["type"] == "Active"]
        got = [active["status"], active["reason"], status.get("reservingWorkloads", 0)]
        wanted = [want["wantActive"], want["wantReason"], want["wantReserving"]]
        return difference(got, wanted, "status")

    yield from run_table(path, failure)


def run_flavors(path):
    """A flavor that is deleted stays as long as a queue has it."""

    def failure(case):
        scene = QueueScene(case)
        scene.hold(ReconcileKey("ResourceFlavor", "", "flavor"))
        flavors = scene.all("ResourceFlavor")
        if case.want["wantDeleted"] or not flavors:
            gone = case.want["wantDeleted"] or case.input["skipStore"]
            return difference(not flavors, gone, "deleted")
        wanted = case.want["wantFlavor"]["metadata"].get("finalizers", [])
        return difference(flavors[0]["metadata"].get("finalizers", []), wanted, "finalizers")

    yield from run_table(path, failure, rule=made_by_the_webhook)


def made_by_the_webhook(case):
    """Leave out the finalizer of what is new: it has one when it is stored."""
    wanted = (case.want["wantFlavor"] or {}).get("metadata", {}).get("finalizers", [])
    had = case.input["flavor"]["metadata"].get("finalizers", [])
    return OWN_FINALIZER if RESOURCE_IN_USE_FINALIZER in set(wanted) - set(had) else ""


def run_classes(path):
    """Workloads follow the value of their class."""

    def failure(case):
        scene = Scene(case)
        metrics = ControllerMetrics()
        queue = WorkQueue(pace=scene.cluster.clock.pace())
        code = Dispatcher(queue, {"Workload": scene.workloads.reconcile}, metrics=metrics)
        refused = refused_of(case)
        error = refusal(500, "InternalError", "no") if case.want["wantError"] else GONE
        for workload in scene.all("Workload"):
            if workload["metadata"]["name"] in refused:
                scene.cluster.client.fail(error, verb="patch", plural="workloads")
            asyncio.run(code.reconcile(workload_key(workload)))
        scene.watch()
        failed = metrics.registry.get_sample_value(
            "policyd_reconcile_failures_total", {"subject": "Workload"}
        )
        got, wanted = (
            sorted([each["metadata"]["name"], each["spec"].get("priority")] for each in workloads)
            for workloads in (scene.all("Workload"), case.want["wantWorkloads"] or ())
        )
        wants = bool(refused) and case.want["wantError"]
        return difference([got, bool(failed)], [wanted, wants], "priorities, failure")

    yield from run_table(path, failure)


GONE = refusal(404, "NotFound", "gone")


def refused_of(case):
    """Return whose write Kueue's test lets fail: they should follow, and are wanted as they were.

    One that is gone when it is written is no failure.
    """
    value = case.input["wpc"]["value"]
    return {
        each["metadata"]["name"]
        for each in case.want["wantWorkloads"] or ()
        if follows(each, case.input["wpc"]["metadata"]["name"])
        and each["spec"]["priority"] != value
    }


def follows(workload, name):
    reference = workload["spec"].get("priorityClassRef") or {}
    conditions = workload.get("status", {}).get("conditions", ())
    finished = any(c["type"] == "Finished" and c["status"] == "True" for c in conditions)
    named = (reference.get("kind"), reference.get("name")) == ("WorkloadPriorityClass", name)
    return named and not finished

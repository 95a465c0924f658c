"""A case's objects on an API server in memory, the product's reconcilers over it, and what differs.

Reconciling goes on until nothing is written any more.
"""

import asyncio
import copy
import json
import re

import msgspec

from policyd.api.selectors import LabelSelector, Requirement
from policyd.controller.jobs.job_reconciler import job_reconcilers
from policyd.controller.jobs.job_steps import WorkloadSteps
from policyd.controller.jobs.pod_reconciler import PodReconciler
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.retention import Retention, TimeLimits
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.workload_reconciler import WorkloadReconciler
from policyd.controller.writes import Writes
from policyd.jobs.copied import CopiedKeys
from policyd.jobs.integrations import Integrations
from policyd.kube.errors import ConflictError, NotFoundError
from policyd.kube.events import EventRecorder
from policyd.workload.time_limits import ReadyRules
from tests.conformance.kueue_objects import TRUSTING, Cluster, settings_of

MOST_STEPS = 12

GLOBAL = frozenset(
    {
        "AdmissionCheck",
        "ClusterQueue",
        "ClusterTrainingRuntime",
        "Cohort",
        "Namespace",
        "Node",
        "PriorityClass",
        "ResourceFlavor",
        "RuntimeClass",
        "Topology",
        "WorkloadPriorityClass",
    }
)
"""Kinds that are in no namespace; some tables name none for what is in one."""

UNTOLD = {
    "annotations",
    "creationTimestamp",
    "generation",
    "ownerReferences",
    "resourceVersion",
    "uid",
}
"""What of the metadata is not compared."""


NOTHING = (None, [], {}, ())
"""What Go has for no slice, map or pointer, and what is in an empty one."""


class Notes(EventRecorder):
    """Writes events down."""

    def __init__(self, client, pace):
        super().__init__(client, component="test", pace=pace)
        self.recorded = []

    def record(self, about, *, reason, message, kind="Normal"):
        key = "/".join(filter(None, (about.namespace, about.name)))
        event = {"Key": key, "EventType": kind, "Reason": reason, "Message": message}
        self.recorded.append(event)


class Scene:
    """What a case sets up, and what is reconciled in it; what is `unseen` is not watched."""

    def __init__(self, case, *, stored=lambda body: body, settings=None, unseen=lambda _: False):
        self.case = case
        self.unseen = unseen
        chosen = integrations_of(options_of(case))
        self.cluster = Cluster(settings or settings_of(case), integrations=chosen)
        cache, pace = self.cluster.cache, self.cluster.clock.pace()
        self.notes = Notes(self.cluster.client, pace)
        writes = self.writes = Writes(
            self.cluster.client, self.notes, leading=lambda: True, pace=pace
        )
        options = options_of(case)
        limits = TimeLimits(ready=rules_of(options), retention=retention_of(options))
        labels, annotations = (
            options.get(name, ()) for name in ("LabelKeysToCopy", "AnnotationsToCopy")
        )
        keys = CopiedKeys(labels=tuple(labels), annotations=tuple(annotations))
        steps = self.steps = WorkloadSteps(cache, writes, limits=limits, keys=keys)
        self.workloads = WorkloadReconciler(
            cache,
            writes,
            add=lambda _key, _rank: None,
            metrics=ControllerMetrics(),
            limits=limits,
        )
        self.jobs = job_reconcilers(cache, writes, steps)
        self.pods = PodReconciler(cache, writes, steps)
        for body in apart(copy.deepcopy(first_versions(case))):
            self.put(stored(body))
        self.wait, self.wrote = None, False

    @property
    def store(self):
        return self.cluster.client.store

    def put(self, body):
        """Store an object, and have the mirrors know it, if it is of a kind that is watched."""
        mirror = self.cluster.mirror_of(body["kind"])
        if mirror is None:
            return
        metadata = body["metadata"]
        if body["kind"] not in GLOBAL:
            metadata.setdefault("namespace", "default")
        for each in (metadata, *metadata.get("ownerReferences", ())):
            each["uid"] = each.get("uid") or ""
        metadata.setdefault("generation", 0)
        stored = plain(self.store.put(mirror.resource, body))
        if not self.unseen(stored):
            self.see(mirror, stored)

    def see(self, mirror, body):
        self.cluster.see(mirror, msgspec.json.decode(json.dumps(body), type=mirror.into))

    def delete(self, body):
        """Delete an object, as its user does."""
        mirror = self.cluster.mirror_of(body["kind"])
        metadata = body["metadata"]
        namespace = metadata.get("namespace", "")
        asyncio.run(
            self.cluster.client.delete(mirror.resource, metadata["name"], namespace=namespace)
        )
        self.watch()

    def reconcile(self, key):
        """Reconcile once; tell whether anything was written."""
        before = self.store.version
        by_subject = {"Workload": self.workloads, "Pod": self.pods, "PodGroup": self.pods}
        code = by_subject.get(key.subject) or self.jobs[key.kind]
        self.wait = asyncio.run(code.reconcile(key))
        self.wrote = self.store.version != before
        self.watch()
        return self.wrote

    def dispatch(self, key):
        """Reconcile once; what turns out to be outdated comes again, as for the dispatcher."""
        try:
            return self.reconcile(key)
        except (ConflictError, NotFoundError):
            self.watch()
            return True

    def watch(self):
        """Have the mirrors take in what is stored, as their watches would."""
        for mirror in self.cluster.mirrors.all():
            there = {path_of(each): each for each in self.store.select(mirror.resource, {})}
            for each in mirror:
                if f"{each.metadata.namespace}/{each.metadata.name}" not in there:
                    mirror.forget(each.metadata.key)
            for each in there.values():
                if self.unseen(each):
                    continue
                self.see(mirror, plain(each))

    def unlike_once_reconciled(self, keys, unlike):
        """Reconcile the keys until nothing is written any more, and say what is unlike Kueue.

        Kueue's tests make one pass, settled or not, and Kueue does in one pass what may take ours
        a few. So `unlike()` is asked after one pass and at the end: the whole of one of them must
        be as wanted. Nothing in between counts, and what never settles is wrong.
        """
        first = None
        for _ in range(MOST_STEPS):
            wrote = [self.dispatch(key) for key in keys]
            first = unlike() if first is None else first
            if not any(wrote):
                last = first and unlike()
                return last and " | ".join(dict.fromkeys([first, last]))
        return f"not settled after {MOST_STEPS} passes"

    def all(self, kind):
        resource = self.cluster.mirror_of(kind).resource
        return [plain(each) for each in self.store.select(resource, {})]


def path_of(obj):
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def first_versions(case):
    return [body for key, body in case.objects.items() if "#" not in key]


def apart(objects):
    """Give pods that share a uid one each, and those who refer to them by name."""
    pods, known = {}, set()
    for body in objects:
        uid = body["metadata"].get("uid")
        if body["kind"] == "Pod" and uid in known:
            body["metadata"]["uid"] = pods[path_of(body)] = f"{uid}-{body['metadata']['name']}"
        known.add(uid)
    for body in objects:
        for owner in body["metadata"].get("ownerReferences", ()):
            key = f"{body['metadata'].get('namespace', '')}/{owner['name']}"
            if owner["kind"] == "Pod" and key in pods:
                owner["uid"] = pods[key]
    return objects


def job_key(job):
    return ReconcileKey("Job", job["metadata"]["namespace"], job["metadata"]["name"], job["kind"])


def workload_key(workload):
    return ReconcileKey("Workload", workload["metadata"]["namespace"], workload["metadata"]["name"])


def plain(obj):
    return json.loads(json.dumps(obj, default=str))


def options_of(case):
    found = case.input.get("reconcilerOpts") or case.input.get("reconcilerOptions") or {}
    copied = case.input.get("labelKeysToCopy") or ()
    return {"LabelKeysToCopy": copied, **(found.get("$options") or {})}


def integrations_of(options):
    """Return which jobs queue; a selector of namespaces is written as its requirements."""
    given_selector = options.get("ManagedJobsNamespaceSelector")
    selector = None if given_selector is None else requirements(given_selector)
    everywhere = bool(options.get("ManageJobsWithoutQueueName"))
    return Integrations(manages_all=everywhere, namespaces=selector, makers=TRUSTING)


def requirements(selector):
    """Read a selector as Go prints its requirements: `a=b`, `a in (b,c)`, `a notin (b)`, `!a`."""
    found = []
    for text in selector:
        key, sign, values = re.fullmatch(r"!?([^\s!=]+)\s*(!=|=+|in|notin)?\s*(.*)", text).groups()
        negated = text.startswith("!") or sign in {"!=", "notin"}
        listed = tuple(values.strip("()").split(",")) if sign else ()
        operator = (
            ("NotIn" if listed else "DoesNotExist") if negated else "In" if listed else "Exists"
        )
        found.append(Requirement(key=key, operator=operator, values=listed))
    return LabelSelector(match_expressions=tuple(found))


def rules_of(options):
    """Return the rules of pods that take too long, of the product's own defaults where not said."""
    given = options.get("waitForPodsReady") or options.get("WaitForPodsReady")
    if not given:
        return None
    given = {} if given is True else given
    return ready_rules(given)


def ready_rules(given):
    return ReadyRules(
        timeout=seconds_of(given.get("timeout", "0s")),
        recovery=seconds_of(given.get("recoveryTimeout", "0s")),
        retries=given.get("requeuingBackoffLimitCount"),
        first_wait=given.get("requeuingBackoffBaseSeconds", 60),
        longest_wait=seconds_of(given.get("requeuingBackoffMaxDuration", "1h")),
    )


def retention_of(options):
    given = options.get("workloadRetention") or options.get("WorkloadRetentionPolicy") or {}
    given = {name.lower(): seconds_of(value) for name, value in given.items()}
    return Retention(
        after_finished=given.get("afterfinished"),
        after_deactivated=given.get("afterdeactivatedbykueue"),
    )


def seconds_of(text):
    """Read a duration as Go writes it, such as `1m30s`."""
    total, number = 0.0, ""
    for sign in text or "":
        if sign in "hms":
            total += float(number) * {"h": 3600, "m": 60, "s": 1}[sign]
            number = ""
        else:
            number += sign
    return total


def difference(got, wanted, where):
    """Name the first place where two values differ; empty if none. Go takes nil for empty."""
    if got in NOTHING and wanted in NOTHING:
        return ""
    match got, wanted:
        case dict(), dict():
            names = sorted({*got, *wanted})
            found = (difference(got.get(n), wanted.get(n), f"{where}.{n}") for n in names)
        case list(), list() if len(got) == len(wanted):
            pairs = zip(got, wanted, strict=True)
            found = (difference(g, w, f"{where}[{i}]") for i, (g, w) in enumerate(pairs))
        case _:
            return "" if got == wanted else f"{where}: {got}, wanted {wanted}"
    return next(filter(None, found), "")


def events(wanted):
    fields = ("Key", "EventType", "Reason", "Message")
    return [{name: each.get(name, "") for name in fields} for each in wanted or ()]


def compared(obj, *, untold=frozenset()):
    """Return what is compared of an object: without its versions, times, and what is empty."""
    metadata = {name: v for name, v in obj["metadata"].items() if name not in UNTOLD | untold}
    body = {name: obj[name] for name in ("spec", "status", "value") if name in obj}
    status = {k: v for k, v in (body.get("status") or {}).items() if k not in untold}
    for each in (*status.get("conditions", ()), *status.get("admissionChecks", ())):
        each.pop("lastTransitionTime", None)
    if "conditions" in status:
        status["conditions"] = sorted(status["conditions"], key=lambda each: each["type"])
    return pruned({**body, "status": status, "metadata": metadata})


def pruned(value):
    """Leave out what is empty: Go compares it as equal to what is not there."""
    if isinstance(value, dict):
        found = {name: pruned(each) for name, each in value.items()}
        return {name: each for name, each in sorted(found.items()) if each or each is True}
    if isinstance(value, list):
        return [pruned(each) for each in value]
    return value

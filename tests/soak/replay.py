"""What a controller that starts now would make of the cluster: it must find nothing left to do.

All objects are read as they were at one revision, and put before a fresh controller in memory, in
virtual time. What it would admit, evict, finish, start or stop, the one that runs should have done.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from policyd.api.kueue.names import EVICTED, FINISHED, QUOTA_RESERVED
from policyd.cli.configuring import configured
from policyd.controller.run import Controller
from policyd.controller.settings import ControllerSettings
from policyd.controller.watch.mirrors import open_mirrors
from policyd.kube.pace import Pace
from policyd.kube.resources import (
    CLUSTER_QUEUES,
    COHORTS,
    EVENTS,
    LEASES,
    LOCAL_QUEUES,
    WORKLOADS,
    Resource,
)
from policyd.testing import FakeClient, FakeClock, ObjectStore, StoredChange
from tests.faults.history import Version
from tests.scenarios.api import Api, Refused, condition

INFORMATIONAL = {each.plural for each in (EVENTS, LEASES, CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS)}
"""What is written of these tells something, and nothing depends on it."""

RUNTIMES = Resource(
    "trainer.kubeflow.org",
    "v1alpha1",
    "clustertrainingruntimes",
    "ClusterTrainingRuntime",
    namespaced=False,
)
"""What TrainJobs are made from, read when it is needed."""

KEPT = "policyd.io/soak"
"""A finalizer of what would be gone at once in memory."""

STEPS, STEP_SECONDS = 30, 0.1
"""The virtual time that the fresh controller is given to act: little comes due meanwhile."""

WORD_SECONDS = 10
"""And then to say why workloads wait."""

WORKLOAD_KEYS = "/registry/kueue.x-k8s.io/workloads/"

Dump = dict[Resource, list[dict[str, Any]]]


@dataclass(frozen=True)
class Finding:
    """What a fresh controller would do.

    Attributes:
        what: In words.
        about: The object, as `Kind namespace/name`.
        uid: Of the object; empty if it would be made.
        text: Why it waits, as it says; if it says something else, that is another finding.
        detail: What else helps to find out why.
        generation: Of the object's spec: one that was changed meanwhile was not left alone.
    """

    what: str
    about: str
    uid: str = ""
    text: str = ""
    detail: str = field(default="", compare=False)
    generation: int = 0


def dump(api: Api) -> Dump:
    """Read all that the controller watches, as it was at one revision."""
    mirrors = open_mirrors(FakeClient(), Pace())
    found: Dump = {}
    at = api.call("GET", WORKLOADS.path().lstrip("/"), limit="1")["metadata"]["resourceVersion"]
    exactly = {"resourceVersion": at, "resourceVersionMatch": "Exact"}
    watched = (m.resource for m in (*mirrors.all(), *mirrors.of_topologies))
    for resource in dict.fromkeys((*watched, RUNTIMES)):
        try:
            items = api.call("GET", resource.path().lstrip("/"), **exactly)["items"]
        except Refused as refusal:
            if refusal.code != 404:  # a kind that is not installed
                raise
            continue
        found[resource] = items
    return found


async def fresh(dumped: Dump, configuration: Path, now: float) -> tuple[ObjectStore, list[Finding]]:
    """Let a fresh controller look at a dump; return what it has made of it, and did at once.

    Args:
        dumped: All that there is.
        configuration: Kueue's Configuration.
        now: The time, in seconds since the epoch.
    """
    clock = FakeClock(now)
    store = ObjectStore(clock=clock)
    for resource, items in dumped.items():
        for item in items:
            store.put(resource, _kept(item))
    store.history.clear()
    settings = configured(ControllerSettings(), path=str(configuration))
    settings = replace(settings, policies=False, workers=4)
    task = asyncio.create_task(
        Controller(FakeClient(store=store), settings, pace=clock.pace()).run()
    )
    for _ in range(STEPS):
        await clock.advance(STEP_SECONDS)
    done = [*findings(store)]
    for _ in range(WORD_SECONDS):
        await clock.advance(1.0)
    assert not task.done(), task.exception()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return store, done


def _kept(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object that stays though it is being deleted, as one whose pods take their time."""
    metadata = item["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return item
    return {**item, "metadata": {**metadata, "finalizers": [KEPT]}}


def findings(store: ObjectStore) -> Iterator[Finding]:
    """Yield what a fresh controller did, but for what only tells."""
    for change in store.history:
        if change.resource.plural in INFORMATIONAL:
            continue
        what = _of_workload(change) if change.resource == WORKLOADS else _verb(change)
        if what:
            metadata = change.last["metadata"]
            key = f"{metadata.get('namespace', '')}/{metadata['name']}"
            uid = "" if change.old is None else str(metadata["uid"])
            generation = ((change.old or {}).get("metadata") or {}).get("generation", 0)
            about = f"{change.resource.kind} {key}"
            detail = "; ".join(f"{name}: {value}" for name, value in _differences(change))[:600]
            yield Finding(what, about, uid, generation=generation, detail=detail)


def reworded(dumped: Dump, store: ObjectStore) -> Iterator[Finding]:
    """Yield which workloads wait for another reason than they say."""
    now = {item["metadata"]["uid"]: item for item in store.select(WORKLOADS, {})}
    for before in dumped[WORKLOADS]:
        metadata = before["metadata"]
        before_text, after_text = _reason_text(before), _reason_text(now.get(metadata["uid"], {}))
        if before_text and after_text and before_text != after_text:
            about = f"Workload {metadata['namespace']}/{metadata['name']}"
            detail = f"{before_text} -> {after_text}"
            yield Finding("waits for another reason", about, metadata["uid"], before_text, detail)


def _reason_text(workload: Mapping[str, Any]) -> str:
    """Return why a workload waits, as it says; empty if it does not wait or does not say."""
    reserved = condition(dict(workload), QUOTA_RESERVED)
    return reserved.get("message", "") if reserved.get("status") == "False" else ""


def _of_workload(change: StoredChange) -> str:
    """Say what became of a workload; empty if it is only told something."""
    if change.old is None or change.new is None:
        return _verb(change)
    for kind, verb in ((QUOTA_RESERVED, "admit"), (EVICTED, "evict"), (FINISHED, "finish")):
        was, now = (condition(each, kind).get("status") for each in (change.old, change.new))
        if was != now and now == "True":
            return f"would {verb} it"
    return "would change its spec" if change.old["spec"] != change.new["spec"] else ""


def _verb(change: StoredChange) -> str:
    if change.old is None:
        return "would create it"
    if change.new is None:
        return "would delete it"
    return f"would change {', '.join(name for name, _ in _differences(change))}"


def _differences(change: StoredChange) -> Iterator[tuple[str, Any]]:
    """Yield what of an object is new, part by part."""
    old, new = change.old or {}, change.new or {}
    for part in ("metadata", "spec", "status"):
        before, after = (each.get(part) or {} for each in (old, new))
        names = sorted({k for k in (*before, *after) if before.get(k) != after.get(k)})
        yield from ((f"{part}.{name}", after.get(name)) for name in names if name not in UNTOLD)


UNTOLD = {"resourceVersion", "generation", "managedFields"}


@dataclass
class Replays:
    """Compares dump after dump with what a fresh controller would make of it.

    Attributes:
        bound: What is left undone for so many seconds is a defect.
        truth: Another reason than the true one may stand for so many.
        defects: What stood so long, with the moment when it was first seen.
    """

    configuration: Path
    bound: float = 10.0
    truth: float = 10.0
    count: int = 0
    defects: dict[Finding, str] = field(default_factory=dict)
    worded: dict[Finding, str] = field(default_factory=dict)
    _since: dict[Finding, tuple[float, int]] = field(default_factory=dict)

    def go_through(self, history: Iterable[Version]) -> None:
        """Drop reasons that were replaced meanwhile: none of them stood so long."""
        for version in history:
            name = version.key.removeprefix(WORKLOAD_KEYS)
            text = _reason_text(version.object or {})
            for each in [*self._since] if name != version.key else ():
                if each.text and each.text != text and each.about == f"Workload {name}":
                    del self._since[each]

    def look(self, api: Api) -> None:
        """Take a dump and look what would be done about it."""
        now = time.time()
        dumped = dump(api)
        store, done = asyncio.run(fresh(dumped, self.configuration, now))
        self.note(done, reworded(dumped, store), now)

    def note(self, done: Iterable[Finding], reasons: Iterable[Finding], now: float) -> None:
        """Note what a fresh controller did, and the reasons that it corrected."""
        self.count += 1
        words = set(reasons)
        seen = {*done, *words}
        self._since = {each: self._since.get(each, (now, self.count)) for each in seen}
        for each in seen:
            since, first = self._since[each]
            worded = each in words
            bound = self.truth if worded else self.bound
            if now - since >= bound and self.count - first >= 2:
                where = self.worded if worded else self.defects
                at = time.strftime("%H:%M:%S", time.gmtime(since))
                where.setdefault(each, f"{each.about} {each.what}: since {at}: {each.detail}")

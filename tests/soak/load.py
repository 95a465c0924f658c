"""Makes up jobs of every kind with every feature, and all else that users and administrators do."""

import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from policyd.api.kueue.names import (
    ELASTIC_JOB,
    MAX_EXEC_TIME_SECONDS,
    MIN_PARALLELISM,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PODSET_PREFERRED_TOPOLOGY,
    PODSET_REQUIRED_TOPOLOGY,
    PREBUILT_WORKLOAD,
    PRIORITY_CLASS,
    QUEUE_NAME,
    WAITING_FOR_REPLACEMENT,
)
from policyd.cli import demo
from tests.scenarios import foreign, objects
from tests.scenarios.api import Api, Refused, condition
from tests.scenarios.test_parents import deployment, leader_worker_set, stateful_set
from tests.soak.operators import RUN_FOR, is_over
from tests.soak.stage import PLACED_NODES, QUEUES, TEAMS, cluster_object, placed_nodes

SIZES = (2, 2, 4, 4, 8)
"""GPUs of a job; more would wait for ever."""

HUGE = "500"
"""CPUs of a pod that waits for ever."""

MOST_LIVE = 40
"""Jobs at a time: more would wait longer than a run takes."""

ENDLESS = {"Deployment", "StatefulSet", "LeaderWorkerSet", "RayCluster", "RayService"}
"""Kinds whose jobs run until somebody deletes them."""

GROUP = "PodGroup"

MAKING = 5.0
"""Seconds within which all pods of a group are created."""

Item = dict[str, Any]


@dataclass
class Made:
    """A job that was made up.

    Attributes:
        items: What is created, in this order.
        features: What is special about it.
        state: `refused` if it was not created, `deleted` once the soak has deleted it.
        lost: Pods of a group in whose place there are others in `items`.
    """

    kind: str
    namespace: str
    name: str
    items: list[Item]
    features: frozenset[str]
    state: str = "live"
    made_at: float = field(default_factory=time.time)
    lost: list[Item] = field(default_factory=list)

    @property
    def endless(self) -> bool:
        """Whether it runs, or waits, until it is deleted."""
        return self.kind in ENDLESS or "huge" in self.features


class Load:
    """All that is done to the cluster, from one seed."""

    def __init__(self, api: Api, seed: int) -> None:
        self.jobs: list[Made] = []
        self.done: Counter[str] = Counter()
        self.refusals: dict[str, Counter[str]] = {}
        self.answered: dict[int, float] = {}
        """When a change of a queue was answered, in seconds since the epoch, by its revision."""
        self._api = api
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        """What is made good again, and when."""

    def run(self, until: float) -> None:
        """Do things until a moment, then make everything good again that was disturbed."""
        names, weights = zip(*((act, weight) for act, weight in ACTS.items()), strict=True)
        while time.monotonic() < until:
            self._make_good(time.monotonic())
            (act,) = self._random.choices(names, weights)
            self._do(act)
            time.sleep(self._random.expovariate(2.5))
        self._make_good(float("inf"))

    def live(self, *kinds: str) -> list[Made]:
        """Return the jobs that nobody has deleted, of some kinds or of all."""
        return [m for m in self.jobs if m.state == "live" and (not kinds or m.kind in kinds)]

    def delete(self, made: Made) -> None:
        """Delete a job; of a group the workload, too, as what was stopped stays while that does."""
        made.state = "deleted"
        try:
            for item in (*made.items, *made.lost):
                self._delete_item(item["kind"], item["metadata"]["name"], made.namespace)
            if made.kind == GROUP:
                self._delete_item("Workload", made.name, made.namespace)
        except Refused:
            made.state = "live"  # the rest of it is there
            raise

    def replace_lost(self, pods: Iterable[Item], workloads: Iterable[Item]) -> None:
        """Create other pods in the place of those that groups have lost, where they are awaited.

        Args:
            pods: All that there are.
            workloads: All that there are.
        """
        there = {_path(pod["metadata"]): pod for pod in pods}
        settled = {_path(each["metadata"]) for each in workloads if not _awaits_pods(each)}
        for made in self.live(GROUP):
            if f"{made.namespace}/{made.name}" in settled or time.time() - made.made_at < MAKING:
                continue
            for number, item in enumerate(made.items):
                if _is_lost(there.get(_path(item["metadata"]))):
                    self._replace(made, number)

    def _replace(self, made: Made, number: int) -> None:
        lost = made.items[number]
        name = f"{made.name}-{number}-{len(made.lost)}"
        made.lost.append(lost)
        made.items[number] = {**lost, "metadata": {**lost["metadata"], "name": name}}
        try:
            self._api.create(made.items[number])
            self.done["replace"] += 1
        except Refused as refusal:
            self._note("create", refusal)
        if made.state != "live":  # it was deleted meanwhile
            self.delete(made)

    def _delete_item(self, kind: str, name: str, namespace: str) -> None:
        self._api.delete(kind, name, namespace, missing_is_fine=True)

    def _do(self, act: str) -> None:
        try:
            if getattr(self, f"_{act}")():
                self.done[act] += 1
        except Refused as refusal:
            self._note(act, refusal)

    def _note(self, act: str, refusal: Refused) -> None:
        if refusal.code not in {404, 409}:  # it is gone, or somebody was faster
            self.refusals.setdefault(act, Counter())[str(refusal)] += 1

    def _make_good(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            _, _, repair = heapq.heappop(self._later)
            repair()

    def _then(self, repair: Callable[[], None]) -> None:
        due = time.monotonic() + self._random.uniform(3, 12)
        heapq.heappush(self._later, (due, next(self._numbers), repair))

    def _choose(self, *kinds: str, feature: str = "") -> Made | None:
        found = [m for m in self.live(*kinds) if not feature or feature in m.features]
        return self._random.choice(found[-20:]) if found else None

    # What users do.

    def _create(self) -> bool:
        if len(self.live()) >= MOST_LIVE:
            return self._tidy()
        made = self._made_up()
        self.jobs.append(made)
        try:
            for item in made.items:
                if PREBUILT_WORKLOAD in item["metadata"].get("labels", {}):
                    self._api.create(self._prebuilt(item))
                self._api.create(item)
        except Refused:
            self.delete(made)  # of a group some pods may have been created
            made.state = "refused"
            raise
        if made.endless:
            self._then(lambda: self.delete(made))
        return True

    def _tidy(self) -> bool:
        """Delete the jobs that have ended, instead of creating one."""
        for made in self.live():
            if all(self._is_over(item) for item in made.items):
                self.delete(made)
        return False

    def _is_over(self, item: Item) -> bool:
        metadata = item["metadata"]
        try:
            return is_over(self._api.get(item["kind"], metadata["name"], metadata["namespace"]))
        except Refused as refusal:
            if refusal.code != 404:
                raise
            return True

    def _delete(self) -> bool:
        made = self._choose()
        if made is not None:
            self.delete(made)
        return made is not None

    def _resize(self) -> bool:
        """Make an elastic Job larger, or smaller, for a while: six of its pods may never fit."""
        made = self._choose("Job", feature="elastic")
        if made is None:
            return False
        self._patch(made, {"spec": {"parallelism": self._random.randint(1, 6)}})
        small = {"spec": {"parallelism": 1}}
        self._then(lambda: self._quietly("Job", made.name, small, made.namespace))
        return True

    def _scale(self) -> bool:
        made = self._choose("Deployment", "StatefulSet")
        return made is not None and self._patch(
            made, {"spec": {"replicas": self._random.randint(0, 3)}}
        )

    def _reprioritize(self) -> bool:
        made = self._choose(*foreign.SPECS, "Job")
        label = {PRIORITY_CLASS: self._random.choice(("research", "production"))}
        return made is not None and self._patch(made, {"metadata": {"labels": label}})

    def _kill_pod(self) -> bool:
        made = self._choose()
        if made is None:
            return False
        pods = self._api.find("Pod", made.namespace)
        names = [p["metadata"]["name"] for p in pods]
        mine = [name for name in names if name.startswith(f"{made.name}-")]
        if mine:
            self._api.delete("Pod", self._random.choice(mine), made.namespace)
        return bool(mine)

    def _patch(self, made: Made, patch: Item) -> bool:
        self._api.patch(made.kind, made.name, patch, namespace=made.namespace)
        return True

    # What administrators do.

    def _stop_queue(self) -> bool:
        name = self._random.choice(list(QUEUES))
        policy = self._random.choice(("Hold", "HoldAndDrain"))
        kind = self._random.choice(("ClusterQueue", "LocalQueue"))
        self._spec(kind, name, stopPolicy=policy)
        self._then(lambda: self._spec(kind, name, stopPolicy="None"))
        return True

    def _deactivate(self) -> bool:
        workloads = self._api.find("Workload", self._random.choice(TEAMS))
        if not workloads:
            return False
        metadata = self._random.choice(workloads)["metadata"]
        self._activate(metadata, active=False)
        self._then(lambda: self._activate(metadata, active=True))
        return True

    def _activate(self, metadata: Item, *, active: bool) -> None:
        self._quietly(
            "Workload", metadata["name"], {"spec": {"active": active}}, metadata["namespace"]
        )

    def _edit_quota(self) -> bool:
        name = self._random.choice(TEAMS)
        self._give(name, self._random.choice((4, 6, 12)))
        self._then(lambda: self._give(name, 8))
        return True

    def _give(self, name: str, gpus: int) -> None:
        """Change a queue's quota."""
        groups = self._api.get("ClusterQueue", name)["spec"]["resourceGroups"]
        for resource in groups[0]["flavors"][0]["resources"]:
            if resource["name"] == "nvidia.com/gpu":
                resource["nominalQuota"] = str(gpus)
        self._quietly("ClusterQueue", name, {"spec": {"resourceGroups": groups}})

    def _lose_node(self) -> bool:
        name = self._random.choice(PLACED_NODES)
        (node,) = (each for each in placed_nodes() if each["metadata"]["name"] == name)
        self._api.delete("Node", name)
        for pod in self._api.call("GET", "api/v1/pods", fieldSelector=f"spec.nodeName={name}")[
            "items"
        ]:
            metadata = pod["metadata"]
            self._api.delete("Pod", metadata["name"], metadata["namespace"], missing_is_fine=True)
        self._then(lambda: self._api.create(node))
        return True

    def _spec(self, kind: str, name: str, **spec: Any) -> None:
        self._quietly(kind, name, {"spec": spec}, QUEUES[name])

    def _quietly(self, kind: str, name: str, patch: Item, namespace: str = "default") -> None:
        """Change something that may be gone."""
        try:
            changed = self._api.patch(kind, name, patch, namespace=namespace)
        except Refused as refusal:
            if refusal.code != 404:
                raise
        else:
            self.answered[int(changed["metadata"]["resourceVersion"])] = time.time()

    # What jobs are like.

    def _made_up(self) -> Made:
        choose = self._random.choice
        kind = choose(KINDS)
        features = {choose(FEATURES.get(kind, ("plain",))), choose(COMMON)} - {"plain"}
        queue = choose(("team-a", "team-b", "team-b", "checked"))
        queue = "placed" if "topology" in features else choose(("team-a", queue))
        name = f"{kind.lower()}-{next(self._numbers)}"
        items = list(self._items(kind, name, features))
        for item in items:
            self._dress(item, queue, features)
        return Made(kind, QUEUES[queue], name, items, frozenset(features))

    def _items(self, kind: str, name: str, features: set[str]) -> Iterator[Item]:
        gpus = self._random.choice(SIZES)
        if kind == "Job":
            yield self._job(name, gpus, features)
        elif kind == "Pod":
            yield objects.pod(name, gpus=gpus)
        elif kind == GROUP:
            count = self._random.randint(2, 4)
            for number in range(count):
                item = objects.pod(f"{name}-{number}", gpus=max(1, gpus // count))
                item["metadata"] |= {
                    "labels": {POD_GROUP_NAME: name},
                    "annotations": {POD_GROUP_TOTAL_COUNT: str(count)},
                }
                yield item
        elif kind in PARENTS:
            yield named(PARENTS[kind](), name)
        else:
            yield foreign.foreign(kind, name, foreign.SPECS[kind](gpus))

    def _job(self, name: str, gpus: int, features: set[str]) -> Item:
        pods = self._random.choice((1, 2, 2, 4))
        item = objects.job(name, gpus=max(gpus, pods), pods=pods)
        if "partial" in features:
            item["metadata"]["annotations"] = {MIN_PARALLELISM: "1"}
            item["spec"] |= {"parallelism": 4, "completions": 4}
        if "elastic" in features:
            item["metadata"]["annotations"] = {ELASTIC_JOB: "true"}
            del item["spec"]["completions"]
            item["spec"]["template"] |= {"spec": objects.pod("", gpus=1)["spec"]}
        if "topology" in features:
            item["spec"]["completionMode"] = "Indexed"
        if "prebuilt" in features:
            item["metadata"]["labels"] = {PREBUILT_WORKLOAD: name}
        return item

    def _dress(self, item: Item, queue: str, features: set[str]) -> None:
        """Say of a job, and of its pods, what its features are."""
        metadata = item["metadata"]
        metadata["namespace"] = QUEUES[queue]
        labels = metadata["labels"] = {**metadata.get("labels", {}), QUEUE_NAME: queue}
        if "priority" in features:
            labels[PRIORITY_CLASS] = self._random.choice(("research", "production"))
        if "time-limit" in features:
            labels[MAX_EXEC_TIME_SECONDS] = str(self._random.choice((3, 60)))
        seconds = 3600 if item["kind"] in ENDLESS else self._random.choice((1, 2, 4, 8))
        if item["kind"] == "TrainJob":  # its pods are described elsewhere
            metadata["annotations"] = {RUN_FOR: f"{seconds}s"}
        where = self._random.choice((PODSET_REQUIRED_TOPOLOGY, PODSET_PREFERRED_TOPOLOGY))
        for template in templates(item):
            given = template["metadata"] = template.get("metadata", {})
            annotations = given["annotations"] = dict(given.get("annotations", {}))
            if item["kind"] not in PARENTS:
                annotations[RUN_FOR] = f"{seconds}s"
            if "topology" in features:
                annotations[where] = demo.RACK_LABEL
            if "huge" in features:
                template["spec"]["containers"][0]["resources"]["limits"]["cpu"] = HUGE

    def _prebuilt(self, item: Item) -> Item:
        """Return the workload that a job names, of what the job is once it is created."""
        name, spec = item["metadata"]["name"], self._api.create(item, dry_run=True)["spec"]
        pods = {"name": "main", "count": spec["parallelism"], "template": spec["template"]}
        queue = item["metadata"]["labels"][QUEUE_NAME]
        limit = item["metadata"]["labels"].get(MAX_EXEC_TIME_SECONDS)
        time_limit = {"maximumExecutionTimeSeconds": int(limit)} if limit else {}
        spec = {"queueName": queue, "podSets": [pods], "active": True, **time_limit}
        made = cluster_object("Workload", name, **spec)
        made["metadata"]["namespace"] = item["metadata"]["namespace"]
        return made


def _path(metadata: Item) -> str:
    return f"{metadata['namespace']}/{metadata['name']}"


def _awaits_pods(workload: Item) -> bool:
    waits = condition(workload, WAITING_FOR_REPLACEMENT).get("status") == "True"
    return waits and bool(workload["spec"].get("active", True))


def _is_lost(pod: Item | None) -> bool:
    """Tell whether a pod is gone, or will be, or has failed."""
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return True
    return bool(pod.get("status", {}).get("phase") == "Failed")


def named(item: Item, name: str) -> Item:
    """Return a parent of that name, whose pods are found by it."""
    item["metadata"] = {"name": name}
    if item["kind"] != "LeaderWorkerSet":
        item["spec"]["selector"] = {"matchLabels": {"app": name}}
        item["spec"]["template"]["metadata"] = {"labels": {"app": name}}
    return item


def templates(value: Any) -> Iterator[Item]:
    """Yield every template of pods in an object, or the object if it is a pod."""
    if isinstance(value, list):
        for each in value:
            yield from templates(each)
    elif isinstance(value, dict):
        if isinstance(value.get("spec"), dict) and "containers" in value["spec"]:
            yield value
        else:
            for each in value.values():
                yield from templates(each)


PARENTS: dict[str, Callable[[], Item]] = {
    "Deployment": deployment,
    "StatefulSet": stateful_set,
    "LeaderWorkerSet": leader_worker_set,
}
KINDS = ("Job",) * 8 + ("Pod", "Pod", "PodGroup", "PodGroup", *PARENTS, *foreign.SPECS)
FEATURES = {
    "Job": ("plain", "partial", "elastic", "elastic", "topology", "topology", "prebuilt"),
    "TrainJob": ("plain",),  # its pods are described elsewhere
    "RayService": ("plain",),
    **{
        kind: ("plain", "plain", "topology")
        for kind in ("Pod", "PodGroup", *PARENTS, *foreign.SPECS)
        if kind not in {"TrainJob", "RayService"}
    },
}
COMMON = ("plain",) * 4 + ("priority",) * 4 + ("time-limit", "huge")
ACTS = {
    "create": 60,
    "resize": 8,
    "delete": 3,
    "kill_pod": 4,
    "deactivate": 3,
    "stop_queue": 3,
    "edit_quota": 3,
    "reprioritize": 3,
    "scale": 3,
    "lose_node": 2,
}
"""How often what is done."""

"""A soak: the load, the operators and the judges, from the first job to the last that is gone."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from policyd.api.kueue.names import FINISHED
from tests.faults.history import read_history
from tests.live.processes import memory_mb
from tests.scenarios.api import Refused, condition, eventually
from tests.soak.judge import (
    LATE,
    Memory,
    Quotas,
    Reasons,
    clock,
    refused,
)
from tests.soak.load import Load, Made
from tests.soak.operators import WORKLOADS, Operators, is_over
from tests.soak.replay import Replays
from tests.soak.stage import ACCOUNTS, QUEUES, TEAMS, Stage

ALL_KUEUE = "/registry/kueue.x-k8s.io/clusterqueues/"
"""Where the history begins that is judged: of ClusterQueues and all kinds after them."""

REASON_SECONDS = 10.0
TRUTH_SECONDS = 20.0
"""ADR 25: corrected 10 s after the last write, worked out anew 5 s after the last time, a second
between two looks; and the writes take their time."""
GROWTH_MB = 10.0
LOOK_SECONDS, REPLAY_SECONDS = 2.0, 5.0
END_SECONDS = 180.0
"""Until all jobs that can end have ended, and until what they leave behind is gone."""


@dataclass(eq=False)
class Watch(threading.Thread):
    """Looks at the cluster again and again while it is soaked."""

    stage: Stage
    replays: Replays
    quotas: Quotas
    reasons: Reasons = field(default_factory=Reasons)
    memory: dict[str, Memory] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    _revision: int = 0

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()

    def run(self) -> None:
        """Look until told to end."""
        replayed = time.monotonic()
        while not self._ended.wait(LOOK_SECONDS):
            try:
                self._look()
                if time.monotonic() - replayed >= REPLAY_SECONDS:
                    self.replays.look(self.stage.api)
                    self._read_on()
                    replayed = time.monotonic()
            except Exception as error:  # noqa: BLE001 - a judge that fails is told of, too
                if not (isinstance(error, Refused) and error.code in LATE):
                    self.faults.append(f"{clock(time.time())} the judge failed: {error!r}")

    def end(self) -> None:
        """End the thread, and judge what is left of the history."""
        self._ended.set()
        self.join(timeout=60)
        self._read_on()

    def _look(self) -> None:
        now = time.time()
        self.reasons.look(self.stage.api.call("GET", WORKLOADS)["items"], now)
        for name, process in self.stage.processes.items():
            process.alive()
            sample = (time.monotonic(), memory_mb(process.running.pid))
            self.memory.setdefault(name, Memory()).samples.append(sample)

    def _read_on(self) -> None:
        history = read_history(self.stage.etcd, since=self._revision + 1, first=ALL_KUEUE)
        self.quotas.go_through(history)
        self.replays.go_through(history)
        self._revision = max([self._revision, *(version.revision for version in history)])


@dataclass
class Soak:
    """A soak and what it found.

    Attributes:
        found: What must not be, by the judgement that it is a fault of.
        ended: How many jobs ended, by how.
    """

    seed: int
    found: dict[str, list[str]] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    figures: dict[str, Any] = field(default_factory=dict)

    def run(self, stage: Stage, minutes: float) -> None:
        """Soak a cluster, and judge."""
        self._stage = stage
        self.load = Load(stage.api, self.seed)
        operators = Operators(stage.api, self.seed, self.load.replace_lost)
        quotas = Quotas(self.load.answered)
        watch = self.watch = Watch(stage, Replays(stage.configuration, truth=TRUTH_SECONDS), quotas)
        operators.start()
        watch.start()
        self.load.run(time.monotonic() + minutes * 60)
        left = self._await_ends()
        watch.end()
        self._judge(left, operators)
        self._clear()
        operators.end()

    def _await_ends(self) -> list[Made]:
        """Wait until all jobs have ended that can; return those that have not."""
        with suppress(AssertionError):
            eventually(lambda: not self._open(), within=END_SECONDS)
        left = self._open()
        self.ended["left"] = len(left)
        self.ended["deleted by the soak"] = sum(m.state == "deleted" for m in self.load.jobs)
        return left

    def _open(self) -> list[Made]:
        """Return the jobs that could end, and have not."""
        objects = {
            kind: {
                (item["metadata"]["namespace"], item["metadata"]["name"]): item
                for team in TEAMS
                for item in self._stage.api.find(kind, team)
            }
            for kind in {item["kind"] for made in self.load.jobs for item in made.items}
        }
        workloads = self._stage.api.call("GET", WORKLOADS)["items"]
        self.ended = Counter()
        found = []
        for made in self.load.live():
            how = _ending(made, objects, workloads)
            self.ended[how] += 1
            if not how and not made.endless:
                found.append(made)
        return found

    def _judge(self, left: list[Made], operators: Operators) -> None:
        watch, stage = self.watch, self._stage
        note = self.found.setdefault
        note(
            "jobs that did not end",
            [
                f"{m.kind} {m.namespace}/{m.name} {sorted(m.features)} of {clock(m.made_at)}"
                for m in left
            ],
        )
        lines = stage.audit.read_text(errors="replace").splitlines()
        note(
            "writes that were refused", [f"{who}: {what}" for who, what in refused(lines, ACCOUNTS)]
        )
        note(
            "creations that were refused",
            [f"{count} x {text}" for text, count in self.load.refusals.get("create", {}).items()],
        )
        note("writes of operators that were refused", operators.refusals)
        note("more quota held than there is", watch.quotas.exceeded)
        note("left undone for over 10 s", list(watch.replays.defects.values()))
        note(
            f"another reason than the true one for over {TRUTH_SECONDS:.0f} s",
            list(watch.replays.worded.values()),
        )
        over = watch.reasons.over(REASON_SECONDS)
        note(
            f"no reason for over {REASON_SECONDS:.0f} s",
            [
                f"{key}: {seconds:.0f} s; it said: {' | '.join(watch.reasons.messages_by_job[key])}"
                for key, seconds in over.items()
            ],
        )
        note(
            "memory",
            [
                f"{name} grew by {memory.growth():.1f} MB over the second half"
                for name, memory in watch.memory.items()
                if memory.growth() > GROWTH_MB
            ],
        )
        note("what went wrong with the judge", watch.faults)

    def _clear(self) -> None:
        """Delete all jobs, and note what stays."""
        for made in self.load.live():
            self.load.delete(made)
        with suppress(AssertionError):
            eventually(lambda: not [*self._remains()], within=END_SECONDS)
        self.found["what stays when all jobs are deleted"] = [*self._remains()]

    def _remains(self) -> Iterator[str]:
        api = self._stage.api
        for kind in ("Pod", "Workload"):
            for team in TEAMS:
                for item in api.find(kind, team):
                    yield f"{kind} {team}/{item['metadata']['name']}"
        for name, namespace in QUEUES.items():
            for kind in ("ClusterQueue", "LocalQueue"):
                status = api.get(kind, name, namespace).get("status", {})
                for what in _held(status):
                    yield f"{kind} {name}: {what}"


def _ending(made: Made, objects: dict[str, Any], workloads: list[dict[str, Any]]) -> str:
    """Say how a job has ended; empty if it has not."""
    items = [objects[i["kind"]].get((made.namespace, i["metadata"]["name"])) for i in made.items]
    if None in items:
        return "gone"
    if all(is_over(item) for item in items):
        return "ended"
    uids = {item["metadata"]["uid"] for item in items}
    mine = [
        w for w in workloads if uids & {o["uid"] for o in w["metadata"].get("ownerReferences", ())}
    ]
    if mine and all(not w["spec"].get("active", True) for w in mine):
        return "deactivated"
    return "ended" if mine and all(condition(w, FINISHED) for w in mine) else ""


def _held(status: dict[str, Any]) -> Iterator[str]:
    for name in ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads"):
        if status.get(name):
            yield f"{status[name]} {name}"
    for flavor in status.get("flavorsUsage") or status.get("flavorUsage") or ():
        for resource in flavor["resources"]:
            if str(resource.get("total", "0")) != "0":
                yield f"{resource['total']} {resource['name']} of {flavor['name']} in use"

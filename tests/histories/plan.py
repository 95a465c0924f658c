"""What happens in a history, as data: made up from a seed, or read from a file."""

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import NamedTuple

HASH_SEED = "PYTHONHASHSEED"
"""With another one, sets of texts have another order, and a seed gives another history."""


def begin_with_hash_seed(module):
    """Start a command anew if texts have another order in its sets than in all histories."""
    if os.environ.get(HASH_SEED) != "0":
        command = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, HASH_SEED: "0"})


HOUR = 3600.0
GPUS = 8
"""Of a node, and nominally of each node's share of a queue."""

KINDS = ("Job", "Job", "Job", "Pod", "Pod", "PodGroup", "PodGroup", "JobSet")
OTHERS = ("AppWrapper", "MPIJob", "PyTorchJob", "RayJob", "TFJob")
"""Kinds of which a history has at most one, and none of their pods fails."""
LONGER = (1, 2, 4, 6)
"""Times as long do jobs run in a history: with 1, they use a quarter of the quota; with 6, more."""
LONGEST = 25
"""The same in large clusters: jobs run for three hours in the mean, and use most of the quota."""
BURSTS = (0.3, 0.3, 0.9)
"""Shares of the jobs that come in bursts, as a script submits them: then a queue forms."""
CLASSES = ("", "", "", "research", "production")
VALUES = {"research": 10, "production": 100}


@dataclass(frozen=True)
class Event:
    """One thing that happens at a moment, in seconds; `about` says to what, and how."""

    at: float
    act: str
    about: dict = field(default_factory=dict)

    @property
    def is_fault(self):
        return self.act in FAULTS


@dataclass(frozen=True)
class Plan:
    """A whole history: its seed orders all that is ready at the same time."""

    seed: int
    ends_at: float
    setting: dict
    events: tuple[Event, ...]

    def without(self, gone):
        """Return the plan without some events."""
        return replace(self, events=tuple(e for e in self.events if e not in gone))

    def as_json(self):
        return asdict(self)

    @classmethod
    def of(cls, read):
        return cls(**{**read, "events": tuple(Event(**each) for each in read["events"])})


class Size(NamedTuple):
    """How large the cluster is whose day is a history."""

    queues: int
    nodes: int
    workloads: int


def plan_of(seed, size=None):
    """Make a history up: of some hours, or of a day of a large cluster."""
    random = Random(seed)
    setting = _setting(random, size)
    _refine(Random(f"{seed}/refinements"), setting)
    hours = 24.0 if size else random.choice((3.5, 4.2, 4.5, 5.0, 5.5))
    setting["elects"] = random.random() < 0.15
    events = [*_jobs(random, setting, hours, size), *_changes(random, setting, hours)]
    events += _faults(random, setting, hours)
    events += _rarities(Random(f"{seed}/rarities"), setting, hours, events)
    events += list(_more_places(Random(f"{seed}/places"), events))
    events += list(_coincidences(Random(f"{seed}/coincidences"), events))
    return Plan(seed, hours * HOUR, setting, tuple(sorted(events, key=lambda e: e.at)))


def _setting(random, size):
    queues = {}
    fair = random.random() < 0.3
    count = 3 if fair else random.choice((1, 2, 2, 3))  # fair: two borrow what a third has left
    shares = (max(1, size.nodes // size.queues),) if size else (1, 1, 2)
    for name in [f"q{number}" for number in range(size.queues)] if size else "abc"[:count]:
        queues[name] = {
            "gpus": GPUS * random.choice(shares),
            "cohort": "all" if fair else random.choice(("", "all", "all")),
            "borrowing": random.choice((None, None, 4)),
            "lending": random.choice((None, None, 4)),
            "reclaim": random.choice(("Never", "Any", "LowerPriority")),
            "within": random.choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
            "strategy": random.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
            "checked": random.random() < 0.15,
        }
    nodes = sum(queue["gpus"] for queue in queues.values()) // GPUS + random.choice((0, 1))
    return {
        "queues": queues,
        "nodes": nodes,
        "topology": random.random() < 0.3,
        "kind": random.choice((*OTHERS, "")),
        "fair": fair,
    }


def _refine(random, setting):
    """Put some cohorts below another one, and weigh some queues that share fairly."""
    queues, nested = setting["queues"], random.random() < 0.4
    members = [queue for queue in queues.values() if queue["cohort"]]
    setting["cohorts"] = {}
    for queue in queues.values():
        queue["weight"] = random.choice((1, 2, 4)) if setting["fair"] else 1
    if nested and len(members) > 1:
        members[0]["cohort"] = "left"
        for queue in members[1:]:
            queue["cohort"] = "right"
        gpus = random.choice((0, GPUS))  # of all
        setting["nodes"] += gpus // GPUS
        setting["cohorts"] = {
            "all": {"parent": "", "gpus": gpus, "borrowing": None, "lending": None}
        } | {
            name: {"parent": "all", "gpus": 0}
            | {limit: random.choice((None, None, 4)) for limit in ("borrowing", "lending")}
            for name in ("left", "right")
        }
    for part in (*queues.values(), *setting["cohorts"].values()):
        if part["lending"] and random.random() < 0.5:
            part["lending"] = 3  # where all jobs have 4 GPUs, one more is seen
    if setting["fair"] and random.random() < 0.5:
        for queue in queues.values():  # weights alone decide
            queue |= {"borrowing": None, "lending": None, "reclaim": "Any"}


def _jobs(random, setting, hours, size) -> Iterator[Event]:
    longer, bursts = random.choice((LONGEST,) if size else LONGER), random.choice(BURSTS)
    queues = sorted(setting["queues"])
    seldom = random.choice(queues)  # used: others borrow from it
    weights = [1 if name == seldom else 4 for name in queues]
    alike = random.random() < 0.5  # all jobs: what one leaves, any other may take
    for number in range(size.workloads if size else random.randint(26, 42)):
        kind = random.choice((*KINDS, setting["kind"] or "Job"))
        pods = 1 if kind == "Pod" else random.choice((1, 2, 2) if alike else (1, 2, 2, 3))
        sizes = (GPUS // 2 // pods,) if alike else (1, 2, 4, 8)
        gpus = random.choice([each for each in sizes if each * pods <= GPUS])
        about = {
            "name": f"{kind.lower()}-{number}",
            "kind": kind,
            "queue": random.choices(queues, weights)[0],
            "pods": pods,
            "gpus": gpus,
            "seconds": int(longer * random.choice((30, 120, 600, 1200)) * (0.5 + random.random())),
            "class": random.choice(CLASSES),
            "fails": kind not in {"PodGroup", *OTHERS} and random.random() < 0.08,
            "least": 1 if kind == "Job" and pods > 1 and random.random() < 0.2 else 0,
            "topology": random.choice(("", "required", "preferred")) if setting["topology"] else "",
        }
        if kind in OTHERS:
            about |= {"gpus": random.choice((2, 4, 8)), "topology": ""}
        strict = setting["queues"][about["queue"]]["strategy"] == "StrictFIFO"
        if (
            random.random() < 0.03 and not strict and kind not in OTHERS
        ):  # more than there ever is; others go on
            about |= {"gpus": HOPELESS, "pods": 1, "least": 0, "topology": ""}
        at = random.random() * (hours - 1) * HOUR
        if random.random() < bursts:
            at = at // 1800 * 1800 + random.random()
        yield Event(at, "submit", about)
        for act, rate in (("delete", 0.08), ("kill pod", 0.08), ("cheat", 0.1), ("edit", 0.08)):
            if random.random() < rate:
                later = random.choice((0.01, 1.0, 30.0, 600.0)) * random.random()
                most = 0.5 if about["gpus"] == HOPELESS else 1.0  # not to a StrictFIFO queue
                how = {"name": about["name"], "how": most * random.random()}
                yield Event(at + later, act, how)


def _more_places(random, events) -> Iterator[Event]:
    """Let some Jobs have more places than pods are to succeed, or more pods to succeed.

    Yield that pods of these are killed, so that others end before the pods that replace them.
    """
    for each in events:
        about = each.about
        if each.act != "submit" or about["kind"] != "Job" or about["pods"] < 2 or about["least"]:
            continue
        about["more"] = random.choice((0, 0, 1, -1))
        for _ in range(2 if about["more"] else 0):
            at = each.at + 3 * about["seconds"] * random.random()
            yield Event(at, "kill pod", {"name": about["name"], "how": random.random()})


HOPELESS = 999
"""GPUs of a job that waits for ever."""

CHANGES = ("quota", "hold", "drain", "deactivate", "node lost", "node drained", "node added",
           "preemption")  # fmt: skip


def _changes(random, setting, hours) -> Iterator[Event]:
    for _ in range(random.randint(3, 7)):
        at, act = random.random() * (hours - 1) * HOUR, random.choice(CHANGES)
        lasts = random.choice((20.0, 300.0, 1500.0)) * random.random()
        about = {"lasts": lasts, "how": random.random()}
        if act in {"quota", "hold", "drain", "preemption"}:
            about["queue"] = random.choice(sorted(setting["queues"]))
        yield Event(at, act, about)


def _rarities(random, setting, hours, events) -> Iterator[Event]:
    """Yield what happens to a LocalQueue, or to a job whose operator finds it invalid for a while.

    Where controllers elect a leader, two are frozen, one as it takes the Lease of the other. These
    events have numbers of their own, so that all else is as it would be without them.
    """
    if random.random() < 0.3:
        at, lasts = random.random() * (hours - 1) * HOUR, 900 * random.random()
        how, queue = random.random(), random.choice(sorted(setting["queues"]))
        yield Event(at, "local queue", {"lasts": lasts, "queue": queue, "how": how})
    for each in events:
        if each.about.get("kind") == "RayJob" and each.act == "submit" and random.random() < 0.5:
            about = {"name": each.about["name"], "lasts": 300 + 300 * random.random()}
            later = random.choice((0.1, 60.0)) * random.random()  # some before they have quota
            yield Event(each.at + later, "invalid", about)
    submitted = [each.at for each in events if each.act == "submit"]
    for at in random.sample(submitted, 3) if setting["elects"] else ():
        about = {"lasts": 365 + 35 * random.random(), "number": random.choice((2, 3, 4, 6, 9))}
        yield Event(at, "leaders frozen", about)


def _coincidences(random, events) -> Iterator[Event]:
    """Yield what else would hardly come together.

    A user deletes the Workload of a job that stands; and an admission is written, while others come
    and neither an answer nor a watch says so.
    """
    submitted = [each for each in events if each.act == "submit"]
    for each in random.sample(submitted, random.choice((0, 1))):
        at = each.at + each.about["seconds"] * random.random()
        yield Event(at, "workload deleted", {"name": each.about["name"]})
    for each in random.sample(submitted, random.choice((0, 0, 1))):
        yield Event(each.at, "unanswered admission", {"lasts": 60.0})


WINDOWS = {
    "429": (0.2, 0.6), "500": (0.1, 0.5), "unreachable": (0.1, 0.5),
    "time-out before": (0.02, 0.1), "time-out after": (0.02, 0.1),
    "conflict": (0.2, 0.8), "delay": (0.1, 0.6), "silence": (0.02, 0.1),
    "loss": (0.05, 0.4), "repeat": (0.2, 0.8),
}  # fmt: skip
"""Faults of requests and of watches, each with its rate while it lasts."""

MOMENTS = ("crash", "freeze", "clock", "server down", "webhooks down", "compaction", "cut")
FAULTS = frozenset({*WINDOWS, *MOMENTS, "leader lost", "leaders frozen", "crash at a write",
                    "freeze at a write", "unanswered admission"})  # fmt: skip


def _faults(random, setting, hours) -> Iterator[Event]:
    moments = (*MOMENTS, *2 * ("crash at a write",), "crash", "freeze at a write")
    if setting["elects"]:
        moments = (*moments, "leader lost", *2 * ("freeze",), *4 * ("freeze at a write",))
    for _ in range(random.randint(5, 10)):
        at = random.random() * (hours - 1) * HOUR
        act = random.choice((*moments, *WINDOWS))
        about = {"lasts": random.choice((1.0, 20.0, 90.0, 240.0)) * random.random()}
        if act.startswith("freeze") and setting["elects"]:
            about["lasts"] += 800 * random.random()  # another process leads meanwhile
        if act in WINDOWS:
            least, most = WINDOWS[act]
            about["rate"] = least + (most - least) * random.random()
            about["lasts"] = 30 + about["lasts"] * 3
        if act.endswith("at a write"):
            about["number"] = random.choice((1, 1, 2, 3, 5, 8))
        if act == "crash at a write":
            about["after"] = random.random() < 0.5
        if act == "clock":
            about["seconds"] = random.choice((-600.0, -5.0, 3.0, 400.0)) * random.random()
        yield Event(at, act, about)

"""A random cluster, a question about it, the change, and what then happens."""

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from policyd.alloc.settings import DEFAULTS
from policyd.api.configuration import decode_configuration
from policyd.cli.formats.changes import changed
from policyd.cli.formats.scenario_jobs import SkippedJobs
from policyd.cli.questions.what_if import Horizon, what_if
from policyd.controller.queues.queue_settings import queue_settings
from policyd.kube.errors import NotFoundError
from policyd.questions.queue_objects import queue_objects
from policyd.status.naming import Names
from tests.what_ifs.virtual import RESOURCES, virtual_cluster

GPU, KUEUE, SPACE = "nvidia.com/gpu", "kueue.x-k8s.io/v1beta2", "team"
FLAVORS = ("h100", "a100")
EARLIEST, LATEST = 3_000, 200_000
"""How long jobs run, in seconds: long enough that two of them hardly ever end at the same time."""
AGES = 100_000
"""Over how many seconds jobs have come when the question is asked."""
APART = 1.0
"""Events that are closer, in seconds, happen in an order that nobody can know."""
STILL = LATEST + 100_000
"""Seconds without a start, a stop or an end after which nothing happens any more: no job runs for
so long, nor waits for so long until its queue reserves quota."""
LONG = 5_000_000
"""Seconds after which everything has happened."""


def queue(rng, name, flavors):
    """A ClusterQueue with random quotas and policies."""
    options = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
    cohort = "all" if rng.random() < 0.7 else ""
    preemption = {"withinClusterQueue": rng.choice(options)}
    if cohort:
        preemption["reclaimWithinCohort"] = rng.choice(["Never", "LowerPriority", "Any"])
    quotas = []
    for flavor in flavors:
        quota = {"name": GPU, "nominalQuota": rng.randint(2, 8)}
        if cohort and rng.random() < 0.4:
            quota["borrowingLimit"] = rng.randint(0, 6)
        quotas.append({"name": flavor, "resources": [quota]})
    annotations = {}
    if rng.random() < 0.25:
        annotations["policyd.io/reserve-after"] = f"{rng.randint(5, 300)}m"
    return {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "cohortName": cohort,
            "namespaceSelector": {},
            "queueingStrategy": rng.choice(["BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"]),
            "preemption": preemption,
            "fairSharing": {"weight": str(rng.randint(1, 4))},
            "resourceGroups": [{"coveredResources": [GPU], "flavors": quotas}],
        },
    }


def local_queue(name):
    metadata = {"name": name, "namespace": SPACE}
    spec = {"clusterQueue": name}
    return {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata, "spec": spec}


def flavor_and_node(name):
    """A flavor, and one node that holds whatever the quotas of the flavor allow."""
    labels = {"gpu": name, "kubernetes.io/hostname": name}
    room = {GPU: "1000", "cpu": "1000", "memory": "10Ti", "pods": "1000"}
    yield {
        "apiVersion": KUEUE,
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": {"gpu": name}},
    }
    yield {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": room, "allocatable": room},
    }


def job(rng, name, queues, *, declares=True):
    """A Job that runs for a random time, and may be stopped before by its limit."""
    runs = rng.randint(EARLIEST, LATEST)
    labels = {"kueue.x-k8s.io/queue-name": rng.choice(queues)}
    if rng.random() < 0.5:
        labels["kueue.x-k8s.io/priority-class"] = rng.choice(["low", "high"])
    if declares and rng.random() < 0.3:
        labels["kueue.x-k8s.io/max-exec-time-seconds"] = str(
            rng.randint(EARLIEST, 2 * LATEST) // 10 * 10 + 7
        )
    requests = {GPU: str(rng.choice([1, 1, 2, 2, 3, 4, 5, 7]))}
    container = {"name": "c", "image": "i", "resources": {"limits": requests}}
    metadata = {}
    if declares:
        metadata["annotations"] = {"policyd.io/run-for": f"{runs}s"}
    else:
        container["command"] = ["sleep", str(runs)]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": SPACE, "labels": labels},
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            "template": {
                "metadata": metadata,
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


@dataclass
class Trial:
    """A random cluster with its jobs, and a change.

    Attributes:
        objects: Queues, flavors and nodes.
        configuration: Kueue's Configuration, as a list of one; empty for its defaults.
        jobs: Jobs, with when each comes, in seconds.
        asked: When the question is asked.
        change: What is changed, as `changed` takes it.
        declared: Whether all jobs declare how long they run.
    """

    seed: int
    objects: list = field(default_factory=list)
    configuration: list = field(default_factory=list)
    jobs: list = field(default_factory=list)
    asked: int = 0
    change: dict = field(default_factory=dict)
    declared: bool = True


def trial_of(seed):
    """Make a trial of a number."""
    rng, made = Random(seed), Trial(seed)
    flavors = FLAVORS[: rng.randint(1, 2)]
    names = [f"q{n}" for n in range(rng.randint(1, 3))]
    queues = [queue(rng, name, flavors) for name in names]
    made.objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
        *(each for name in flavors for each in flavor_and_node(name)),
        *(
            {
                "apiVersion": KUEUE,
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
            for name, value in (("low", 1), ("high", 10))
        ),
        *queues,
        *map(local_queue, names),
    ]
    if rng.random() < 0.3:
        api, strategies = "config.kueue.x-k8s.io/v1beta2", ["LessThanOrEqualToFinalShare"]
        fair = {"preemptionStrategies": strategies}
        made.configuration = [{"apiVersion": api, "kind": "Configuration", "fairSharing": fair}]
    made.declared = rng.random() >= 0.03
    count = rng.randint(6, 12)
    times = sorted(rng.sample(range(10, AGES, 5), count))
    silent = set() if made.declared else {rng.randrange(count)}
    made.jobs = [
        (at, job(rng, f"j{n}", names, declares=n not in silent)) for n, at in enumerate(times)
    ]
    made.asked = times[-1] + rng.randint(10, 9_999)
    made.change = rng.choice(CHANGES)(rng, queues, names, made.jobs)
    return made


def submission(rng, _queues, names, _jobs):
    return {"submitted": [job(rng, "new", names)]}


def other_quota(rng, queues, _names, _jobs):
    chosen = rng.choice(queues)
    quotas = [
        {**each, "resources": [{**each["resources"][0], "nominalQuota": rng.randint(1, 16)}]}
        for each in chosen["spec"]["resourceGroups"][0]["flavors"]
    ]
    return applied(chosen, {"resourceGroups": [{"coveredResources": [GPU], "flavors": quotas}]})


def other_policy(rng, queues, _names, _jobs):
    chosen = rng.choice(queues)
    reclaim = {"reclaimWithinCohort": "Any"} if chosen["spec"]["cohortName"] else {}
    return applied(chosen, {"preemption": {"withinClusterQueue": "LowerPriority", **reclaim}})


def hold(rng, queues, names, _jobs):
    chosen = rng.choice([*queues, *map(local_queue, names)])
    return applied(chosen, {"stopPolicy": "Hold"})


def other_weight(rng, queues, _names, _jobs):
    weight = {"fairSharing": {"weight": str(rng.randint(1, 9))}}
    return applied(rng.choice(queues), weight)


def deletion(rng, _queues, _names, jobs):
    return {"deleted": [f"job/{rng.choice(jobs)[1]['metadata']['name']}"]}


def new_queue(rng, queues, _names, _jobs):
    flavors = [each["name"] for each in queues[0]["spec"]["resourceGroups"][0]["flavors"]]
    return {"applied": [queue(rng, "q9", flavors)]}


CHANGES = (
    submission, submission, other_quota, other_policy, hold, other_weight, deletion, new_queue,
)  # fmt: skip


def applied(each, spec):
    """Some fields of an object, changed."""
    return {"applied": [{"kind": each["kind"], "metadata": each["metadata"], "spec": spec}]}


@dataclass
class Outcome:
    """What was said, and what happened, by job: starts and stops in seconds after the question.

    Attributes:
        predicted: As the answer has it; None for a job of which it is unknown.
        observed: As the cluster did it.
        deterministic: Whether all run times are declared, and no two events happen at once.
        unknown: For how many jobs something was unknown.
    """

    predicted: dict
    observed: dict
    deterministic: bool
    unknown: int

    @property
    def differences(self):
        """Jobs for which what was said is not what happened."""
        return {
            name: (predicted, self.observed.get(name))
            for name, predicted in self.predicted.items()
            if predicted is not None and not alike(predicted, self.observed.get(name, ([], [])))
        }


def alike(predicted, observed):
    """Tell whether starts and stops are the same, to a second."""
    return all(
        len(a) == len(b) and all(abs(x - y) <= 1.0 for x, y in zip(a, b, strict=True))
        for a, b in zip(predicted, observed, strict=True)
    )


async def run(trial):
    """Ask, make the change, let time pass, and return what was said and what happened."""
    settings = DEFAULTS
    for each in trial.configuration:
        settings = queue_settings(decode_configuration(each))
    async with virtual_cluster(trial.objects, settings) as cluster:
        for at, body in trial.jobs:
            await cluster.until(at)
            await cluster.create(body)
        await cluster.until(trial.asked)
        now = cluster.clock.now()
        objects = [*(await queue_objects(cluster.client, print)), *trial.configuration]
        after = changed(objects, namespace=SPACE, **trial.change)
        answer = what_if(objects, after, Horizon(now), SkippedJobs(Names()))
        await make(cluster, trial.change)
        await cluster.until_still(STILL, at_most=trial.asked + LONG)
    predicted = {each.job.rpartition("/")[2]: times_of(each.after) for each in answer.differences}
    gone = {each.job.rpartition("/")[2] for each in answer.differences if each.change == "Gone"}
    observed = {
        name: tuple(
            [at - trial.asked for at in times.get(name, ()) if at >= trial.asked]
            for times in (cluster.starts, cluster.stops)
        )
        for name in {*cluster.starts, *cluster.stops}
    }
    predicted = {name: each for name, each in predicted.items() if name not in gone}
    unknown = sum(each is None for each in predicted.values())
    events = sorted(at for at in (*cluster.ends.values(), *set(dues(trial))) if at > trial.asked)
    crowded = any(b - a < APART for a, b in pairwise([trial.asked, *events]))
    return Outcome(predicted, observed, trial.declared and not crowded, unknown)


def dues(trial):
    """Yield when jobs have waited for so long that their queue reserves quota for them."""
    for each in (*trial.objects, *trial.change.get("applied", ())):
        annotation = each["metadata"].get("annotations", {}).get("policyd.io/reserve-after")
        for at, body in trial.jobs if annotation else ():
            if body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == each["metadata"]["name"]:
                yield at + 60 * int(annotation[:-1])


def times_of(stay):
    """Return the starts and the stops of an answer; None if something is unknown."""
    if stay is None or stay.known_seconds is not None:
        return None
    starts = [] if stay.seconds is None else [stay.seconds]
    return [*starts, *stay.restarts], [each.seconds for each in stay.stops]


async def make(cluster, change):
    """Make a change in the cluster."""
    for word in change.get("deleted", ()):
        _, _, name = word.partition("/")
        with suppress(NotFoundError):
            await cluster.client.delete(
                RESOURCES["Job"], name, namespace=SPACE, propagation="Background"
            )
    for each in change.get("applied", ()):
        name, resource = each["metadata"]["name"], RESOURCES[each["kind"]]
        namespace = SPACE if each["kind"] == "LocalQueue" else ""
        try:
            await cluster.client.patch(
                resource, name, {"spec": each["spec"]}, into=dict, namespace=namespace
            )
        except NotFoundError:
            await cluster.create(each)
    for each in change.get("submitted", ()):
        await cluster.create(each)

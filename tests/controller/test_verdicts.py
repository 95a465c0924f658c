"""A verdict on a job is what the controller then decides about it."""

import gzip

import pytest

from policyd.admission.verdicts import submission_of, verdict
from policyd.controller.queues.hours import TICK_SECONDS
from policyd.controller.queues.snapshots import AdmissionSnapshots
from policyd.jobs.rules.defaults import default_on_create
from policyd.jobs.rules.surroundings import NOWHERE
from policyd.kube import resources as r
from policyd.patch.draft import Draft
from policyd.snapshot.outlook import Outlook
from policyd.snapshot.reading import read
from policyd.usage.budgets import HOLD, HOURS, TIME_ZONE
from tests.controller.world import QUEUE, World, pod_spec

pytestmark = pytest.mark.anyio

LABELS = {"team": "a"}


async def outlook_of(world):
    pace = world.clock.pace()
    body = await AdmissionSnapshots(world.controller.cache, pace=pace).unless("")
    snapshot = read(gzip.decompress(body), "test")
    return Outlook(snapshot, snapshot.rules)


async def foreseen(world, body, group="batch", kind="Job"):
    draft = Draft(body)
    default_on_create(draft, group=group, kind=kind)
    submission = submission_of(draft.object, group, kind, NOWHERE, "ns")
    if submission is None:
        return None
    outlook = await outlook_of(world)
    now = world.clock.now()
    return verdict(outlook, submission, namespace_labels=LABELS, now=now)


def job(gpus=8, queue="lq-cq", name="new", labels=(), **spec):
    template = {"spec": {**pod_spec(gpus), **spec}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {QUEUE: queue, **dict(labels)}},
        "spec": {"parallelism": 1, "template": template},
    }


def two_queues(world, **more):
    """A cohort of a queue with 8 GPUs and another that lends 8."""
    world.furnish(gpus=8, cohort="research", **more)
    world.queue("lender", gpus=8, cohort="research")


def preempting(world):
    within = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    world.furnish(gpus=8, **within)
    for name, value in (("high", 100), ("low", -100)):
        world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})


HIGH, LOW = (("kueue.x-k8s.io/priority-class", name) for name in ("high", "low"))
SCENARIOS = [
    pytest.param(
        lambda world: world.furnish(gpus=8),
        [],
        {"gpus": 8},
        "would start now: 8 nvidia.com/gpu of h100 from cq",
        True,
        id="fits",
    ),
    pytest.param(
        two_queues,
        [{"gpus": 4}],
        {"gpus": 8},
        "would start now: 8 nvidia.com/gpu of h100 from cq, 4 of them borrowed from research",
        True,
        id="borrows",
    ),
    pytest.param(
        lambda world: two_queues(world, limits={"borrowingLimit": "2"}),
        [{"gpus": 4}],
        {"gpus": 8},
        "would wait: 1st in cq, 2 more nvidia.com/gpu needed",
        False,
        id="may-not-borrow-as-much",
    ),
    pytest.param(
        lambda world: world.furnish(gpus=8),
        [{"gpus": 8}, {"gpus": 8}, {"gpus": 8}],
        {"gpus": 8},
        "would wait: 3rd in cq, 8 more nvidia.com/gpu needed",
        False,
        id="waits",
    ),
    pytest.param(
        lambda world: world.furnish(gpus=8),
        [{"gpus": 6}, {"gpus": 8}],
        {"gpus": 2},
        "would start now: 2 nvidia.com/gpu of h100 from cq",
        True,
        id="passes-one-that-does-not-fit",
    ),
    pytest.param(
        lambda world: world.furnish(gpus=8, queueingStrategy="StrictFIFO"),
        [{"gpus": 6}, {"gpus": 8}],
        {"gpus": 2},
        "would wait: 2nd in cq, where those before it go first",
        False,
        id="strict-fifo",
    ),
    pytest.param(
        lambda world: world.furnish(gpus=8),
        [],
        {"gpus": 9},
        "can never start in cq: 9 nvidia.com/gpu of h100 requested, 8 is all that it can ever have",
        False,
        id="never-fits",
    ),
    pytest.param(
        lambda world: world.furnish(gpus=8),
        [],
        {"queue": "lq-qc"},
        "would wait: there is no LocalQueue lq-qc yet; namespace ns has lq-cq"
        " (did you mean `lq-cq`?)",
        False,
        id="missing-queue",
    ),
    pytest.param(
        lambda world: world.furnish(gpus=8, stopPolicy="Hold"),
        [],
        {},
        "would wait: ClusterQueue cq is not active: Can't admit new workloads: is stopped.",
        False,
        id="stopped-cluster-queue",
    ),
    pytest.param(
        lambda world: world.furnish(gpus=8, namespaceSelector={"matchLabels": {"team": "b"}}),
        [],
        {},
        "would wait: ClusterQueue cq takes no workloads of namespace ns: its namespaceSelector does"
        " not match",
        False,
        id="of-another-namespace",
    ),
    pytest.param(
        lambda world: world.furnish(gpus=8),
        [],
        {"nodeSelector": {"gpu": "a100"}},
        "can never start in cq: couldn't assign flavors to pod set main: flavor h100 doesn't match"
        " node affinity",
        False,
        id="refused-flavor",
    ),
    pytest.param(
        preempting,
        [{"gpus": 8}],
        {"labels": (HIGH,)},
        "would start now once a workload is preempted: 8 nvidia.com/gpu of h100 from cq",
        True,
        id="preempts",
    ),
    pytest.param(
        preempting,
        [{"gpus": 8}, {"gpus": 8}, {"gpus": 8, "labels": (LOW,)}],
        {"labels": (LOW,)},
        "would wait: 3rd in cq, 8 more nvidia.com/gpu needed",
        False,
        id="of-low-priority",
    ),
    pytest.param(
        preempting,
        [],
        {"labels": (("kueue.x-k8s.io/priority-class", "huge"),)},
        "would wait: there is no WorkloadPriorityClass huge; there is high, low",
        False,
        id="missing-priority-class",
    ),
    pytest.param(
        lambda world: world.furnish(gpus=8),
        [],
        {"gpus": 0},
        "would start now: it requests no quota of cq",
        True,
        id="requests-nothing",
    ),
]


@pytest.mark.parametrize(("furnish", "before", "new", "said", "starts"), SCENARIOS)
async def test_the_controller_decides_as_it_was_said(furnish, before, new, said, starts):
    world = World()
    furnish(world)
    await world.start()
    for number, each in enumerate(before):
        submit(world, job(name=f"before-{number}", **each))
        await world.pass_time(2)
    body = job(**new)
    found = await foreseen(world, body)
    objects = len(world.all(r.WORKLOADS))

    submit(world, body)
    await world.pass_time(2)
    await world.pass_time(30)  # jobs that are preempted stop

    assert found == said
    assert objects == len(before)
    assert world.is_true("new", "QuotaReserved") is starts
    await world.kill()


def submit(world, body):
    draft = Draft(body)
    default_on_create(draft, group="batch", kind="Job")
    world.create(r.JOBS, draft.object)


async def test_a_budget_that_holds_is_said_before_a_job_is_created():
    world = World()
    world.furnish(gpus=8)
    queue = world.get(r.CLUSTER_QUEUES, "cq")
    budget = {HOURS: "0", TIME_ZONE: "Europe/Berlin", HOLD: "true"}
    world.put(r.CLUSTER_QUEUES, {**queue, "metadata": {**queue["metadata"], "annotations": budget}})
    await world.start()
    used_up = (
        "the budget of cq for November, 0 GPU-hours, is used up; it renews on 2023-12-01 00:00"
        " Europe/Berlin"
    )

    assert await foreseen(world, job()) == f"would wait: {used_up}"
    assert "budget" not in await foreseen(world, job(gpus=0))

    budget[HOLD] = "false"
    world.put(r.CLUSTER_QUEUES, {**queue, "metadata": {**queue["metadata"], "annotations": budget}})
    await world.pass_time(TICK_SECONDS)
    said = await foreseen(world, job())
    assert said.startswith("would start now: ")
    assert said.endswith(f"; {used_up}")
    await world.kill()

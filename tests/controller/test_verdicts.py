"""A verdict on a job is what the controller then decides about it."""

import gzip

import pytest

from policyd.admission.submissions import submission_of
from policyd.admission.verdicts import verdict
from policyd.controller.queues.bases import REFRESH_SECONDS as BASES_SECONDS
from policyd.controller.queues.forecasts import REFRESH_SECONDS
from policyd.controller.queues.hours import TICK_SECONDS
from policyd.controller.queues.snapshots import AdmissionSnapshots
from policyd.controller.settings import ForecastsSettings
from policyd.controller.watch.mirrors import job_resource
from policyd.jobs.kinds.train_job import TRAIN_JOB
from policyd.jobs.rules.defaults import default_on_create
from policyd.jobs.rules.surroundings import NOWHERE
from policyd.kube import resources as r
from policyd.patch.draft import Draft
from policyd.snapshot.dry_run import AdmissionDryRun
from policyd.snapshot.new_workloads import ASKED_SECONDS
from policyd.snapshot.reading import read
from policyd.usage.budgets import HOLD, HOURS, TIME_ZONE
from tests.controller.test_job_kinds import RUNTIME, runtime, train
from tests.controller.world import QUEUE, World, pod_spec

pytestmark = pytest.mark.anyio

LABELS = {"team": "a"}
TRAIN_JOBS = job_resource(TRAIN_JOB)


async def dry_run_of(world):
    pace = world.clock.pace()
    body = await AdmissionSnapshots(world.controller.cache, pace=pace).unless("")
    snapshot = read(gzip.decompress(body), "test")
    return AdmissionDryRun(snapshot, snapshot.rules)


async def foreseen(world, body, group="batch", kind="Job"):
    draft = Draft(body)
    default_on_create(draft, group=group, kind=kind)
    submission = submission_of(draft.object, group, kind, NOWHERE, "ns")
    if submission is None:
        return None
    dry_run = await dry_run_of(world)
    now = world.clock.now()
    return verdict(dry_run, submission, namespace_labels=LABELS, now=now)


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


@pytest.mark.parametrize(("furnish", "before", "new", "reason", "starts"), SCENARIOS)
async def test_the_controller_decides_as_predicted(furnish, before, new, reason, starts):
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

    assert found == reason
    assert objects == len(before)
    assert world.is_true("new", "QuotaReserved") is starts
    await world.kill()


async def forecasting(furnish, *before, limit=900):
    """Return a world with jobs that run for so long at most, once their ends are known."""
    world = World()
    world.forecasts = ForecastsSettings()
    furnish(world)
    await world.start()
    for number, each in enumerate(before):
        body = job(name=f"before-{number}", **each)
        if limit:
            body["spec"]["activeDeadlineSeconds"] = limit
        submit(world, body)
        await world.pass_time(2)
    await dry_run_of(world)  # the webhooks ask all the time
    await world.pass_time(2 * REFRESH_SECONDS)
    return world


ONE = "would wait: 1st in cq, 8 more nvidia.com/gpu needed"
TWO = "would wait: 2nd in cq, 8 more nvidia.com/gpu needed"
SEVEN = "would wait: 1st in cq, 7 more nvidia.com/gpu needed"


@pytest.mark.parametrize(
    ("furnish", "before", "new", "expected"),
    [
        pytest.param(
            lambda world: world.furnish(gpus=8),
            [{}],
            {},
            f"{ONE}; start in 15 min",
            id="behind-one-that-runs",
        ),
        pytest.param(
            lambda world: world.furnish(gpus=8),
            [{}, {}],
            {},
            f"{TWO}; start in 30 min",
            id="behind-another",
        ),
        pytest.param(
            lambda world: world.furnish(gpus=8, queueingStrategy="StrictFIFO"),
            [{}, {}],
            {},
            f"{TWO}; start in 30 min",
            id="strict",
        ),
        pytest.param(
            lambda world: two_queues(world, limits={"borrowingLimit": "0"}),
            [{}],
            {},
            f"{ONE}; start in 15 min",
            id="in-a-cohort",
        ),
        pytest.param(
            lambda world: world.furnish(gpus=8),
            [{"gpus": 8}],
            {"gpus": 7},
            f"{SEVEN}; start in 15 min",
            id="between-two-sizes",
        ),
        pytest.param(preempting, [{}], {"labels": (LOW,)}, ONE, id="where-preemption-decides"),
    ],
)
async def test_the_start_in_a_verdict_is_that_of_the_job(furnish, before, new, expected):
    world = await forecasting(furnish, *before)
    since = world.clock.now()
    body = job(**new)

    found = await foreseen(world, body)
    submit(world, body)
    for number in range(len(before)):
        await world.pass_time(900 - (world.clock.now() - since) % 900 - 20 * (not number))
        assert not world.is_true("new", "QuotaReserved")
        world.end_job(f"before-{number}")
        await world.pass_time(3)

    assert found == expected
    assert world.is_true("new", "QuotaReserved")
    await world.kill()


async def test_there_is_no_start_once_the_queue_has_changed():
    world = await forecasting(lambda world: world.furnish(gpus=8), {})
    submit(world, job(name="meanwhile"))
    await world.pass_time(1)

    assert await foreseen(world, job()) == TWO
    await world.kill()


async def test_there_is_no_start_if_it_is_unknown():
    world = await forecasting(lambda world: world.furnish(gpus=8), {}, limit=None)

    assert await foreseen(world, job()) == ONE
    await world.kill()


async def test_the_verdict_on_a_train_job_is_by_its_runtime():
    world = World()
    world.furnish(gpus=8)
    world.put(RUNTIME, runtime())
    await world.start()
    name = RUNTIME.group, "TrainJob"
    body = {
        "apiVersion": f"{RUNTIME.group}/{RUNTIME.version}",
        "kind": "TrainJob",
        "metadata": {"name": "train", "labels": {QUEUE: "lq-cq"}},
        "spec": train(8),
    }

    assert await foreseen(world, body, *name) == "", "no job has named the runtime yet"
    draft = Draft({**body, "metadata": {**body["metadata"], "name": "first"}})
    default_on_create(draft, group=name[0], kind=name[1])
    world.create(TRAIN_JOBS, draft.object)
    await world.pass_time(1.5 * BASES_SECONDS)
    body["spec"]["trainer"]["numNodes"] = 3

    assert await foreseen(world, body, *name) == (
        "can never start in cq: 12 nvidia.com/gpu of h100 requested, 8 is all that it can ever have"
    )
    await world.kill()


async def test_probes_are_forecast_on_request_only():
    world = await forecasting(lambda world: world.furnish(gpus=8), {})
    assert world.controller.cache.new_starts

    await world.pass_time(ASKED_SECONDS + 2 * REFRESH_SECONDS)

    assert not world.controller.cache.new_starts
    await world.kill()


def submit(world, body):
    draft = Draft(body)
    default_on_create(draft, group="batch", kind="Job")
    world.create(r.JOBS, draft.object)


async def test_a_verdict_before_creation_names_a_budget_that_holds():
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
    verdict = await foreseen(world, job())
    assert verdict.startswith("would start now: ")
    assert verdict.endswith(f"; {used_up}")
    await world.kill()

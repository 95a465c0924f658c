"""What the embedded Job controller does about a Job and its pods."""

from types import SimpleNamespace

import msgspec
import pytest

from policyd.api.meta import condition_true
from policyd.kube.changes import Added
from policyd.kube.resources import JOBS
from policyd.local.job_controller import INDEX, UNSEEN_SECONDS, JobController, pod_of, reconcile
from policyd.local.objects import Job, LocalPod
from policyd.testing import FakeClient

NOW = 1767225600.0


def job(*, status=None, **spec):
    spec.setdefault("template", {"spec": {"containers": [{"name": "main"}]}})
    metadata = {"name": "train", "namespace": "team-a", "uid": "1"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status or {}}, Job)


def pods(*phases, index=False):
    return [
        msgspec.convert(
            {
                "metadata": {
                    "name": f"train-{number}",
                    "annotations": {INDEX: str(number)} if index else {},
                },
                "status": {"phase": phase},
            },
            LocalPod,
        )
        for number, phase in enumerate(phases)
    ]


@pytest.mark.parametrize(
    ("given", "existing", "created"),
    [
        pytest.param(job(), [], (None,), id="one-pod-unless-told"),
        pytest.param(job(parallelism=3, completions=3), [], (None,) * 3, id="all-in-parallel"),
        pytest.param(
            job(parallelism=2, completions=3), pods("Running"), (None,), id="room-is-used"
        ),
        pytest.param(
            job(parallelism=2, completions=3),
            pods("Succeeded", "Succeeded", "Running"),
            (),
            id="no-more-than-is-left",
        ),
        pytest.param(
            job(parallelism=2, completions=2), pods("Failed", "Running"), (None,), id="failed-again"
        ),
        pytest.param(
            job(parallelism=3, completions=3, completionMode="Indexed"),
            pods("Succeeded", "Running", index=True),
            (2,),
            id="the-missing-index",
        ),
        pytest.param(
            job(parallelism=2, completions=3, status={"succeeded": 2}),
            pods("Running"),
            (),
            id="none-for-one-that-succeeded-and-is-gone",
        ),
        pytest.param(job(suspend=True), [], (), id="none-while-suspended"),
    ],
)
def test_pods_created(given, existing, created):
    assert reconcile(given, existing, NOW).create == created


@pytest.mark.parametrize(
    ("given", "existing", "removed"),
    [
        pytest.param(
            job(parallelism=2, completions=9),
            pods("Running", "Pending", "Running", "Running"),
            ["train-1", "train-3"],
            id="those-that-do-not-run-first",
        ),
        pytest.param(
            job(parallelism=2, completions=2, completionMode="Indexed"),
            pods("Pending", "Running", "Running", "Running", index=True),
            ["train-2", "train-3"],
            id="indexes-that-are-no-more",
        ),
        pytest.param(job(parallelism=2), pods("Running", "Running"), [], id="none-too-many"),
    ],
)
def test_pods_removed_from_a_job_that_was_made_smaller(given, existing, removed):
    work = reconcile(given, existing, NOW)

    assert ([pod.metadata.name for pod in work.remove], work.create) == (removed, ())


def test_a_suspended_job_gives_up_its_pods():
    work = reconcile(job(suspend=True, completions=2), pods("Running", "Succeeded"), NOW)

    assert [pod.metadata.name for pod in work.remove] == ["train-0"]
    assert condition_true(work.status.conditions, "Suspended")
    assert work.event == ("Suspended", "Job suspended")


@pytest.mark.parametrize(
    ("given", "existing", "condition"),
    [
        pytest.param(job(completions=2), pods("Succeeded", "Succeeded"), "Complete", id="complete"),
        pytest.param(job(backoffLimit=0), pods("Failed"), "Failed", id="too-many-failures"),
    ],
)
def test_a_job_ends(given, existing, condition):
    work = reconcile(given, existing, NOW)

    assert condition_true(work.status.conditions, condition)
    assert work.create == ()


def test_ended_workloads_are_not_changed():
    ended = reconcile(job(), pods("Succeeded"), NOW).status

    again = reconcile(msgspec.structs.replace(job(), status=ended), pods("Succeeded"), NOW + 60)

    assert again.status == ended
    assert again.event is None


def test_counts_never_go_back_when_pods_are_cleaned_up():
    work = reconcile(job(completions=3, status={"succeeded": 2}), [], NOW)

    assert work.status.succeeded == 2


def test_a_pod_belongs_to_its_job():
    made = pod_of(job(completionMode="Indexed"), 2)

    assert made["metadata"]["generateName"] == "train-2-"
    assert made["metadata"]["annotations"][INDEX] == "2"
    assert made["spec"]["hostname"] == "train-2"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "1"


def stepped(**spec):
    """A step of the controller on a Job that was added; it returns how many pods it made so far."""
    client = FakeClient()
    client.store.put(JOBS, msgspec.to_builtins(job(parallelism=1, completions=1, **spec)))
    recorder = SimpleNamespace(record=lambda *_, **__: None)
    controller = JobController(client, recorder)

    async def step(now):
        stored = client.store.get(JOBS, "team-a", "train")
        controller.take_job(Added(msgspec.convert(stored, Job)))
        await controller.step(now)
        return sum(write.verb == "create" for write in client.writes)

    return step


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("manager", "made"), [("kubernetes.io/job-controller", 1), ("kueue.x-k8s.io/multikueue", 0)]
)
async def test_a_job_that_another_controller_manages_is_left_to_it(manager, made):
    assert await stepped(managedBy=manager)(NOW) == made


@pytest.mark.anyio
async def test_a_pod_that_is_deleted_before_it_shows_is_made_again():
    step = stepped()

    assert await step(NOW) == 1  # and it is gone before its informer has it
    assert await step(NOW + 1) == 1
    assert await step(NOW + UNSEEN_SECONDS) == 2


def test_a_job_whose_pod_ended_while_it_was_suspended_ends_when_it_is_resumed():
    suspended = reconcile(job(suspend=True), pods("Succeeded"), NOW)
    assert not condition_true(suspended.status.conditions, "Complete"), "denied: it has not begun"

    status = msgspec.to_builtins(suspended.status)
    resumed = reconcile(job(status=status), pods("Succeeded"), NOW + 9)

    assert condition_true(resumed.status.conditions, "Complete")
    assert resumed.status.start_time.timestamp() == NOW + 9
    assert not resumed.create

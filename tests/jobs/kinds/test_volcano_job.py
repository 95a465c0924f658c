"""What Volcano Jobs request, and how their pods are held."""

import msgspec
import pytest

from policyd.api.makers import Makers
from policyd.jobs.integrations import Integrations
from policyd.jobs.kinds.volcano_job import TASK, VOLCANO_JOB
from policyd.jobs.pods import QueuedPod
from policyd.jobs.rules.defaults import default_on_create
from policyd.jobs.rules.surroundings import JobContext
from policyd.jobs.rules.validation import validate_job
from policyd.patch.draft import Draft

NAMED = {"group": "batch.volcano.sh", "kind": "Job"}
QUEUE = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "high"}
VOLCANO = "system:serviceaccount:volcano-system:volcano-controllers"


def task(replicas=1, **more):
    return {"replicas": replicas, "template": {"spec": {"containers": [{"name": "a"}]}}, **more}


def job(*tasks, phase=""):
    metadata = {"name": "train", "namespace": "ns", "uid": "u", "labels": QUEUE}
    status = {"state": {"phase": phase}}
    return {"metadata": metadata, "spec": {"tasks": [*tasks]}, "status": status}


def group_of(body):
    (group,) = VOLCANO_JOB.groups(msgspec.convert(body, VOLCANO_JOB.type))
    return group


@pytest.mark.parametrize(
    ("phase", "succeeded"),
    [
        pytest.param("", None, id="new"),
        pytest.param("Restarting", None, id="starts-again"),
        pytest.param("Completed", True, id="done"),
        pytest.param("Aborted", False, id="aborted"),
    ],
)
def test_a_job_is_over_in_the_phases_that_volcano_does_not_leave(phase, succeeded):
    parent = msgspec.convert(job(task(), phase=phase), VOLCANO_JOB.type)

    outcome = VOLCANO_JOB.outcome(parent)

    assert (None if outcome is None else outcome.succeeded) is succeeded


def test_all_tasks_are_one_group():
    group = group_of(job(task(name="PS"), task(3)))

    assert [each.count for each in group.pod_sets] == [1, 3]
    assert [each.name for each in group.pod_sets] == ["ps", "default1"]


def test_pods_of_all_tasks_are_held_in_the_queue_of_the_job():
    draft = Draft(job(task(name="ps"), task(name="worker")))

    default_on_create(draft, **NAMED)

    for each in draft.object["spec"]["tasks"]:
        metadata = each["template"]["metadata"]
        assert metadata["labels"] == QUEUE
        assert metadata["annotations"] == {
            "kueue.x-k8s.io/pod-suspending-parent": "batch.volcano.sh/job"
        }


@pytest.mark.parametrize(("account", "gated"), [(VOLCANO, True), ("alice", False)])
def test_only_what_volcano_makes_is_held_for_its_job(account, gated):
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train"}
    notes = {"kueue.x-k8s.io/pod-suspending-parent": "batch.volcano.sh/job", TASK: "PS"}
    metadata = {
        "name": "train-ps-0",
        "annotations": notes,
        "ownerReferences": [{**owner, "uid": "u", "controller": True}],
    }
    draft = Draft({"metadata": metadata, "spec": {"containers": [{"name": "a"}]}})
    surroundings = JobContext(account=account, integrations=Integrations(makers=Makers()))

    default_on_create(draft, group="", kind="Pod", surroundings=surroundings)

    assert bool(draft.get(("spec", "schedulingGates"))) is gated
    assert VOLCANO_JOB.role_of(None, msgspec.convert(draft.object, QueuedPod)) == "ps"


@pytest.mark.parametrize(
    ("after", "refused"),
    [
        pytest.param(task(2), ["spec.tasks[0].replicas"], id="grows"),
        pytest.param(task(1, minAvailable=1), [], id="other-changes"),
    ],
)
def test_a_group_keeps_its_size(after, refused):
    errors = validate_job(job(after), job(task(1)), **NAMED)

    assert [each.path for each in errors] == refused

"""Batch Jobs as the queue sees them."""

import msgspec
import pytest

from policyd.jobs.kinds.batch_job import BATCH_JOB, BatchJob, count_indexes
from policyd.patch.draft import Draft


def job(spec=None, status=None, **metadata):
    body = {"metadata": metadata, "spec": spec or {}, "status": status or {}}
    return msgspec.convert(body, BatchJob)


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        pytest.param({}, 1, id="one-by-default"),
        pytest.param({"parallelism": 3}, 3, id="parallelism"),
        pytest.param({"parallelism": 3, "completions": 2}, 2, id="fewer-complete-it"),
        pytest.param({"parallelism": 2, "completions": 5}, 2, id="not-all-at-a-time"),
        pytest.param({"parallelism": 0}, 0, id="none"),
    ],
)
def test_pods_at_a_time(spec, count):
    (pod_set,) = BATCH_JOB.pod_sets(job(spec))

    assert (pod_set.name, pod_set.count) == ("main", count)


def test_of_the_labels_by_which_a_job_knows_its_pods_the_workload_has_its_name():
    own = {"controller-uid": "u", "batch.kubernetes.io/controller-uid": "u", "job-name": "j"}
    kept = {"app": "a", "batch.kubernetes.io/job-name": "j"}
    template = {"metadata": {"labels": {**kept, **own}}, "spec": {}}
    made = job({"template": template})

    (pod_set,), (whole,) = BATCH_JOB.pod_sets(made), BATCH_JOB.whole(made, [template])

    assert pod_set.template.metadata.labels == kept
    assert whole == {"metadata": {"labels": kept}, "spec": {}}


def test_the_pod_set_says_which_label_orders_its_pods():
    (pod_set,) = BATCH_JOB.pod_sets(job())

    label = pod_set.topology_request.pod_index_label
    assert label == "batch.kubernetes.io/job-completion-index"


@pytest.mark.parametrize(
    ("spec", "status", "count"),
    [
        pytest.param({"parallelism": 3, "completions": 5}, {"succeeded": 3}, 1, id="two-are-left"),
        pytest.param(
            {"parallelism": 3, "completions": 5}, {"succeeded": 2}, 0, id="three-are-left"
        ),
        pytest.param({"parallelism": 3}, {"succeeded": 1}, 1, id="without-completions"),
        pytest.param(
            {"parallelism": 8, "completions": 4}, {"succeeded": 1}, 1, id="three-of-four-run"
        ),
        pytest.param({"parallelism": 1}, {"succeeded": 1}, 0, id="a-single-pod"),
        pytest.param(
            {"parallelism": 4, "completions": 4, "completionMode": "Indexed"},
            {"completedIndexes": "0,2-3", "failedIndexes": "1"},
            4,
            id="indexed-counts-failures-too",
        ),
    ],
)
def test_reclaimable_pods(spec, status, count):
    found = BATCH_JOB.reclaimable(job(spec, status))

    assert sum(each.count for each in found) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param("", 0, id="none"),
        pytest.param("1,3-5", 4, id="spans"),
        pytest.param("8-12", 2, id="up-to-the-limit"),
        pytest.param("3-5,4", 3, id="twice-is-once"),
        pytest.param("0-999999999999", 10, id="huge-span-is-cheap"),
        pytest.param("a,2-b,4", 1, id="no-numbers-are-left-out"),
    ],
)
def test_indexes_below_ten(text, count):
    assert count_indexes(text, below=10) == count


@pytest.mark.parametrize(
    ("conditions", "outcome"),
    [
        pytest.param([], None, id="still-running"),
        pytest.param(
            [{"type": "Complete", "status": "True", "message": "m"}], (True, "m"), id="ok"
        ),
        pytest.param(
            [{"type": "Failed", "status": "True", "message": "m"}], (False, "m"), id="bad"
        ),
        pytest.param([{"type": "Complete", "status": "False"}], None, id="not-true"),
        pytest.param([{"type": "SuccessCriteriaMet", "status": "True"}], None, id="not-over-yet"),
    ],
)
def test_outcome(conditions, outcome):
    found = BATCH_JOB.outcome(job(status={"conditions": conditions}))

    assert (found and (found.succeeded, found.message)) == outcome


def test_pods_that_have_ended_do_not_keep_a_job_active():
    ended = {"uncountedTerminatedPods": {"succeeded": ["a"]}}

    assert not BATCH_JOB.active(job(status=ended))
    assert BATCH_JOB.active(job(status={"active": 1, **ended}))


def test_suspending_and_resuming_say_only_that():
    draft = Draft({"spec": {"parallelism": 2}})

    BATCH_JOB.suspend(draft)
    assert draft.object["spec"] == {"parallelism": 2, "suspend": True}
    BATCH_JOB.resume(draft)

    assert draft.object["spec"]["suspend"] is False


def test_a_started_job_must_forget_its_start_before_its_template_changes():
    assert BATCH_JOB.reset(job()) is None
    assert BATCH_JOB.reset(job(status={"startTime": "2026-01-01T00:00:00Z"})) == {
        "status": {"startTime": None}
    }

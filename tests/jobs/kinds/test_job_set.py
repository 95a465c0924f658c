"""JobSets as the queue sees them."""

import msgspec
import pytest

from policyd.jobs.kinds.job_set import JOB_SET, JobSet
from policyd.patch.draft import Draft


def replicated(name, replicas=1, **spec):
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def job_set(*jobs, **status):
    body = {"spec": {"replicatedJobs": list(jobs)}, "status": status}
    return msgspec.convert(body, JobSet)


@pytest.mark.parametrize(
    ("jobs", "counts"),
    [
        pytest.param([replicated("Leader")], {"leader": 1}, id="one-pod-by-default"),
        pytest.param(
            [replicated("a", 2, parallelism=3), replicated("b", 3, parallelism=3, completions=2)],
            {"a": 6, "b": 6},
            id="the-pods-of-every-job",
        ),
        pytest.param([], {}, id="nothing"),
    ],
)
def test_pod_sets(jobs, counts):
    assert {each.name: each.count for each in JOB_SET.pod_sets(job_set(*jobs))} == counts


def test_the_pods_of_a_job_are_a_sub_group():
    (pod_set,) = JOB_SET.pod_sets(job_set(replicated("a", 4)))

    request = pod_set.topology_request
    assert request.sub_group_count == 4
    assert request.sub_group_index_label == "jobset.sigs.k8s.io/job-index"


@pytest.mark.parametrize(
    ("counts", "active", "ready"),
    [
        pytest.param({}, False, False, id="not-begun"),
        pytest.param({"active": 1, "ready": 1}, True, False, id="one-of-two"),
        pytest.param({"active": 1, "ready": 1, "succeeded": 1}, True, True, id="one-has-ended"),
    ],
)
def test_how_far_it_is(counts, active, ready):
    found = job_set(replicated("a", 2), replicatedJobsStatus=[{"name": "a", **counts}])

    assert (JOB_SET.active(found), JOB_SET.ready(found)) == (active, ready)


def deadline(name, seconds):
    return replicated(name, activeDeadlineSeconds=seconds)


@pytest.mark.parametrize(
    ("jobs", "policies", "limit"),
    [
        pytest.param([deadline("a", 60), deadline("b", 90)], {}, 90, id="the-longest"),
        pytest.param([deadline("a", 60), replicated("b")], {}, None, id="one-without"),
        pytest.param([], {}, None, id="no-jobs"),
        pytest.param(
            [deadline("a", 60), deadline("b", 90)],
            {"startupPolicy": {"startupPolicyOrder": "InOrder"}},
            150,
            id="one-after-the-other",
        ),
        pytest.param(
            [deadline("a", 60)], {"failurePolicy": {"maxRestarts": 1}}, None, id="made-again"
        ),
        pytest.param([deadline("a", 60)], {"failurePolicy": {}}, 60, id="never-made-again"),
    ],
)
def test_how_long_it_may_run(jobs, policies, limit):
    body = {"spec": {"replicatedJobs": jobs, **policies}}

    assert JOB_SET.limit(msgspec.convert(body, JobSet)) == limit


def test_jobs_that_succeeded_give_their_pods_back():
    status = [{"name": "A", "succeeded": 2}, {"name": "b"}, {"name": "gone", "succeeded": 1}]
    jobs = [replicated("A", 3, parallelism=4), replicated("b")]

    (pods,) = JOB_SET.reclaimable(job_set(*jobs, replicatedJobsStatus=status))

    assert (pods.name, pods.count) == ("a", 8)


def test_returned_pods_are_reported_in_the_order_of_pod_sets():
    status = [{"name": name, "succeeded": 1} for name in ("b", "a")]
    found = job_set(replicated("a"), replicated("b"), replicatedJobsStatus=status)

    assert [pods.name for pods in JOB_SET.reclaimable(found)] == ["a", "b"]


@pytest.mark.parametrize(
    ("type_", "succeeded"),
    [
        pytest.param("Completed", True, id="completed"),
        pytest.param("Failed", False, id="failed"),
        pytest.param("Suspended", None, id="neither"),
    ],
)
def test_how_it_ended(type_, succeeded):
    conditions = [{"type": type_, "status": "True", "message": "so it went"}]

    ended = JOB_SET.outcome(job_set(conditions=conditions))

    assert (ended and (ended.succeeded, ended.message)) == (
        None if succeeded is None else (succeeded, "so it went")
    )


def test_it_is_suspended_and_resumed_as_a_whole():
    draft = Draft({"spec": {}})
    JOB_SET.suspend(draft)
    assert draft.object == {"spec": {"suspend": True}}
    JOB_SET.resume(draft)
    assert draft.object == {"spec": {"suspend": False}}


def test_templates_are_where_they_are_in_the_object():
    jobs = [replicated("a", template={"spec": {}}), replicated("b", template={"metadata": {}})]
    draft = Draft({"spec": {"replicatedJobs": jobs}})

    paths = JOB_SET.templates(job_set(*jobs))

    assert [draft.get(path) for path in paths] == [{"spec": {}}, {"metadata": {}}]

"""Kubeflow's training jobs as the queue sees them."""

import msgspec
import pytest

from policyd.jobs.kinds.kubeflow import TrainingJob
from policyd.jobs.kinds.registry import KINDS
from policyd.patch.draft import Draft

TRAINING = {kind.kind: kind for kind in KINDS if kind.group == "kubeflow.org"}


def job(specs, replicas, policy=None, **status):
    body = {"spec": {specs: replicas, "runPolicy": policy or {}}, "status": status}
    return msgspec.convert(body, TrainingJob)


def pods(count=None, priority=""):
    spec = {"priorityClassName": priority} if priority else {}
    replicas = {} if count is None else {"replicas": count}
    return {**replicas, "template": {"spec": spec}}


@pytest.mark.parametrize(
    ("kind", "specs", "replicas", "counts"),
    [
        pytest.param(
            "PyTorchJob",
            "pytorchReplicaSpecs",
            {"Worker": pods(3), "Master": pods()},
            [("master", 1), ("worker", 3)],
            id="the-master-comes-first",
        ),
        pytest.param(
            "TFJob",
            "tfReplicaSpecs",
            {role: pods(1) for role in ("Evaluator", "Worker", "PS", "Master", "Chief")},
            [("chief", 1), ("master", 1), ("ps", 1), ("worker", 1), ("evaluator", 1)],
            id="five-roles",
        ),
        pytest.param(
            "MPIJob",
            "mpiReplicaSpecs",
            {"Launcher": None, "Worker": pods(2)},
            [("worker", 2)],
            id="a-role-that-is-null",
        ),
        pytest.param("XGBoostJob", "xgbReplicaSpecs", {}, [], id="no-role"),
        pytest.param(
            "PaddleJob", "paddleReplicaSpecs", {"Other": pods()}, [], id="an-unknown-role"
        ),
        pytest.param(
            "JAXJob", "jaxReplicaSpecs", {"Worker": pods(0)}, [("worker", 0)], id="no-pods"
        ),
    ],
)
def test_pod_sets_follow_the_order_of_roles(kind, specs, replicas, counts):
    found = job(specs, replicas)

    pod_sets = TRAINING[kind].pod_sets(found)
    paths = TRAINING[kind].templates(found)

    assert [(each.name, each.count) for each in pod_sets] == counts
    draft = Draft({"spec": {specs: replicas}})
    assert all(draft.get(path) is not None for path in paths)
    assert len(paths) == len(pod_sets)


@pytest.mark.parametrize(
    ("policy", "replicas", "named"),
    [
        pytest.param(
            {"schedulingPolicy": {"priorityClass": "of-the-job"}},
            {"Master": pods(priority="of-the-master")},
            "of-the-job",
            id="the-job-first",
        ),
        pytest.param(
            {"schedulingPolicy": {}},
            {"Master": pods(), "Worker": pods(priority="of-the-worker")},
            "of-the-worker",
            id="then-the-first-role-that-has-one",
        ),
        pytest.param({}, {"Worker": pods()}, "", id="nobody"),
    ],
)
def test_sources_of_the_priority(policy, replicas, named):
    found = job("pytorchReplicaSpecs", replicas, policy)

    assert TRAINING["PyTorchJob"].priority_class(found) == named


def test_a_run_policy_suspends_it():
    kind = TRAINING["TFJob"]
    draft = Draft({"spec": {}})

    kind.suspend(draft)

    assert draft.object == {"spec": {"runPolicy": {"suspend": True}}}
    assert kind.suspended(msgspec.convert(draft.object, TrainingJob))


@pytest.mark.parametrize(
    ("status", "active", "ready", "succeeded"),
    [
        pytest.param({}, False, False, None, id="not-begun"),
        pytest.param(
            {
                "conditions": [{"type": "Running", "status": "True"}],
                "replicaStatuses": {"Master": {"active": 1}},
            },
            True,
            True,
            None,
            id="running",
        ),
        pytest.param(
            {
                "conditions": [
                    {"type": "Running", "status": "False"},
                    {"type": "Succeeded", "status": "True"},
                ],
                "replicaStatuses": {"Master": {"succeeded": 1}},
            },
            False,
            False,
            True,
            id="succeeded",
        ),
        pytest.param(
            {"conditions": [{"type": "Failed", "status": "True"}]}, False, False, False, id="failed"
        ),
    ],
)
def test_how_far_it_is(status, active, ready, succeeded):
    kind, found = TRAINING["PaddleJob"], job("paddleReplicaSpecs", {}, **status)

    ended = kind.outcome(found)

    assert (kind.active(found), kind.ready(found)) == (active, ready)
    assert (ended and ended.succeeded) == succeeded

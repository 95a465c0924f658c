"""TrainJobs as the queue sees them: what a runtime says, and what the job changes of it."""

import msgspec
import pytest

from policyd.jobs.injection import PodInjection, put_back, start
from policyd.jobs.kinds.train_job import MANAGER, TRAIN_JOB, TrainJobStatus, merged, replicated_jobs
from policyd.patch.draft import Draft

STEP = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}


def runtime(**more):
    node = {"name": "node", "image": "torch:1", "command": ["python", "a.py"]}
    jobs = [
        {"name": "data", "template": {"spec": {"template": {"spec": {"containers": []}}}}},
        {
            "name": "Node",
            "template": {
                "metadata": STEP,
                "spec": {"template": {"spec": {"containers": [node, {"name": "logs"}]}}},
            },
        },
    ]
    return {"spec": {"template": {"spec": {"replicatedJobs": jobs}}, **more}}


def job(found=None, **spec):
    body = {"metadata": {"name": "train"}, "spec": {"runtimeRef": {"name": "torch"}, **spec}}
    return TRAIN_JOB.on_basis(msgspec.convert(body, TRAIN_JOB.type), found or runtime())


def patch(manager, **spec):
    pods = {"template": {"spec": {"template": {"spec": spec}}}}
    jobs = {"replicatedJobs": [{"name": "Node", **pods}]}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": jobs}}}


@pytest.mark.parametrize("nodes", [None, 5])
def test_a_part_of_the_runtime_shows_what_is_requested(nodes):
    whole = runtime(mlPolicy={"numNodes": 3, "torch": {"numProcPerNode": 8}})
    trainer = {"numNodes": nodes, "resourcesPerNode": {"requests": {"nvidia.com/gpu": "8"}}}

    part = TRAIN_JOB.made(whole)

    of_part, known = (TRAIN_JOB.pod_sets(job(each, trainer=trainer)) for each in (part, whole))
    assert [requested(each) for each in of_part] == [requested(each) for each in known]
    assert "command" not in str(part)
    assert "torch:1" not in str(part)


def requested(pod_set):
    containers = pod_set.template.spec.containers
    return pod_set.name, pod_set.count, [(each.name, each.resources) for each in containers]


def test_a_runtime_that_is_none_is_reported():
    odd = {"spec": {"template": {"spec": {"replicatedJobs": [{"name": 3, "replicas": "x"}]}}}}

    with pytest.raises(msgspec.ValidationError):
        TRAIN_JOB.made(odd)
    assert TRAIN_JOB.pod_sets(job(TRAIN_JOB.made({"spec": None}))) == ()


@pytest.mark.parametrize(
    ("found", "trainer", "counts"),
    [
        pytest.param(runtime(), None, {"data": 1, "node": 1}, id="one-node-if-nobody-says"),
        pytest.param(
            runtime(mlPolicy={"numNodes": 3}), None, {"data": 1, "node": 3}, id="the-runtime-says"
        ),
        pytest.param(
            runtime(mlPolicy={"numNodes": 3}), {"numNodes": 5}, {"data": 1, "node": 5}, id="the-job"
        ),
    ],
)
def test_how_many_nodes_train(found, trainer, counts):
    pod_sets = TRAIN_JOB.pod_sets(job(found, trainer=trainer))

    assert {each.name: each.count for each in pod_sets} == counts


def test_the_container_that_trains_is_as_the_job_says():
    resources = {"requests": {"nvidia.com/gpu": "8"}}
    made = job(trainer={"resourcesPerNode": resources, "command": ["sh"], "image": "mine:1"})

    _, node = TRAIN_JOB.pod_sets(made)
    trains, logs = node.template.spec.containers

    assert trains.resources.requests == {"nvidia.com/gpu": "8"}
    assert logs.resources.requests == {}
    written = replicated_jobs(made)[1]["template"]["spec"]["template"]["spec"]["containers"][0]
    assert (written["command"], written["image"]) == (["sh"], "mine:1")


def test_a_patch_of_the_runtime_counts():
    wanted = patch("me", nodeSelector={"disk": "ssd"}, tolerations=[{"key": "spot"}])
    _, node = TRAIN_JOB.pod_sets(job(runtimePatches=[wanted]))

    assert node.template.spec.node_selector == {"disk": "ssd"}
    assert [each.key for each in node.template.spec.tolerations] == ["spot"]


def test_a_start_is_a_patch_of_the_queues_own_and_a_stop_empties_it():
    body = {"spec": {"runtimePatches": [patch("me", nodeSelector={"disk": "ssd"})]}}
    draft = Draft(body)
    TRAIN_JOB.defaults(draft)
    held = draft.object
    made = job(runtimePatches=held["spec"]["runtimePatches"])

    start(
        draft,
        made,
        kind=TRAIN_JOB,
        given=[PodInjection(), PodInjection(labels={"a": "b"})],
        counts={},
    )
    mine, own = draft.object["spec"]["runtimePatches"]

    assert (mine, own["manager"]) == (body["spec"]["runtimePatches"][0], MANAGER)
    jobs = own["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert [each["name"] for each in jobs] == ["data", "Node"]
    assert jobs[1]["template"]["spec"]["template"]["metadata"]["labels"] == {"a": "b"}
    put_back(draft, made, kind=TRAIN_JOB, pod_sets=())
    assert draft.object == held


@pytest.mark.parametrize(
    ("manager", "expected"),
    [
        pytest.param("me", ["data", "node", "mine"], id="of-its-user"),
        pytest.param(MANAGER, ["data", "node"], id="of-the-queue-for-a-runtime-of-before"),
    ],
)
def test_a_patch_may_add_pods(manager, expected):
    jobs = {"replicatedJobs": [{"name": "mine", "template": {}}]}
    wanted = {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": jobs}}}
    made = job(runtimePatches=[wanted])

    assert [each.name for each in TRAIN_JOB.pod_sets(made)] == expected
    assert len(TRAIN_JOB.whole(made, ())) == len(expected)


@pytest.mark.parametrize(
    ("value", "change", "expected"),
    [
        pytest.param({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}, id="fields"),
        pytest.param(["a"], ["b", "c"], ["b", "c"], id="words-are-replaced"),
        pytest.param(
            [{"name": "a", "x": 1}],
            [{"name": "a", "y": 2}],
            [{"name": "a", "x": 1, "y": 2}],
            id="name",
        ),
        pytest.param([{"name": "a"}], [{"name": "b"}], [{"name": "a"}, {"name": "b"}], id="new"),
        pytest.param([{"key": "a"}], [{"key": "b"}], [{"key": "a"}, {"key": "b"}], id="no-names"),
    ],
)
def test_a_change_is_laid_over_a_value(value, change, expected):
    assert merged(value, change) == expected


@pytest.mark.parametrize(
    ("jobs", "active", "ready"),
    [
        pytest.param([], False, False, id="nothing-yet"),
        pytest.param([{"name": "data", "active": 1}], True, False, id="starting"),
        pytest.param(
            [{"name": "data", "succeeded": 1}, {"name": "node", "active": 1, "ready": 1}],
            True,
            True,
            id="training",
        ),
    ],
)
def test_how_far_it_has_come(jobs, active, ready):
    made = msgspec.convert({"status": {"jobsStatus": jobs}}, TRAIN_JOB.type)

    assert (TRAIN_JOB.active(made), TRAIN_JOB.ready(made)) == (active, ready)


def test_the_pods_of_a_job_that_is_over_are_given_back():
    status = {"jobsStatus": [{"name": "data", "succeeded": 1}]}
    made = msgspec.structs.replace(job(), status=msgspec.convert(status, TrainJobStatus))

    assert [(each.name, each.count) for each in TRAIN_JOB.reclaimable(made)] == [("data", 1)]

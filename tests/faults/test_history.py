"""The judge of histories sees what must not be: without that, `make faults` could not fail."""

import pytest

from tests.faults.history import Judge, Version


def version(revision, name, *, gpus=None, queue="a", done=False, owner="job", flavor="h100"):
    """Return a workload that holds so many GPUs; None: that waits."""
    held = gpus is not None
    usage = {"name": "main", "flavors": {"gpu": flavor}, "resourceUsage": {"nvidia.com/gpu": gpus}}
    conditions = [{"type": "QuotaReserved", "status": "True" if held else "False"}]
    conditions += [{"type": "Finished", "status": "True"}] if done else []
    status = {"conditions": conditions}
    if held:
        status["admission"] = {"clusterQueue": queue, "podSetAssignments": [usage]}
    metadata = {"ownerReferences": [{"uid": owner}]}
    return Version(revision, name, {"metadata": metadata, "status": status})


def judged(*history):
    judge = Judge({"a": 8, "b": 8, "all": 12}, {"a": "all", "b": "all"})
    return judge, list(judge.faults(history))


def test_a_life_without_faults_is_counted():
    judge, faults = judged(
        version(1, "x"), version(2, "x", gpus=8), version(3, "x", gpus=8, done=True),
        version(4, "y", gpus=8, owner="other"), Version(5, "y", None),
    )  # fmt: skip

    assert faults == []
    assert judge.admissions == {"x": 1, "y": 1}
    assert judge.most == {"a": 8, "all": 8}
    assert not any(judge.held.values())


@pytest.mark.parametrize(
    ("history", "fault"),
    [
        pytest.param(
            [version(1, "x", gpus=8), version(2, "y", gpus=1, owner="other")],
            "a at 2: 9 of 8 GPUs",
            id="a-queue-holds-too-much",
        ),
        pytest.param(
            [version(1, "x", gpus=8), version(2, "y", gpus=5, queue="b", owner="other")],
            "all at 2: 13 of 12 GPUs",
            id="a-cohort-holds-too-much",
        ),
        pytest.param(
            [version(1, "x", gpus=4), version(2, "x", gpus=4, queue="b")],
            "x at 2: admitted again without a release",
            id="admitted-to-another-queue",
        ),
        pytest.param(
            [version(1, "x", gpus=4), version(2, "x", gpus=4, flavor="a100")],
            "x at 2: admitted again without a release",
            id="admitted-to-another-flavor",
        ),
        pytest.param(
            [version(1, "x", gpus=4), version(2, "y", gpus=4)],
            "y at 2: its job holds quota by x already",
            id="one-job-by-two-workloads",
        ),
    ],
)
def test_forbidden_values_are_named(history, fault):
    assert judged(*history)[1] == [fault]

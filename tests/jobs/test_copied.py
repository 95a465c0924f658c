"""What the workload of a job has of the job's own labels and annotations."""

import pytest

from policyd.api.meta import ObjectMeta
from policyd.jobs.copied import CopiedKeys, DifferentMetadataError

GATED_BY = "kueue.x-k8s.io/admission-gated-by"
RUN_TIME = "policyd.io/expected-run-time"
PROVISIONED = "provreq.kueue.x-k8s.io/class"


def pods(*annotations, labels=({},)):
    return [ObjectMeta(labels=each, annotations=a) for each in labels for a in annotations]


@pytest.mark.parametrize(
    ("keys", "annotations", "copied"),
    [
        pytest.param(CopiedKeys(), {"a": "1"}, {}, id="none-by-itself"),
        pytest.param(CopiedKeys(annotations=("a", "b")), {"a": "1"}, {"a": "1"}, id="asked-for"),
        pytest.param(
            CopiedKeys(),
            {GATED_BY: "x/y", RUN_TIME: "1h", PROVISIONED: "z"},
            {GATED_BY: "x/y", RUN_TIME: "1h", PROVISIONED: "z"},
            id="what-the-queue-reads-itself",
        ),
        pytest.param(
            CopiedKeys(gates=False),
            {GATED_BY: "x/y", RUN_TIME: "1h"},
            {RUN_TIME: "1h"},
            id="nobody-is-waited-for",
        ),
    ],
)
def test_annotations_are_copied(keys, annotations, copied):
    assert keys.of(*pods(annotations)).annotations == copied


def test_labels_are_copied_of_whichever_pod_has_them():
    given = pods({}, labels=({}, {"a": "1"}, {"a": "1", "b": "2"}))

    assert CopiedKeys(labels=("a",)).of(*given).labels == {"a": "1"}


@pytest.mark.parametrize(
    ("keys", "given", "message"),
    [
        pytest.param(
            CopiedKeys(labels=("a",)),
            pods({}, labels=({"a": "1"}, {"a": "2"})),
            "pods have different values of label `a`",
            id="labels",
        ),
        pytest.param(
            CopiedKeys(annotations=("a",)),
            pods({"a": "1"}, {"a": "2"}),
            "pods have different values of annotation `a`",
            id="annotations",
        ),
    ],
)
def test_pods_that_contradict_each_other_have_no_workload(keys, given, message):
    with pytest.raises(DifferentMetadataError, match=message):
        keys.of(*given)

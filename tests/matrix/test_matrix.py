"""A part of the matrix: what hung, and a cell of every feature; `make matrix` runs all of it."""

import pytest

from tests.matrix.kinds import KINDS
from tests.matrix.pairs import EVERY
from tests.matrix.running import chosen, opened, run

CELLS = [
    ("Job", "partial"),
    ("Job", "elastic"),
    ("Job", "elastic-topology"),
    ("Job", "retention"),
    ("Job", "time-limit"),
    ("JobSet", "children"),
    ("MPIJob", "groups"),
    ("PodGroup", "prebuilt"),
    ("PyTorchJob", "priorities"),
    ("RayJob", "elastic-topology"),
    ("StatefulSet", "topology"),
    ("TFJob", "node-replacement"),
    ("Job", "elastic-reclaimed"),
    ("Job", "partial-priorities"),
    ("LeaderWorkerSet", "reprioritised"),
    ("PodGroup", "check-priorities"),
    ("RayJob", "elastic-check"),
    ("TrainJob", "classless"),
    ("PodGroup", "joined"),
]


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.e2e)])
def cluster(request, tmp_path_factory):
    with opened(request.param, tmp_path_factory.mktemp("matrix")) as running:
        yield running


@pytest.mark.parametrize(("kind", "feature"), CELLS)
def test_a_job_starts_ends_and_gives_its_quota_back_and_no_write_is_refused(cluster, kind, feature):
    result = run(cluster, kind, feature)

    assert (result.why, result.refused) == ("", [])
    assert (result.started, result.finished, result.returned) == (True, True, True)


def test_what_a_feature_is_not_for_is_reported_and_not_tried(cluster):
    result = run(cluster, "Deployment", "partial")

    assert (result.applies, result.fine) == (False, True)
    assert result.why == "only a Job says how few pods are enough"


def test_cells_are_chosen_by_all_words_of_their_names():
    assert chosen("job elastic") == [("Job", "elastic")]
    assert len(chosen("elastic-topology")) == len(KINDS)
    assert len(chosen()) == len(KINDS) * len(EVERY)
    assert chosen("nothing of that name") == []

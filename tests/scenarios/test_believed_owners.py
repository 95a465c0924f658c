"""Where everybody is believed of owners, an owner is one that is there: by its UID, as in Kueue."""

import pytest

from tests.scenarios import clusters
from tests.scenarios.api import eventually
from tests.scenarios.objects import pod
from tests.scenarios.test_ownership import QUEUE, of, owner  # noqa: F401 - a fixture

pytestmark = pytest.mark.e2e
KEPT = "kueue.x-k8s.io/managed"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder, believing = tmp_path_factory.mktemp("believing"), {"ownerReferences": "trust"}
    with clusters.real(folder, both=["--owner-references=trust"], values=believing) as running:
        yield running


def test_a_pod_is_held_whose_owner_has_another_uid(api, owner):  # noqa: F811 - the fixture
    gone = {**owner, "uid": "00000000-0000-0000-0000-000000000000"}

    made = api.create(of(gone, pod("left", gpus=1, labels={QUEUE: "team-a"})))

    assert KEPT in made["metadata"]["finalizers"]
    assert made["spec"]["schedulingGates"]
    # Kubernetes' garbage collector finds out as well.
    eventually(lambda: not api.exists("Pod", "left", "team-a"), what="it is deleted")


def test_a_pod_runs_for_an_existing_owner(api, owner):  # noqa: F811 - the fixture
    made = api.create(of(owner, pod("part", gpus=0, labels={QUEUE: "team-a"})))

    assert "finalizers" not in made["metadata"]
    assert "schedulingGates" not in made["spec"]

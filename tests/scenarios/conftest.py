"""One cluster for all scenarios: embedded in `make test`, embedded and real in `make e2e`."""

from functools import partial

import pytest

from tests.scenarios import clusters
from tests.scenarios.api import eventually


@pytest.fixture(scope="session", params=["embedded", pytest.param("real", marks=pytest.mark.e2e)])
def cluster(request, tmp_path_factory):
    start = {"embedded": clusters.embedded, "real": clusters.real}[request.param]
    with start(tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def api(cluster):
    """The API, with the teams' namespaces emptied afterwards."""
    yield cluster.api
    clear(cluster.api)


@pytest.fixture
def ask(cluster):
    """Run a command that asks the cluster; return what it prints as JSON."""
    return partial(clusters.answer, cluster)


def clear(api):
    for kind in ("Job", "Pod", "Workload"):  # pods that were evicted wait for others in it
        for namespace in ("team-a", "team-b"):
            for item in api.find(kind, namespace):
                if not item["metadata"].get("deletionTimestamp"):
                    api.delete(kind, item["metadata"]["name"], namespace, missing_is_fine=True)
    for kind in ("Pod", "Workload"):
        for namespace in ("team-a", "team-b"):
            eventually(
                lambda kind=kind, namespace=namespace: not api.find(kind, namespace),
                what=f"{namespace} has no {kind}",
            )

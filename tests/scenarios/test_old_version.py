"""Manifests of Kueue's v1beta1, as users have them, on the embedded cluster."""

import pytest

from policyd.api.kueue.v1beta1 import OLD_API_VERSION
from tests.scenarios.api import Refused, condition, eventually

QUEUES = "apis/kueue.x-k8s.io/{version}/clusterqueues"


@pytest.fixture
def queue(cluster, api):
    if cluster.name != "embedded":
        pytest.skip("on a real cluster the webhooks are told to serve it: tests/e2e")
    body = {
        "apiVersion": OLD_API_VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": "old"},
        "spec": {
            "cohort": "research",
            "namespaceSelector": {},
            "admissionChecks": [],
            "resourceGroups": [
                {
                    "coveredResources": ["cpu"],
                    "flavors": [
                        {"name": "h100", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
                    ],
                }
            ],
        },
    }
    yield api.call("POST", QUEUES.format(version="v1beta1"), body)
    api.delete("ClusterQueue", "old")


def test_a_queue_of_the_older_version_is_one_of_the_newer(api, queue):
    assert queue["spec"]["cohort"] == "research"
    assert "kueue.x-k8s.io/resource-in-use" in queue["metadata"]["finalizers"]

    assert api.get("ClusterQueue", "old")["spec"]["cohortName"] == "research"
    listed = api.call("GET", QUEUES.format(version="v1beta1"))["items"]
    assert {"old", "team-a"} <= {each["metadata"]["name"] for each in listed}
    eventually(lambda: condition(api.get("ClusterQueue", "old"), "Active"), what="it has a status")


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"admissionChecks": "one"}, "spec.admissionChecks"),
        ({"flavorFungibility": ["Borrow"]}, "spec.flavorFungibility"),
    ],
)
def test_a_field_of_another_type_is_refused_by_its_place(api, queue, wrong, place):
    body = {**queue, "metadata": {"name": "odd"}, "spec": {**queue["spec"], **wrong}}

    with pytest.raises(Refused) as refused:
        api.call("POST", QUEUES.format(version="v1beta1"), body)

    assert refused.value.code == 422
    assert f"{place}: Invalid value" in str(refused.value)


def test_errors_in_the_older_version_are_refused(api, queue):
    patch = {"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": []}]}}
    path = f"{QUEUES.format(version='v1beta1')}/old"

    with pytest.raises(Exception, match="422"):
        api.call("PATCH", path, patch, content_type="application/merge-patch+json")

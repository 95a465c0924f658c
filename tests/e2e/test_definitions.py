"""`policyd crds`, applied by kubectl: the definitions fit, and kubectl explains every field."""

import json
import subprocess
from pathlib import Path

import pytest

from policyd.api.kueue.names import API_VERSION as QUEUES
from policyd.api.policy import API_VERSION as POLICIES
from tests.controlplane.programs import API_SERVER, ETCD
from tests.controlplane.server import ControlPlane
from tests.scenarios.api import eventually
from tests.scenarios.clusters import COMMANDS
from tests.schemas import undescribed

pytestmark = pytest.mark.e2e

MOST_BYTES = 256 * 1024
"""Of all annotations of an object; kubectl keeps the whole object in one."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
DOCUMENT = "/openapi/v3/apis/{version}"


@pytest.fixture(scope="module", params=["slim", "full"])
def control_plane(request):
    options = ["--full"] if request.param == "full" else []
    crds = subprocess.run(
        [Path(COMMANDS) / "policyd", "crds", *options], capture_output=True, text=True, check=True
    ).stdout
    with ControlPlane(components=(ETCD, API_SERVER)) as running:
        running.kubectl("apply", "-f", "-", stdin=crds)
        running.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        for version, kind in ((QUEUES, "Workload"), (POLICIES, "Policy")):
            eventually(lambda v=version, k=kind: k in kinds(running, v), what=f"{kind} is told")
        yield running


def kinds(control_plane, version):
    """The schemas of a version's kinds, as clients read them."""
    document = json.loads(control_plane.kubectl("get", "--raw", DOCUMENT.format(version=version)))
    schemas = document.get("components", {}).get("schemas", {})
    return {
        each["kind"]: schema
        for schema in schemas.values()
        for each in schema.get("x-kubernetes-group-version-kind", ())
        if f"{each['group']}/{each['version']}" == version and not each["kind"].endswith("List")
    }


def test_kubectl_keeps_each_definition_in_an_annotation_with_room_to_spare(control_plane):
    found = json.loads(control_plane.kubectl("get", "crd", "-o", "json"))["items"]

    sizes = {
        each["metadata"]["name"]: len(each["metadata"]["annotations"][LAST_APPLIED])
        for each in found
    }
    assert {name for name, size in sizes.items() if size > MOST_BYTES / 4} == set()
    assert len(sizes) == 13


@pytest.mark.parametrize("version", [QUEUES, POLICIES])
def test_every_field_that_a_client_reads_of_has_a_description(control_plane, version):
    found = kinds(control_plane, version)

    assert {"ClusterQueue", "Policy"} & found.keys()
    assert [(name, path) for name in found for path in undescribed(found[name])] == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("clusterqueues", "Quota, and the order in which workloads get it."),
        ("cq.spec.stopPolicy", "`Hold` admits no workloads"),
        ("cq.spec.resourceGroups.flavors.resources.borrowingLimit", "may be borrowed"),
        ("workloads.status.conditions.reason", "in one word for machines"),
        ("rf.spec.tolerations.effect", "empty for every effect"),
        ("policies.spec.inject.queueName", "The LocalQueue that the object waits in."),
    ],
)
def test_kubectl_explains_it(control_plane, path, words):
    assert words in " ".join(control_plane.kubectl("explain", path).split())

"""Devices of ResourceClaims count against quota, on the embedded cluster and with the scheduler."""

import pytest

from tests.scenarios import api as driver
from tests.scenarios import clusters
from tests.scenarios.api import eventually
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted, waiting, workload_of
from tests.scenarios.test_topology import RACKS, gang, nodes_of, placed, racks

__all__ = ["placed", "racks"]

DRIVER, GPU = "gpu.example.com", "nvidia.com/gpu"
CLAIM = "ResourceClaim"
CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "resources": {
        "deviceClassMappings": [{"name": "nvidia.com/gpu", "deviceClassNames": ["gpu.example.com"]}]
    },
}
TEMPLATES = (
    ("two", {"count": 2}),
    ("one", {}),
    ("five", {"count": 5}),
    ("nine", {"count": 9}),
)
RESOURCE = "apis/resource.k8s.io/v1"
driver.PATHS.update(
    DeviceClass=f"{RESOURCE}/deviceclasses",
    ResourceSlice=f"{RESOURCE}/resourceslices",
    ResourceClaim=RESOURCE + "/namespaces/{namespace}/resourceclaims",
    ResourceClaimTemplate=RESOURCE + "/namespaces/{namespace}/resourceclaimtemplates",
)


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.e2e)])
def cluster(request, tmp_path_factory):
    """A cluster whose quota counts devices, with a driver that offers eight on each node."""
    folder = tmp_path_factory.mktemp(request.param)
    file = folder / "configuration.yaml"
    file.write_text(clusters.yaml.safe_dump(CONFIGURATION))
    if request.param == "embedded":
        start = clusters.embedded(folder, "--config", str(file))
    else:
        values = {"controller__configuration__resources": CONFIGURATION["resources"]}
        start = clusters.real(folder, both=["--config", str(file)], values=values)
    with start as running:
        publish(running.api)
        yield running


def publish(api):
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    api.create(made("DeviceClass", DRIVER, spec={"selectors": [selector]}))
    for node in (each["metadata"]["name"] for each in api.find("Node")):
        devices = [
            {"name": f"gpu-{number}", "attributes": {"model": {"string": "h100"}}}
            for number in range(8)
        ]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        api.create(made("ResourceSlice", node, spec=spec))
    for name, count in TEMPLATES:
        model = f"device.attributes['{DRIVER}'].model == 'h100'"
        asked = {"deviceClassName": DRIVER, "selectors": [{"cel": {"expression": model}}], **count}
        devices = {"requests": [{"name": "gpus", "exactly": asked}]}
        spec = {"spec": {"devices": devices}}
        api.create(made("ResourceClaimTemplate", name, "team-a", spec=spec))


def made(kind, name, namespace="", **fields):
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, **fields}


def claiming(name, template, **fields):
    body = job(name, gpus=0, **fields)
    claims = [{"name": "gpus", "resourceClaimTemplateName": template}]
    body["spec"]["template"]["spec"]["resourceClaims"] = claims
    body["spec"]["template"]["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    return body


def test_devices_of_claims_fill_the_quota_and_give_it_back(api, ask):
    api.create(claiming("first", "two", pods=4, run_for="300s"))
    assert not api.warnings
    eventually(lambda: admitted(api, "first"), what="it is admitted")
    assert used(api, "first") == "8"
    eventually(lambda: len(running(api, "first")) == 4, within=60, what="all pods run")

    api.create(claiming("second", "two", pods=3, run_for="300s"))
    condition = eventually(lambda: waiting(api, "second"), what="it is told why it waits")
    assert "insufficient unused quota for nvidia.com/gpu" in condition["message"]
    answer = eventually(
        lambda: (found := ask("why", "job/second"))["missing"] and found, what="numbers"
    )
    (missing,) = answer["missing"]
    assert (missing["resource"], missing["requested"], missing["missing"]) == (GPU, 6, 2)
    assert answer["user"].startswith("wait until team-a/first (8) ends")

    api.delete("Job", "first", "team-a")
    eventually(lambda: admitted(api, "second"), within=60, what="the next one is admitted")
    assert used(api, "second") == "6"
    api.delete("Job", "second", "team-a")


def test_pods_go_where_nodes_have_the_devices_of_their_claims(racks):
    """Each node has room for one pod with five of its eight devices, but for many other pods."""
    for name in ("first", "second"):
        racks.create(claiming_gang(name, pods=4))
    first, second = (
        eventually(lambda name=name: nodes_of(racks, name), within=60, what=f"all of {name} run")
        for name in ("first", "second")
    )
    assert len({*first, *second}) == 8
    owned = [each["metadata"]["ownerReferences"][0] for each in racks.find(CLAIM, "team-a")]
    pods = {each["metadata"]["uid"] for each in racks.find("Pod", "team-a")}
    assert {each["uid"] for each in owned} == pods, "pods that are held have their claims made"

    racks.create(claiming_gang("third", pods=2))
    condition = eventually(lambda: waiting(racks, "third"), what="the next one waits")
    assert f'excluded: devices by claim "{GPU}": {len(RACKS)}' in condition["message"]

    racks.delete("Job", "first", "team-a")
    third = eventually(lambda: nodes_of(racks, "third"), within=60, what="the next one runs")
    assert set(third) < set(first)
    for name in ("second", "third"):
        racks.delete("Job", name, "team-a")
    eventually(lambda: not racks.find(CLAIM, "team-a"), within=60, what="the claims go with them")


def claiming_gang(name, pods):
    """Return a Job in one rack whose pods have five devices each by claims."""
    body, asked = gang(name, pods), claiming(name, "five")["spec"]["template"]["spec"]
    body["spec"]["template"]["spec"] |= asked
    return body


def test_a_request_for_one_device_counts_one(api):
    api.create(claiming("single", "one"))
    eventually(lambda: admitted(api, "single"), within=60, what="it is admitted")

    assert used(api, "single") == "1"
    api.delete("Job", "single", "team-a")


def test_a_pod_has_no_more_devices_than_policies_allow_and_none_that_are_not_known(api):
    with pytest.raises(driver.Refused, match="a pod requests 9 GPUs, 9 of them by claims"):
        api.create(claiming("many", "nine"))
    with pytest.raises(driver.Refused, match="there is no ResourceClaimTemplate `gone`"):
        api.create(claiming("unknown", "gone"))


def test_nodes_show_which_jobs_have_the_devices_of_claims(cluster, api, ask):
    def devices():
        (found,) = (each for each in ask("nodes")["devices"] if each["resource"] == GPU)
        return found["total"], found["free"]

    nodes = len(api.find("Node"))
    every = nodes * (8 + 8)  # each has eight by itself, and eight of the driver
    eventually(lambda: devices() == (every, every), within=60, what="no device is in use")
    api.create(claiming("holds", "two", pods=2, run_for="300s"))
    eventually(lambda: len(running(api, "holds")) == 2, within=60, what="both pods run")
    if cluster.name == "embedded":  # which has no scheduler of devices
        for number, each in enumerate(running(api, "holds")):
            allocate(api, each, 2 * number)

    eventually(lambda: devices() == (every, every - 4), what="four devices are in use")
    held = {
        line["name"]: sum(each["requests"].get(GPU, 0) for each in line["pods"])
        for line in ask("nodes")["nodes"]
        if any(each["job"] == "team-a/Job/holds" for each in line["pods"])
    }
    assert sum(held.values()) == 4
    assert set(held) == {each["spec"]["nodeName"] for each in running(api, "holds")}


def allocate(api, pod, first):
    """Give a pod two devices of its node, as the scheduler does."""
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    template = api.get("ResourceClaimTemplate", "two", "team-a")
    api.create(made("ResourceClaim", name, "team-a", spec=template["spec"]["spec"]))
    results = [
        {"request": "gpus", "driver": DRIVER, "pool": node, "device": f"gpu-{first + number}"}
        for number in range(2)
    ]
    user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
    api.patch("ResourceClaim", f"{name}/status", {"status": status}, namespace="team-a")


def used(api, name):
    (assigned,) = workload_of(api, name)["status"]["admission"]["podSetAssignments"]
    return assigned["resourceUsage"]["nvidia.com/gpu"]


def running(api, name):
    return [
        pod
        for pod in api.find("Pod", "team-a", labelSelector=f"job-name={name}")
        if pod["status"].get("phase") == "Running"
    ]

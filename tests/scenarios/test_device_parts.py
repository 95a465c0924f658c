"""Parts of devices, shared claims, admin access and extended resources, with published slices."""

import pytest

from tests.scenarios import clusters
from tests.scenarios.api import PATHS, Refused, eventually
from tests.scenarios.test_devices_by_claim import RESOURCE, claiming, made, running
from tests.scenarios.test_queue import admitted, waiting, workload_of

DRIVER, EXTENDED = "parts.example.com", "example.com/card"
CARDS, MEMORY, BANDWIDTH = "example.com/cards", "example.com/mig-memory", "example.com/bandwidth"
SELECTED = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
GIB = 2**30
PATHS.setdefault("ResourceClaim", RESOURCE + "/namespaces/{namespace}/resourceclaims")


def mapping(resource, name, **source):
    sources = [{kind: {**each, "deviceSelector": SELECTED}} for kind, each in source.items()]
    return {"name": resource, "deviceClassNames": [name], "sources": sources}


CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "featureGates": {"KueueDRAIntegrationConsumableCapacity": True},
    "resources": {
        "deviceClassMappings": [
            mapping(CARDS, "cards"),
            mapping(MEMORY, "mig", counter={"name": "memory", "driver": DRIVER}),
            mapping(BANDWIDTH, "nics", capacity={"name": "bandwidth", "driver": DRIVER}),
        ]
    },
}
POLICY = clusters.PROJECT / "policies/gpu/cap-devices-per-claim/policy.yaml"
QUOTAS = {"cpu": "96", "memory": "1Ti", CARDS: "4", MEMORY: "40Gi", BANDWIDTH: "100"}


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.e2e)])
def api(request, tmp_path_factory):
    """A cluster whose quota counts cards, memory of partitions and bandwidth of shared devices."""
    folder = tmp_path_factory.mktemp(request.param)
    file = folder / "configuration.yaml"
    file.write_text(clusters.yaml.safe_dump(CONFIGURATION))
    if request.param == "embedded":
        start = clusters.embedded(folder, "--config", str(file))
    else:
        values = {
            "controller__configuration__resources": CONFIGURATION["resources"],
            "controller__configuration__featureGates": CONFIGURATION["featureGates"],
        }
        start = clusters.real(folder, both=["--config", str(file)], values=values)
    with start as cluster:
        furnish(cluster.api)
        yield cluster.api


def furnish(api):
    for name, kind in (("cards", "card"), ("mig", "mig"), ("nics", "nic"), ("unmapped", "card")):
        chosen = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].kind == '{kind}'"
        spec = {"selectors": [{"cel": {"expression": chosen}}]}
        if name == "cards":
            spec["extendedResourceName"] = EXTENDED
        api.create(made("DeviceClass", name, spec=spec))
    publish(api)
    api.create(clusters.yaml.safe_load(POLICY.read_text()))
    resources = [{"name": name, "nominalQuota": quota} for name, quota in QUOTAS.items()]
    flavor = {"name": "h100", "resources": resources}
    group = {"coveredResources": list(QUOTAS), "flavors": [flavor]}
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue"}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    api.create({**queue, "metadata": {"name": "parts"}, "spec": spec})
    metadata = {"name": "parts", "namespace": "team-a"}
    local = {**queue, "kind": "LocalQueue", "metadata": metadata}
    api.create({**local, "spec": {"clusterQueue": "parts"}})
    allowed = {"metadata": {"labels": {"policyd.io/max-claims-per-pod": "2"}}}
    api.patch("Namespace", "team-a", allowed)
    template(api, "mig", "mig")
    template(api, "nic", "nics", capacity={"requests": {"bandwidth": "10"}})
    template(api, "card", "cards")
    template(api, "unmapped", "unmapped")


def device(name, kind, **fields):
    return {"name": name, "attributes": {"kind": {"string": kind}}, **fields}


def publish(api):
    """Publish four cards, two partitions of a card with 40 GiB, and a device that pods share."""
    node = api.find("Node")[0]["metadata"]["name"]
    taken = {"counterSet": "card-9", "counters": {"memory": {"value": "20Gi"}}}
    parts = [device(f"mig-{n}", "mig", consumesCounters=[taken]) for n in range(2)]
    nic = device("nic-0", "nic", allowMultipleAllocations=True)
    nic["capacity"] = {"bandwidth": {"value": "100"}}
    cards = [device(f"card-{n}", "card") for n in range(4)]
    pools = {
        "counters": {
            "sharedCounters": [{"name": "card-9", "counters": {"memory": {"value": "40Gi"}}}]
        },
        "devices": {"devices": [*parts, nic, *cards]},
    }
    for name, fields in pools.items():
        pool = {"name": node, "generation": 1, "resourceSliceCount": len(pools)}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, **fields}
        api.create(made("ResourceSlice", f"parts-{name}", spec=spec))


def asked(name, **fields):
    exactly = {"deviceClassName": name, **fields}
    return {"devices": {"requests": [{"name": "part", "exactly": exactly}]}}


def template(api, name, device_class, **fields):
    spec = {"spec": asked(device_class, **fields)}
    api.create(made("ResourceClaimTemplate", f"parts-{name}", "team-a", spec=spec))


def asking(name, what, **fields):
    body = claiming(name, f"parts-{what}", run_for="300s", **fields)
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "parts"}
    return body


def used(api, name, resource):
    (assigned,) = workload_of(api, name)["status"]["admission"]["podSetAssignments"]
    return assigned["resourceUsage"].get(resource)


def runs(api, name, pods=1):
    eventually(lambda: admitted(api, name), within=60, what="it is admitted")
    eventually(lambda: len(running(api, name)) == pods, within=90, what="its pods run")


@pytest.mark.parametrize(
    ("what", "resource", "amounts"),
    [
        pytest.param("mig", MEMORY, ("40Gi", "20Gi more needed"), id="partitions-with-counters"),
        pytest.param("nic", BANDWIDTH, ("20", ""), id="consumable-capacity"),
        pytest.param("card", CARDS, ("2", ""), id="devices"),
    ],
)
def test_parts_of_devices_are_charged_and_their_pods_get_them(api, what, resource, amounts):
    first, second = f"first-{what}", f"second-{what}"
    api.create(asking(first, what, pods=2))
    runs(api, first, pods=2)
    assert used(api, first, resource) == amounts[0]
    if amounts[1]:
        api.create(asking(second, what))
        condition = eventually(lambda: waiting(api, second), what="it has a reason")
        assert amounts[1] in condition["message"]
        api.delete("Job", second, "team-a")
    api.delete("Job", first, "team-a")


def test_an_extended_resource_that_a_class_backs_is_charged_to_the_class(api):
    body = asking("extended", "card")
    spec = body["spec"]["template"]["spec"]
    del spec["resourceClaims"], spec["containers"][0]["resources"]["claims"]
    spec["containers"][0]["resources"]["limits"][EXTENDED] = "2"
    api.create(body)

    eventually(lambda: admitted(api, "extended"), within=60, what="it is admitted")
    assert used(api, "extended", CARDS) == "2"
    api.delete("Job", "extended", "team-a")


def test_a_claim_that_pods_share_is_charged_once(api):
    api.create(made("ResourceClaim", "shared", "team-a", spec=asked("cards", count=2)))
    body = asking("share", "card", pods=2)
    body["spec"]["template"]["spec"]["resourceClaims"] = [
        {"name": "gpus", "resourceClaimName": "shared"}
    ]
    api.create(body)

    runs(api, "share", pods=2)
    assert used(api, "share", CARDS) == "2"
    api.delete("Job", "share", "team-a")


def test_admin_access_is_not_charged_where_the_namespace_allows_it(api):
    allowed = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    api.patch("Namespace", "team-a", allowed)
    template(api, "admin", "cards", adminAccess=True)
    api.create(asking("admin", "admin"))

    runs(api, "admin")
    assert used(api, "admin", CARDS) in {None, "0"}
    api.delete("Job", "admin", "team-a")


def test_a_class_that_no_mapping_has_is_refused(api):
    api.create(asking("unmapped", "unmapped"))

    condition = eventually(lambda: waiting(api, "unmapped"), what="it has a reason")
    assert condition["reason"] == "Misconfigured"
    assert "DeviceClass unmapped is not mapped in DRA configuration" in condition["message"]
    api.delete("Job", "unmapped", "team-a")


def test_claims_and_templates_of_too_many_devices_are_refused(api):
    with pytest.raises(Refused, match="a claim requests 9 devices, and the limit here is 8"):
        template(api, "many", "cards", count=9)
    with pytest.raises(Refused, match="requests all devices that match"):
        api.create(
            made("ResourceClaim", "all", "team-a", spec=asked("cards", allocationMode="All"))
        )

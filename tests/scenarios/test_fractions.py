"""Parts of GPUs: from the annotation of a user to the replica of a pod, and the quota for it."""

import time

import pytest
import yaml

from policyd.controller.usage import GRACE_SECONDS
from tests.scenarios import clusters
from tests.scenarios.api import PATCH_TYPES, PATHS, Refused, eventually
from tests.scenarios.objects import job, pod
from tests.scenarios.test_queue import admitted, finished, waiting, workload_of

THOUSANDTHS, SHARED = "policyd.io/gpu-thousandths", "nvidia.com/gpu.shared"
QUEUE = {"kueue.x-k8s.io/queue-name": "parts"}
KUEUE = "kueue.x-k8s.io/v1beta2"
CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "resources": {"gpuFractions": True},
}
GPUS = {
    "policyd.io/shared-gpus": "time-slicing",
    "policyd.io/shared-gpu-replicas": "4",
    "policyd.io/shared-gpu-memory": "16000",
}
POLICY = clusters.PROJECT / "policies/gpu/gpu-fractions/policy.yaml"


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.e2e)])
def api(request, tmp_path_factory):
    """A cluster with a node of two GPUs with four replicas each, and a queue for parts of them."""
    folder = tmp_path_factory.mktemp(request.param)
    file = folder / "configuration.yaml"
    file.write_text(yaml.safe_dump(CONFIGURATION))
    if request.param == "embedded":
        start = clusters.embedded(folder, "--config", str(file))
    else:
        values = {"controller__configuration__resources": CONFIGURATION["resources"]}
        start = clusters.real(folder, both=["--config", str(file)], values=values)
    with start as cluster:
        furnish(cluster.api)
        yield cluster.api


def furnish(api):
    api.create(yaml.safe_load(POLICY.read_text()))
    node = api.find("Node")[0]["metadata"]["name"]
    sharing = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
    api.patch("Node", node, {"metadata": {"labels": {"pool": "t4", **sharing}}})
    offered = {"status": {"capacity": {SHARED: "8"}, "allocatable": {SHARED: "8"}}}
    path = f"{PATHS['Node']}/{node}/status"
    api.call("PATCH", path, offered, content_type=PATCH_TYPES["merge"])
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    spec = {"nodeLabels": {"pool": "t4"}, "tolerations": tolerations}
    api.create(made("ResourceFlavor", "t4", annotations=GPUS, spec=spec))
    quotas = {"cpu": "96", "memory": "1Ti", THOUSANDTHS: "1500", SHARED: "0"}
    resources = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
    group = {
        "coveredResources": list(quotas),
        "flavors": [{"name": "t4", "resources": resources}],
    }
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    api.create(made("ClusterQueue", "parts", spec=spec))
    api.create(made("LocalQueue", "parts", "team-a", spec={"clusterQueue": "parts"}))


def made(kind, name, namespace="", *, annotations=None, **fields):
    metadata = {"name": name, "annotations": annotations or {}}
    metadata |= {"namespace": namespace} if namespace else {}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, **fields}


def sharing(name, *, pods=1, run_for="300s", **asked):
    body = job(name, gpus=0, pods=pods, run_for=run_for)
    body["metadata"]["labels"] = QUEUE
    annotations = body["spec"]["template"]["metadata"]["annotations"]
    annotations |= {key.replace("_", "-"): text for key, text in asked.items()}
    return body


def test_parts_fill_the_quota_run_with_a_replica_and_give_it_back(api):
    api.create(sharing("halves", pods=2, gpu_fraction="0.5"))
    eventually(lambda: admitted(api, "halves"), within=60, what="it is admitted")
    (assigned,) = workload_of(api, "halves")["status"]["admission"]["podSetAssignments"]
    assert assigned["resourceUsage"][THOUSANDTHS] == "1k"
    running = eventually(lambda: running_pods(api, "halves", 2), within=60, what="both pods run")
    for each in running:
        assert each["spec"]["containers"][0]["resources"]["limits"][SHARED] == "1"

    api.create(sharing("more", gpu_memory="9000", run_for="1s"))
    reason = eventually(lambda: waiting(api, "more"), what="it has a reason why it waits")
    assert f"insufficient unused quota for {THOUSANDTHS} in flavor t4, 63 more" in reason["message"]

    api.delete("Job", "halves", "team-a")
    eventually(lambda: finished(api, "more"), within=90, what="the next one runs through")


def running_pods(api, name, count):
    pods = api.find("Pod", "team-a", labelSelector=f"job-name={name}")
    running = [each for each in pods if each["status"].get("phase") == "Running"]
    return running if len(running) == count else None


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        pytest.param({"gpu_fraction": "0"}, "must be a decimal above 0 and below 1", id="zero"),
        pytest.param({"gpu_fraction": "1.5"}, "must be a decimal above 0", id="above-one"),
        pytest.param({"gpu_fraction": "-1"}, "must be a decimal above 0", id="negative"),
        pytest.param({"gpu_fraction": "NaN"}, "must be a decimal above 0", id="no-number"),
        pytest.param({"gpu_memory": "4Gi"}, "must be a whole number of MiB", id="quantity"),
        pytest.param(
            {"gpu_fraction": "0.5", "gpu_memory": "1"}, "cannot be combined with", id="both"
        ),
    ],
)
def test_what_is_no_part_is_refused(api, asked, words):
    with pytest.raises(Refused, match=words):
        api.create(sharing("bad", **asked))


def test_a_part_stays_as_it_is_while_the_job_queues_or_its_pod_runs(api):
    api.create(sharing("fixed", gpu_fraction="0.2"))
    eventually(lambda: running_pods(api, "fixed", 1), within=60, what="its pod runs")
    (running,) = running_pods(api, "fixed", 1)
    larger = {"metadata": {"annotations": {"gpu-fraction": "0.9"}}}

    with pytest.raises(Refused):  # by the API server: templates of Jobs that run are immutable
        api.patch("Job", "fixed", {"spec": {"template": larger}}, namespace="team-a")
    with pytest.raises(Refused, match="changes the part of a GPU that a pod has"):
        api.patch("Pod", running["metadata"]["name"], larger, namespace="team-a")

    api.create(sharing("waits", pods=9, gpu_fraction="0.2"))
    eventually(lambda: waiting(api, "waits"), what="it waits")
    with pytest.raises(Refused, match="field is immutable in a queue"):
        api.patch("Job", "waits", {"spec": {"template": larger}}, namespace="team-a")
    for name in ("fixed", "waits"):
        api.delete("Job", name, "team-a")


def test_a_pod_without_a_queue_gets_no_part(api):
    alone = pod("alone", "default", gpus=0, annotations={"gpu-fraction": "0.5"})

    with pytest.raises(Refused, match="requests 1 GPU but names no queue"):
        api.create(alone)


def test_pods_are_within_quota_while_flavors_change_and_reported_once_their_job_is_gone(api):
    """The queue covers replicas too: as such, its pods would be beyond what was admitted."""
    api.create(sharing("inside", pods=2, gpu_memory="6000"))
    running = eventually(lambda: running_pods(api, "inside", 2), within=60, what="both pods run")
    smaller = {**GPUS, "policyd.io/shared-gpu-memory": "12000"}
    api.patch("ResourceFlavor", "t4", {"metadata": {"annotations": smaller}})
    time.sleep(GRACE_SECONDS + 2)
    assert outside_quota(api) == []

    path = PATHS["Job"].format(namespace="team-a")
    api.call("DELETE", f"{path}/inside", {"propagationPolicy": "Orphan"})
    found = eventually(lambda: outside_quota(api), within=60, what="its pods are reported")
    assert f"takes 500 {THOUSANDTHS}" in found[0]
    for each in running:
        api.delete("Pod", each["metadata"]["name"], "team-a")
    api.patch("ResourceFlavor", "t4", {"metadata": {"annotations": GPUS}})


def outside_quota(api):
    events = api.find("Event", "team-a")
    return [each["message"] for each in events if each["reason"] == "OutsideQuota"]

"""Argo CD and Flux find no difference between Git and the cluster after policyd has done its work.

Both compare an object with what a server-side apply of the manifest would make of it, as a dry run,
with their own field manager, and by force.
"""

import copy
import subprocess
from contextlib import suppress

import pytest
import yaml

from policyd.cli.starting.contents import for_argo_cd
from tests.scenarios.api import PATCH_TYPES, PATHS, Refused, condition, eventually
from tests.scenarios.clusters import COMMANDS, PROJECT
from tests.scenarios.objects import container, job, pod
from tests.scenarios.test_queue import admitted, waiting

QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE = "kueue.x-k8s.io/v1beta2"
MANAGERS = ("argocd-controller", "kustomize-controller")
ADMISSION = "apis/admissionregistration.k8s.io/v1/"
MORE_PATHS = {
    f"{when}WebhookConfiguration": f"{ADMISSION}{when.lower()}webhookconfigurations"
    for when in ("Mutating", "Validating")
} | {
    "ValidatingAdmissionPolicy": f"{ADMISSION}validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}validatingadmissionpolicybindings",
    "StatefulSet": "apis/apps/v1/namespaces/{namespace}/statefulsets",
    "CustomResourceDefinition": "apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}
NOT_COMPARED = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid")
"""Metadata that both tools leave out, as they do the status."""


def path_of(manifest):
    metadata = manifest["metadata"]
    folder = (PATHS | MORE_PATHS)[manifest["kind"]].format(namespace=metadata.get("namespace"))
    return f"{folder}/{metadata['name']}"


def applied(api, manifest, manager, *, dry_run=False):
    """Apply a manifest as a tool does; return the object as it is, or would be."""
    return api.call(
        "PATCH",
        path_of(manifest),
        manifest,
        content_type=PATCH_TYPES["apply"],
        fieldManager=manager,
        force="true",
        dryRun="All" if dry_run else None,
    )


def compared(obj):
    found = copy.deepcopy(obj)
    found.pop("status", None)
    for name in NOT_COMPARED:
        found["metadata"].pop(name, None)
    return found


def difference(before, after, path=""):
    """The paths of fields that differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before.keys() | after.keys():
            yield from difference(before.get(name), after.get(name), f"{path}.{name}")
    elif before != after:
        yield f"{path}: {before!r} -> {after!r}"


def differences(api, manifests, manager):
    """What a sync would change, by object."""
    found = {}
    for manifest in manifests:
        live = api.call("GET", path_of(manifest))
        predicted = applied(api, manifest, manager, dry_run=True)
        changes = list(difference(compared(live), compared(predicted)))
        if changes:
            found[f"{manifest['kind']} {manifest['metadata']['name']}"] = changes
    return found


def own(kind, name, spec=None, *, api_version=KUEUE, **metadata):
    made = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}}
    return made if spec is None else {**made, "spec": spec}


def queue_objects():
    resources = [{"name": "cpu", "nominalQuota": "4"}, {"name": "memory", "nominalQuota": "16Gi"}]
    yield own("ResourceFlavor", "git", {"nodeLabels": {"kubernetes.io/os": "linux"}})
    yield own("Cohort", "git-all", {})
    yield own("Cohort", "git", {"parentName": "git-all"})
    yield own("WorkloadPriorityClass", "git") | {"value": 10, "description": "of Git"}
    yield own("Topology", "git", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
    yield own(
        "ClusterQueue",
        "git",
        {
            "cohortName": "git",
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu", "memory"],
                    "flavors": [{"name": "git", "resources": resources}],
                }
            ],
        },
    )
    yield own("LocalQueue", "git", {"clusterQueue": "git"}, namespace="team-a")


def policies():
    folder = PROJECT / "policies/jobs/cap-backoff-limit"
    yield yaml.safe_load((folder / "policy.yaml").read_text())
    exported = subprocess.run(
        [COMMANDS / "policyd", "export", folder / "policy.yaml"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for each in yaml.safe_load_all(exported):
        each["metadata"]["name"] += "-exported"
        if "policyName" in each["spec"]:
            each["spec"]["policyName"] += "-exported"
        yield each


def webhooks():
    """As the chart has them: empty, for the webhooks to fill."""
    labels = {"app.kubernetes.io/name": "policyd"}
    for when in ("Mutating", "Validating"):
        kind = f"{when}WebhookConfiguration"
        yield own(kind, "admission.policyd.io", api_version=f"{ADMISSION[5:-1]}", labels=labels)


def jobs():
    labels = {QUEUE: "git"}
    runs, waits = (job(name, gpus=0, run_for="600s") for name in ("git-runs", "git-waits"))
    for each, cpu in ((runs, "2"), (waits, "3")):
        each["metadata"]["labels"] = labels
        spec = each["spec"]["template"]["spec"]
        spec["containers"][0]["resources"]["limits"]["cpu"] = cpu
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
        yield each
    alone = pod("git-alone", gpus=0, labels=labels)
    alone["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    yield alone
    template = {"metadata": {"labels": {"app": "git"}}, "spec": {"containers": [container(0)]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "git"}}, "template": template}
    apps = {"api_version": "apps/v1", "namespace": "team-a", "labels": labels}
    yield own("Deployment", "git", spec, **apps)
    yield own("StatefulSet", "git", {**spec, "serviceName": "git"}, **apps)


@pytest.fixture(params=MANAGERS)
def manager(request):
    return request.param


@pytest.fixture
def synced(api):
    """Apply manifests as a tool does; they are gone afterwards."""
    made = []

    def synced(manifests, manager):
        for manifest in manifests:
            applied(api, manifest, manager)
            if path_of(manifest) not in map(path_of, made):
                made.append(manifest)

    yield synced
    ours = [each for each in reversed(made) if not each["kind"].endswith("WebhookConfiguration")]
    for manifest in ours:
        with suppress(Refused):
            api.call("DELETE", path_of(manifest), {"propagationPolicy": "Background"})
    for manifest in ours:
        eventually(lambda manifest=manifest: is_gone(api, manifest), what="it is deleted")


def is_gone(api, manifest):
    try:
        api.call("GET", path_of(manifest))
    except Refused as refusal:
        return refusal.code == 404
    return False


def test_tools_find_no_difference_once_policyd_has_done_its_work(api, synced, manager):
    manifests = [*queue_objects(), *policies(), *webhooks(), *jobs()]
    synced(manifests, manager)
    eventually(lambda: admitted(api, "git-runs"), what="a job runs")
    eventually(lambda: waiting(api, "git-waits"), what="a job is pending")
    eventually(
        lambda: condition(api.get("ClusterQueue", "git"), "Active").get("status") == "True",
        what="the queue is active",
    )
    filled = api.call("GET", f"{MORE_PATHS['ValidatingWebhookConfiguration']}/admission.policyd.io")

    found = differences(api, manifests, manager)

    assert filled["webhooks"], "the webhooks have worked on it"
    assert found == {}


def test_only_versions_of_definitions_differ_where_v1beta1_is_served(cluster, api, manager):
    """The guide leaves the definitions to the webhooks then."""
    found = {}
    for file in sorted((PROJECT / "charts/policyd/crds").glob("*.yaml")):
        definition = yaml.safe_load(file.read_text())
        name = definition["metadata"]["name"]
        live = api.call("GET", path_of(definition))
        predicted = applied(api, definition, manager, dry_run=True)
        changes = difference(compared(live), compared(predicted))
        found[name] = {change.partition(":")[0] for change in changes}
        served = {version["name"] for version in live["spec"]["versions"]}
        assert found[name] == ({".spec.versions"} if "v1beta1" in served else set()), name

    assert found["policies.policyd.io"] == set()
    assert any(found.values()) is (cluster.name == "embedded"), "it serves v1beta1"


def test_fields_that_policyd_writes_are_differences_only_if_git_names_them(api, synced, manager):
    queues, (_, waits, *_) = list(queue_objects()), jobs()
    synced(queues, manager)
    (queue,) = (each for each in queues if each["kind"] == "ClusterQueue")
    named = {**queue, "spec": {**queue["spec"], "stopPolicy": "None"}}
    synced([named], manager)
    api.patch("ClusterQueue", "git", {"spec": {"stopPolicy": "Hold"}})
    synced([waits], manager)
    starts = copy.deepcopy(waits)
    starts["spec"]["suspend"] = False
    eventually(lambda: waiting(api, "git-waits"), what="the job is pending")

    assert differences(api, [named], manager) == {
        "ClusterQueue git": [".spec.stopPolicy: 'Hold' -> 'None'"]
    }
    with pytest.raises(Refused, match="only the queue's controller starts it"):
        applied(api, starts, manager, dry_run=True)
    assert differences(api, [without(starts, for_argo_cd(of_chart=False))], manager) == {}


def without(manifest, rules):
    """A manifest without the fields that rules of Argo CD leave out."""
    found = copy.deepcopy(manifest)
    for rule in rules:
        if rule["kind"] == manifest["kind"]:
            for pointer in rule["jsonPointers"]:
                *path, name = pointer.split("/")[1:]
                part = found
                for step in path:
                    part = part[step]
                part.pop(name, None)
    return found

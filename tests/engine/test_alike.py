"""A scan says of objects that are alike what it says of each by itself."""

import json
import random

import pytest

from policyd.cli.formats.files import load
from policyd.engine.offline import scan as scan_module
from policyd.engine.offline.requests import (
    RequestCircumstances,
    namespace_lookup,
    offline_set,
    request_for,
)
from policyd.engine.offline.scan import Listed, PolicyScan, ScannedObject
from policyd.engine.remember.alike import Alike, looked_at_alike
from tests.docs.pages import PROJECT

LABELS = {"policyd.io/queue": "a", "policyd.io/pod-security": "restricted", "policyd.io/team": "a"}


@pytest.fixture(scope="module")
def loaded():
    return load([str(PROJECT / "policies")])


def amounts(chance):
    made = {"cpu": f"{chance.randint(1, 900)}m", "memory": f"{chance.randint(1, 64)}Gi"}
    if chance.random() < 0.7:
        made["nvidia.com/gpu"] = chance.choice([1, 4, 16])
    return made


def pod_spec(chance):
    container = {"name": "main", "image": chance.choice(["a", "registry.example/b:1"])}
    if chance.random() < 0.9:
        container["resources"] = {"limits": amounts(chance), "requests": amounts(chance)}
    if chance.random() < 0.3:
        container["securityContext"] = {"privileged": True}
    spec = {"containers": [container], "restartPolicy": chance.choice(["Never", "Always"])}
    if chance.random() < 0.2:
        spec["initContainers"] = [{**container, "name": "first", "restartPolicy": "Always"}]
    if chance.random() < 0.2:
        spec["hostNetwork"] = True
    return spec


def template(chance):
    labels = {"policyd.io/gpu-model": chance.choice(["h100", "none"])}
    return {"metadata": {"labels": labels}, "spec": pod_spec(chance)}


def job(chance):
    return {"parallelism": chance.choice([1, 2]), "template": template(chance)}


SPECS = {
    ("v1", "Pod"): pod_spec,
    ("batch/v1", "Job"): job,
    ("apps/v1", "Deployment"): lambda c: {"replicas": c.choice([1, 3]), "template": template(c)},
    ("batch/v1", "CronJob"): lambda c: {"jobTemplate": {"spec": job(c)}},
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): lambda c: {
        "replicatedJobs": [
            {"name": name, "replicas": c.choice([1, 2]), "template": {"spec": job(c)}}
            for name in "ab"
        ]
    },
    ("ray.io/v1", "RayCluster"): lambda c: {
        "headGroupSpec": {"template": template(c)},
        "workerGroupSpecs": [{"replicas": c.choice([1, 2]), "template": template(c)}],
    },
}


def made(number, chance, kind=None):
    labels = {"kueue.x-k8s.io/queue-name": "q"} if chance.random() < 0.5 else {}
    labels["app"] = str(chance.choice([1, number]))
    metadata = {"name": f"n{number}", "namespace": "ns", "uid": str(number), "labels": labels}
    version, kind = kind or chance.choice(list(SPECS))
    spec = SPECS[version, kind](chance)
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def found(value):
    request = request_for(value, RequestCircumstances())
    resource = request.resource
    listed = Listed(resource.group, resource.version, resource.resource)
    name = value["metadata"]["name"]
    return ScannedObject(
        resource=listed, kind=value["kind"], namespace="ns", name=name, value=value
    )


def counts(scan):
    rows = scan.book.namespaces.get("ns", {})
    return {key: (row.count, [each.name for each in row.subjects]) for key, row in rows.items()}


def policies(loaded):
    return offline_set(loaded, namespace_lookup([], LABELS))


@pytest.mark.parametrize("tries", [500, 0], ids=["compared", "given-up"])
def test_what_is_alike_is_reported_as_if_each_were_asked(loaded, tries, monkeypatch):
    monkeypatch.setattr(scan_module, "TRIES", tries)
    chance = random.Random(1)
    objects = [found(made(number, chance)) for number in range(300)]
    together, known = PolicyScan(policies(loaded)), 0

    for one in objects:
        together.look_at(one)
    known = sum(group._known for group in together._groups[1])
    monkeypatch.setattr(scan_module._Group, "known", lambda *_: None)
    each = PolicyScan(policies(loaded))
    for one in objects:
        each.look_at(one)

    assert counts(together) == counts(each)
    assert (known > len(objects)) is bool(tries)


def alike(policies):
    return Alike(filter(None, map(looked_at_alike, policies)))


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({"name": "b", "uid": "2"}, True, id="name"),
        pytest.param({"labels": {"kueue.x-k8s.io/queue-name": "r"}}, False, id="queue"),
        pytest.param({"resourceVersion": "7"}, True, id="version"),
    ],
)
def test_what_policies_look_at_tells_objects_apart(loaded, change, same):
    seen = alike(policies(loaded).policies).seen
    value = made(1, random.Random(3), ("v1", "Pod"))
    other = {**value, "metadata": {**value["metadata"], **change}}

    assert (seen(value, "ns") == seen(other, "ns")) is same
    assert seen(value, "ns") != seen(value, "another")


@pytest.mark.parametrize("kind", SPECS, ids=lambda kind: kind[1])
@pytest.mark.parametrize(
    ("resource", "same"), [("cpu", True), ("nvidia.com/gpu", False)], ids=["cpu", "gpu"]
)
def test_who_counts_devices_does_not_see_the_memory(loaded, kind, resource, same):
    (policy,) = (p for p in policies(loaded).policies if p.name == "cap-gpus-per-pod")
    value = made(1, random.Random(5), kind)
    other = json.loads(json.dumps(value))
    changed = 0
    for container in containers(other):
        for side in container.get("resources", {}).values():
            side[resource] = "7"
            changed += 1

    assert changed
    seen = alike([policy]).seen
    assert (seen(value, "ns") == seen(other, "ns")) is (same and kind[1] != "CronJob")


def containers(value):
    """All containers in an object, wherever they are."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from each if name in ("containers", "initContainers") else containers(each)
    for each in value if isinstance(value, list) else ():
        yield from containers(each)


def test_a_policy_that_looks_at_names_is_asked_about_each(tmp_path):
    (tmp_path / "policy.yaml").write_text(
        "apiVersion: policyd.io/v1alpha1\nkind: Policy\nmetadata: {name: named}\nspec:\n"
        "  matchConstraints:\n    resourceRules:\n"
        '    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}\n'
        "  validations: [{expression: \"object.metadata.name != 'b'\", message: not b}]\n"
    )
    scan = PolicyScan(policies(load([str(tmp_path)])))
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}

    for name in "abab":
        scan.look_at(found({**pod, "metadata": {"name": name, "namespace": "ns"}}))

    assert {key.result: number for key, (number, _) in counts(scan).items()} == {
        "pass": 2,
        "fail": 2,
    }

"""A scan says of objects that are alike what it says of each by itself."""

import random

import pytest

from policyd.cli.files import load
from policyd.engine.alike import Alike
from policyd.engine.offline import Circumstances, namespace_lookup, offline_set, request_for
from policyd.engine.scan import Found, Listed, Scan
from tests.docs.pages import PROJECT

LABELS = {"policyd.io/queue": "a", "policyd.io/pod-security": "restricted", "policyd.io/team": "a"}


@pytest.fixture(scope="module")
def loaded():
    return load([str(PROJECT / "policies")])


def pod_spec(chance):
    container = {"name": "main", "image": chance.choice(["a", "registry.example/b:1"])}
    if chance.random() < 0.7:
        container["resources"] = {"limits": {"nvidia.com/gpu": chance.choice([1, 4, 16])}}
    if chance.random() < 0.3:
        container["securityContext"] = {"privileged": True}
    return {"containers": [container], "restartPolicy": chance.choice(["Never", "Always"])}


def made(number, chance):
    labels = {"kueue.x-k8s.io/queue-name": "q"} if chance.random() < 0.5 else {}
    metadata = {"name": f"n{number}", "namespace": "ns", "uid": str(number), "labels": labels}
    if chance.random() < 0.5:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(chance)}
    spec = {"parallelism": chance.choice([1, 2]), "template": {"spec": pod_spec(chance)}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def found(value):
    request = request_for(value, Circumstances())
    resource = request.resource
    listed = Listed(resource.group, resource.version, resource.resource)
    name = value["metadata"]["name"]
    return Found(resource=listed, kind=value["kind"], namespace="ns", name=name, value=value)


def counts(scan):
    rows = scan.book.namespaces.get("ns", {})
    return {key: (row.count, [each.name for each in row.subjects]) for key, row in rows.items()}


def policies(loaded):
    return offline_set(loaded, namespace_lookup([], LABELS))


def test_what_is_alike_is_reported_as_if_each_were_asked(loaded):
    chance = random.Random(1)
    objects = [found(made(number, chance)) for number in range(200)]
    together, each = Scan(policies(loaded)), Scan(policies(loaded))

    for one in objects:
        together.look_at(one)
        each._said.clear()
        each.look_at(one)

    assert counts(together) == counts(each)
    assert len(together._said) < len(objects)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({"name": "b", "uid": "2"}, True, id="name"),
        pytest.param({"labels": {"kueue.x-k8s.io/queue-name": "r"}}, False, id="queue"),
        pytest.param({"resourceVersion": "7"}, True, id="version"),
    ],
)
def test_what_policies_look_at_tells_objects_apart(loaded, change, same):
    alike = Alike(policies(loaded).policies)
    value = made(1, random.Random(3))
    other = {**value, "metadata": {**value["metadata"], **change}}

    assert (alike.seen(value, "ns") == alike.seen(other, "ns")) is same
    assert alike.seen(value, "ns") != alike.seen(value, "another")


def test_a_policy_that_looks_at_names_is_asked_about_each(tmp_path):
    (tmp_path / "policy.yaml").write_text(
        "apiVersion: policyd.io/v1alpha1\nkind: Policy\nmetadata: {name: named}\nspec:\n"
        "  matchConstraints:\n    resourceRules:\n"
        '    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}\n'
        "  validations: [{expression: \"object.metadata.name != 'b'\", message: not b}]\n"
    )
    scan = Scan(policies(load([str(tmp_path)])))
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}

    for name in "abab":
        scan.look_at(found({**pod, "metadata": {"name": name, "namespace": "ns"}}))

    assert {key.result: number for key, (number, _) in counts(scan).items()} == {
        "pass": 2,
        "fail": 2,
    }

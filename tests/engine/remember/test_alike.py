"""A scan says of objects that are alike what it says of each by itself."""

import contextlib
import json
import random

import pytest
import yaml

from policyd.cli.formats.documents import load
from policyd.engine.objects.workloads import find_kind
from policyd.engine.offline import scan as scan_module
from policyd.engine.offline.requests import (
    ObjectError,
    RequestCircumstances,
    namespace_lookup,
    offline_set,
    request_for,
)
from policyd.engine.offline.scan import Listed, PolicyScan, ScannedObject
from policyd.engine.remember.alike import Parts, comparable_reads
from tests.bench.stored import namespaces, stored
from tests.docs.pages import PROJECT
from tests.engine import reviews

LABELS = {"policyd.io/queue": "a", "policyd.io/pod-security": "restricted", "policyd.io/team": "a"}


@pytest.fixture(scope="module")
def loaded():
    return load([str(PROJECT / "policies")])


def amounts(rng):
    made = {"cpu": f"{rng.randint(1, 900)}m", "memory": f"{rng.randint(1, 64)}Gi"}
    if rng.random() < 0.7:
        made["nvidia.com/gpu"] = rng.choice([1, 4, 16])
    return made


def pod_spec(rng):
    container = {"name": "main", "image": rng.choice(["a", "registry.example/b:1"])}
    if rng.random() < 0.9:
        container["resources"] = {"limits": amounts(rng), "requests": amounts(rng)}
    if rng.random() < 0.3:
        container["securityContext"] = {"privileged": True}
    spec = {"containers": [container], "restartPolicy": rng.choice(["Never", "Always"])}
    if rng.random() < 0.2:
        spec["initContainers"] = [{**container, "name": "first", "restartPolicy": "Always"}]
    if rng.random() < 0.2:
        spec["hostNetwork"] = True
    return spec


def template(rng):
    labels = {"policyd.io/gpu-model": rng.choice(["h100", "none"])}
    return {"metadata": {"labels": labels}, "spec": pod_spec(rng)}


def job(rng):
    return {"parallelism": rng.choice([1, 2]), "template": template(rng)}


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


def made(number, rng, kind=None):
    labels = {"kueue.x-k8s.io/queue-name": "q"} if rng.random() < 0.5 else {}
    labels["app"] = str(rng.choice([1, number]))
    metadata = {"name": f"n{number}", "namespace": "ns", "uid": str(number), "labels": labels}
    version, kind = kind or rng.choice(list(SPECS))
    spec = SPECS[version, kind](rng)
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def found(value):
    request = request_for(value, RequestCircumstances())
    resource = request.resource
    return ScannedObject(
        resource=Listed(resource.group, resource.version, resource.resource),
        kind=value["kind"],
        namespace="" if value["kind"] == "Namespace" else request.namespace,
        name=request.name,
        value=value,
    )


def rows(scan):
    """All that a scan says."""
    return {
        (namespace, key): (row.count, row.message, [each.name for each in row.subjects])
        for namespace, found in scan.book.namespaces.items()
        for key, row in found.items()
    }


def counts(scan):
    return {key: (count, names) for (_, key), (count, _, names) in rows(scan).items()}


def asked_about_each(policies):
    """A scan that asks every policy about every object."""
    scan = PolicyScan(policies)
    scan._reads = {}
    return scan


def same(policies, objects):
    """Look at objects both ways, and return how often validations were known to be true."""
    scan, slow = PolicyScan(policies), asked_about_each(policies)
    for one in objects:
        scan.evaluate(one)
        slow.evaluate(one)
    assert rows(scan) == rows(slow)
    asked = [each for plan in scan._kinds.values() for each in plan.alike.asked]
    return sum(each._known for one in asked for each in one.validations)


def policies(loaded):
    return offline_set(loaded, namespace_lookup([], LABELS))


@pytest.mark.parametrize("tries", [500, 0], ids=["compared", "given-up"])
def test_equal_objects_are_reported_as_if_each_were_evaluated(loaded, tries, monkeypatch):
    monkeypatch.setattr(scan_module, "TRIES", tries)
    rng = random.Random(1)
    objects = [found(made(number, rng)) for number in range(300)]

    known = same(policies(loaded), objects)

    assert (known > len(objects)) is bool(tries)


@pytest.mark.parametrize("violations", [0, 0.3])
def test_stored_objects_are_reported_as_if_each_were_evaluated(loaded, violations):
    around = list(namespaces())
    objects = [*around, *stored(150, violations=violations, releases=1)]
    given = offline_set(loaded, namespace_lookup(around, {}), objects=around)

    assert same(given, map(found, objects))


def library_cases():
    """The objects of the library's cases."""
    for file in sorted((PROJECT / "policies").rglob("cases.yaml")):
        for case in yaml.load(file.read_text(), yaml.CSafeLoader)["cases"]:
            for value in (case.get("object"), *case.get("objects", ())):
                if isinstance(value, dict) and isinstance(value.get("metadata"), dict):
                    yield value


ODD = [None, 0, 1, -1.5, "", "x", True, [], {}, [None], [[]], ["a"], {"a": 1}, {"name": None}]


def changed(value, rng):
    """Return an object in which something is another, be it nothing that Kubernetes would take."""
    made = json.loads(json.dumps(value))
    node = made[rng.choice(["metadata", "spec"])] if "spec" in made else made["metadata"]
    while isinstance(node, (dict, list)) and node:
        key = rng.choice([*node] if isinstance(node, dict) else range(len(node)))
        inside = isinstance(node[key], (dict, list)) and node[key]
        if not inside or rng.random() < 0.15:
            if rng.random() < 0.3:
                del node[key]
            else:
                node[key] = rng.choice(ODD)
            break
        node = node[key]
    return made


@pytest.mark.parametrize("seed", range(4))
def test_misshapen_objects_are_reported_as_if_each_were_asked(loaded, seed):
    rng = random.Random(seed)
    bases = [*library_cases(), *stored(20, violations=0.3)]
    bases += [made(number, rng, kind) for kind in SPECS for number in range(3)]
    chosen = rng.sample(bases, 60)
    objects = []
    for value in chosen:
        objects += [value, *(changed(value, rng) for _ in range(6))]

    assert same(policies(loaded), _readable(objects))


def test_containers_that_a_controller_adds_make_a_difference(loaded):
    def cluster(name, **resources):
        head = {"template": {"spec": {"containers": [{"name": "head"}]}}}
        spec = {"headGroupSpec": head, "autoscalerOptions": {"resources": resources}}
        metadata = {"name": name, "namespace": "ns", "uid": name}
        return found(
            {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}
        )

    scan = PolicyScan(policies(loaded))
    for each in (cluster("plain"), cluster("asks", limits={"nvidia.com/gpu": 8})):
        scan.evaluate(each)

    failed = {key.policy: names for (_, key), (_, _, names) in rows(scan).items()}
    assert failed["forbid-gpu-without-queue"] == ["asks"]


def _readable(objects):
    """Yield those that the command would look at."""
    for value in objects:
        with contextlib.suppress(ObjectError, TypeError):
            yield found(value)


def seen(policies):
    """What returns the parts of an object that policies see."""
    reads = [comparable_reads(policy, "CREATE") for policy in policies]
    trees = [tree for each in reads if each for tree in (each.before, *each.validations)]
    parts = Parts(trees)

    def see(value, namespace):
        found = parts.of(value, find_kind(value), namespace)
        return json.dumps(found, default=str)

    return see


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({"name": "b", "uid": "2"}, True, id="name"),
        pytest.param({"labels": {"kueue.x-k8s.io/queue-name": "r"}}, False, id="queue"),
        pytest.param({"resourceVersion": "7"}, True, id="version"),
    ],
)
def test_the_reads_of_policies_distinguish_objects(loaded, change, same):
    see = seen(policies(loaded).policies)
    value = made(1, random.Random(3), ("v1", "Pod"))
    other = {**value, "metadata": {**value["metadata"], **change}}

    assert (see(value, "ns") == see(other, "ns")) is same
    assert see(value, "ns") != see(value, "another")


@pytest.mark.parametrize("kind", SPECS, ids=lambda kind: kind[1])
@pytest.mark.parametrize(
    ("resource", "same"), [("cpu", True), ("nvidia.com/gpu", False)], ids=["cpu", "gpu"]
)
def test_a_count_of_devices_does_not_read_memory(loaded, kind, resource, same):
    (policy,) = (p for p in policies(loaded).policies if p.name == "cap-gpus-per-pod")
    value = made(1, random.Random(5), kind)
    other = json.loads(json.dumps(value))
    changed = 0
    for container in containers(other):
        for side in container.get("resources", {}).values():
            side[resource] = "7"
            changed += 1

    assert changed
    see = seen([policy])
    assert (see(value, "ns") == see(other, "ns")) is same


def containers(value):
    """All containers in an object, wherever they are."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from each if name in ("containers", "initContainers") else containers(each)
    for each in value if isinstance(value, list) else ():
        yield from containers(each)


MAP = "object.metadata.annotations"


@pytest.mark.parametrize(
    ("expression", "given", "other", "same"),
    [
        pytest.param(f"{MAP}.exists(k, k == 'a')", {"b": "1"}, {"b": "2"}, True, id="names"),
        pytest.param(f"{MAP}.exists(k, k == 'a')", {"b": "1"}, {"c": "1"}, False, id="other-names"),
        pytest.param(f"{MAP}.exists(k, k == 'a')", ["b"], ["c"], False, id="items-of-a-list"),
        pytest.param(
            f"{MAP}.exists(k, v, v == 'a')", {"b": "1"}, {"b": "2"}, False, id="names-and-values"
        ),
        pytest.param(
            f"{MAP}.filter(k, k.startsWith('a/') && {MAP}[k] == '1').size() == 0",
            {"a/x": "1", "b": "1"},
            {"a/x": "1", "b": "2"},
            True,
            id="values-by-the-beginning-of-their-names",
        ),
        pytest.param(
            f"{MAP}.filter(k, k.startsWith('a/') && {MAP}[k] == '1').size() == 0",
            {"a/x": "1", "b": "1"},
            {"a/x": "2", "b": "1"},
            False,
            id="values-of-such-names",
        ),
        pytest.param(
            f"{MAP}.all(k, !k.startsWith('a/') || {MAP}[k] == '1')",
            {"b": "1"},
            {"b": "2"},
            True,
            id="unless-they-begin-so",
        ),
        pytest.param(
            f"{MAP}.all(k, k.startsWith('a/') || {MAP}[k] == '1')",
            {"b": "1"},
            {"b": "2"},
            False,
            id="if-they-do-not-begin-so",
        ),
        pytest.param(
            f"{MAP}.all(k, !(k.startsWith('a/') && {MAP}[k] == '1') && {MAP}[k] != '2')",
            {"b": "1"},
            {"b": "2"},
            False,
            id="beyond-the-conjunction",
        ),
        pytest.param(
            f"{MAP}.all(k, !k.startsWith('a/') || object.metadata.labels[k] == '1')",
            {"b": "1"},
            {"b": "2"},
            True,
            id="of-another-map",
        ),
        pytest.param(f"has({MAP}.a)", {}, None, False, id="null"),
        pytest.param(f"'a' in {MAP}", {"a": "1"}, {"b": "1"}, False, id="membership"),
        pytest.param(f"'a' in {MAP}", ["a"], ["b"], False, id="membership-of-a-list"),
    ],
)
def test_the_reads_of_expressions_in_maps(expression, given, other, same):
    (policy,) = reviews.policies(demand(expression)).policies
    see = seen([policy])
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": each, "labels": {}}}
        for each in (given, other)
    ]

    assert (see(pods[0], "ns") == see(pods[1], "ns")) is same


def demand(expression):
    return reviews.policy(f'validations: [{{expression: "{expression}", message: bad}}]')


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({}, {"spec": None}, id="null"),
        pytest.param({"spec": {}}, {}, id="nothing"),
        pytest.param({"spec": {}}, {"spec": {"containers": []}}, id="no-items"),
        pytest.param({"spec": {"containers": []}}, {"spec": {"containers": [{}]}}, id="empty-item"),
        pytest.param(
            {"spec": {"containers": [{}]}}, {"spec": {"containers": [{}, {}]}}, id="two-items"
        ),
        pytest.param(
            {"spec": {"containers": [{"image": "a"}, {}]}},
            {"spec": {"containers": [{}, {"image": "a"}]}},
            id="which-item",
        ),
        pytest.param(
            {"spec": {"containers": [None]}}, {"spec": {"containers": [{}]}}, id="item-of-nothing"
        ),
        pytest.param({"spec": {"containers": {}}}, {"spec": {"containers": []}}, id="no-list"),
        pytest.param(
            {"spec": {"containers": [{"image": 1}]}},
            {"spec": {"containers": [{"image": "1"}]}},
            id="number",
        ),
        pytest.param(
            {"spec": {"containers": [{"image": 1}]}},
            {"spec": {"containers": [{"image": True}]}},
            id="truth",
        ),
    ],
)
def test_absent_fields_differ_from_empty_ones(one, other):
    (policy,) = reviews.policies(demand("object.spec.containers.all(c, c.image != '')")).policies
    see = seen([policy])
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}}

    assert see({**pod, **one}, "ns") != see({**pod, **other}, "ns")


@pytest.mark.parametrize("depth", range(6))
def test_items_of_a_list_are_read_at_any_depth(depth):
    path = "".join(f".a{level}" for level in range(depth))
    expression = f"object.spec{path}.items.all(i, i.n == 1 && i.of.m == 2)"
    (policy,) = reviews.policies(demand(expression)).policies
    see = seen([policy])

    def claim(n, m, more):
        spec = {"items": [{"n": n, "of": {"m": m}, "more": more}, {"n": 1}]}
        for level in reversed(range(depth)):
            spec = {f"a{level}": spec}
        return {"apiVersion": "example.com/v1", "kind": "A", "metadata": {}, "spec": spec}

    assert see(claim(1, 2, 3), "ns") == see(claim(1, 2, 4), "ns")
    assert see(claim(1, 2, 3), "ns") != see(claim(2, 2, 3), "ns")
    assert see(claim(1, 2, 3), "ns") != see(claim(1, 3, 3), "ns")


def test_labels_that_are_no_texts_are_distinguished_from_those_that_are(tmp_path):
    scan, slow = (make(reviews.policies(SELECTING)) for make in (PolicyScan, asked_about_each))
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}
    for labels in ({"a": "b", "c": "d"}, {"a": "b", "c": 1}, {"a": "b", "c": "e"}):
        one = found({**pod, "metadata": {"name": "n", "namespace": "ns", "labels": labels}})
        scan.evaluate(one)
        slow.evaluate(one)

    assert rows(scan) == rows(slow)
    assert [count for count, _, _ in rows(scan).values()] == [2]


SELECTING = reviews.policy(
    "validations: [{expression: 'true', message: bad}]",
).replace("matchConstraints:", "matchConstraints:\n    objectSelector: {matchLabels: {a: b}}", 1)


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
        scan.evaluate(found({**pod, "metadata": {"name": name, "namespace": "ns"}}))

    assert {key.result: number for key, (number, _) in counts(scan).items()} == {
        "pass": 2,
        "fail": 2,
    }

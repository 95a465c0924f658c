"""The same writes on a real API server and through `policyd.patch` give the same objects.

Managers' times are left out. So is what the API server sets by itself on create, before anybody
owns it; the later writes start from what it answered.
"""

import copy
import http.client
import json
import random
import ssl
import urllib.parse
from dataclasses import dataclass, field

import pytest

from policyd.api import kinds
from policyd.errors import PolicydError
from policyd.patch.conflicts import ApplyConflictError
from policyd.patch.fields_v1 import EMPTY, field_element, field_set
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.managed_fields import managed_fields, with_managed_fields
from policyd.patch.merge_patch import apply_merge_patch
from policyd.patch.operations import parse_operations
from policyd.patch.schema import schema_from_openapi, schema_of_type
from policyd.patch.strategic import apply_strategic_merge
from policyd.patch.structured import FieldWriter, apply, track_update, trimmed
from policyd.patch.typed import SchemaError
from tests.controlplane.server import ControlPlane

pytestmark = pytest.mark.e2e

MEDIA_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
STATUS = field_set([(field_element("status"),)])
NOT_STATUS = field_set(
    [(field_element("spec"),), (field_element("metadata"), field_element("labels"))]
)
NOW = 4_000_000_000.0
"""Later than any real write, so that ours is the youngest."""


class Client:
    """Just enough HTTP for the API server."""

    def __init__(self, control_plane):
        context = ssl.create_default_context(cadata=control_plane.ca.decode())
        address = urllib.parse.urlsplit(control_plane.server).netloc
        self._connection = http.client.HTTPSConnection(address, context=context, timeout=30)
        self._token = control_plane.token

    def close(self):
        self._connection.close()

    def send(self, method, path, body=None, *, media="application/json", **query):
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": media}
        target = f"{path}?{urllib.parse.urlencode(query)}"
        self._connection.request(method, target, json.dumps(body), headers)
        response = self._connection.getresponse()
        text = response.read()
        is_json = response.headers.get_content_type() == "application/json"
        return response.status, json.loads(text) if is_json else text.decode()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind, and what the API server sets on create without owning it."""

    api_version: str
    plural: str
    schema: object
    type_name: str = ""
    allocated: tuple[str, ...] = ()
    ignored: object = EMPTY

    def path(self, namespace, name=""):
        root = "/apis/" if "/" in self.api_version else "/api/"
        return f"{root}{self.api_version}/namespaces/{namespace}/{self.plural}/{name}".rstrip("/")


def built_in(api_version, plural, **more):
    group, _, version = api_version.rpartition("/")
    type_name = kinds.resource(group, version, plural).type_name
    schema = schema_of_type(type_name)
    return Kind(api_version=api_version, plural=plural, schema=schema, type_name=type_name, **more)


KINDS = {
    "Pod": built_in(
        "v1", "pods", ignored=STATUS, allocated=("tolerations", "priority", "preemptionPolicy")
    ),
    "ConfigMap": built_in("v1", "configmaps"),
    "Service": built_in(
        "v1",
        "services",
        ignored=STATUS,
        allocated=("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"),
    ),
    "Deployment": built_in("apps/v1", "deployments", ignored=STATUS),
}


@dataclass(frozen=True)
class Step:
    """One write."""

    verb: str
    manager: str
    body: object = field(repr=False)
    force: bool = False
    subresource: str = ""


@pytest.fixture(scope="module")
def client():
    with ControlPlane(components=("etcd", "kube-apiserver")) as control_plane:
        client = Client(control_plane)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "patches"}}
        assert client.send("POST", "/api/v1/namespaces", namespace)[0] == 201
        yield client
        client.close()


def real(client, kind, name, live, step):
    """Carry a step out on the API server."""
    collection, path = kind.path("patches"), kind.path("patches", name)
    path += f"/{step.subresource}" if step.subresource else ""
    query = {"fieldManager": step.manager}
    if step.verb == "create":
        return client.send("POST", collection, step.body, **query)
    if step.verb == "update":
        return client.send("PUT", path, step.body, **query)
    if step.verb == "apply":
        query["force"] = str(step.force).lower()
    return client.send("PATCH", path, step.body, media=MEDIA_TYPES[step.verb], **query)


def ours(kind, live, step, answer):
    """Carry a step out ourselves; on create, start from what the API server made of it."""
    writer = FieldWriter(
        manager=step.manager,
        api_version=kind.api_version,
        now=NOW,
        subresource=step.subresource,
        ignored=NOT_STATUS if step.subresource else kind.ignored,
    )
    if step.verb == "apply":
        return apply(live, step.body, schema=kind.schema, writer=writer, force=step.force)
    if step.verb == "create":
        new = with_managed_fields(without(answer, kind.allocated), [])
    else:
        new = changed(kind, live, step)
    entries = track_update(live, new, schema=kind.schema, writer=writer)
    return with_managed_fields(trimmed(new, kind.schema), entries)


def changed(kind, live, step):
    if step.verb == "json":
        return apply_json_patch(live, parse_operations(step.body))
    if step.verb == "merge":
        return apply_merge_patch(live, step.body)
    if step.verb == "strategic":
        return apply_strategic_merge(live, step.body, kind.type_name)
    return step.body


def without(obj, names):
    spec = {name: value for name, value in obj.get("spec", {}).items() if name not in names}
    return {**obj, "spec": spec} if spec else obj


def comparable(obj):
    """Leave out times, and what counts the writes."""
    obj = copy.deepcopy(obj)
    for name in ("resourceVersion", "generation", "uid", "creationTimestamp"):
        obj["metadata"].pop(name, None)
    entries = obj["metadata"].pop("managedFields", [])
    for entry in entries:
        entry.pop("time", None)
    key = json.dumps
    return obj, sorted(entries, key=lambda entry: key(entry, sort_keys=True))


def contains(whole, part):
    """Tell whether `whole` has all that `part` says, as defaults may come on top."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(name in whole and contains(whole[name], part[name]) for name in part)
    if isinstance(whole, list) and isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return whole == part


def lost(mine, theirs, live):
    """Return what `mine` lacks of `live` though `theirs` has it; new defaults do not count."""
    if isinstance(theirs, list):
        olds = {json.dumps(key_of(item)): item for item in live or ()}
        pairs = zip(mine, theirs, strict=True)
        return [found for m, t in pairs for found in lost(m, t, olds.get(json.dumps(key_of(t))))]
    if not isinstance(theirs, dict) or not isinstance(live, dict):
        return []
    found = [
        name for name in (theirs.keys() & live.keys()) - mine.keys() if theirs[name] == live[name]
    ]
    for name in theirs.keys() & mine.keys():
        found += lost(mine[name], theirs[name], live.get(name))
    return found


def key_of(item):
    keys = ("name", "port", "containerPort", "protocol")
    return [item.get(key) for key in keys] if isinstance(item, dict) else item


def check_refusal(error, status, answer):
    """Compare how both sides refuse a step."""
    if isinstance(error, ApplyConflictError):
        assert (status, answer["message"]) == (409, str(error))
        causes = {(cause["message"], cause["field"]) for cause in answer["details"]["causes"]}
        assert causes == {(cause["message"], cause["field"]) for cause in error.causes}
    elif isinstance(error, SchemaError):
        assert (status, answer["message"]) == (500, str(error))
    else:
        # The API server keeps the reason of a failed JSON patch to itself.
        assert status == 422, answer


def compare_step(client, kind, name, live, step):
    """Carry a step out on both sides, compare, and return what is stored then."""
    status, answer = real(client, kind, name, live, step)
    try:
        result = ours(kind, live, step, answer)
    except PolicydError as error:
        refusal = error
    else:
        refusal = None
    if refusal is not None:
        check_refusal(refusal, status, answer)
        return live
    assert status in {200, 201}, (step.body, answer)
    (theirs, their_managers), (mine, my_managers) = comparable(answer), comparable(result)
    assert contains(theirs, mine)
    if live is not None:
        assert not lost(mine, theirs, live), "what one side alone removed"
    assert my_managers == their_managers
    return answer


def run(client, kind, name, steps):
    live = None
    for step in steps:
        live = compare_step(client, kind, name, live, step)
    return live


def config_map(name, data, **metadata):
    metadata = {"name": name, "namespace": "patches", **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def deployment(name, *containers, replicas=None, **template):
    spec = {
        "selector": {"matchLabels": {"app": "x"}},
        "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"containers": list(containers), **template},
        },
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "patches"},
        "spec": spec,
    }


def pod(name, *containers, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "patches", "labels": {"a": "1"}},
        "spec": {"containers": list(containers), **spec},
    }


def service(name, *ports, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "patches"},
        "spec": {"ports": list(ports), "selector": {"app": "x"}, **spec},
    }


MAIN = {"name": "main", "image": "one"}
LOG = {"name": "log", "image": "two"}


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        pytest.param(
            "ConfigMap",
            [
                Step("create", "ann", config_map("cm", {"a": "1", "b": "2"}, labels={"x": "1"})),
                Step("merge", "bob", {"data": {"b": "3", "c": None}}),
                Step("json", "cyd", [{"op": "add", "path": "/data/d", "value": "4"}]),
                Step("json", "cyd", [{"op": "test", "path": "/data/d", "value": "5"}]),
                Step("json", "cyd", [{"op": "remove", "path": "/data/zz"}]),
                Step(
                    "json", "cyd", [{"op": "add", "path": "/metadata/annotations/x", "value": "1"}]
                ),
                Step("strategic", "bob", {"metadata": {"finalizers": ["a.b/c", "a.b/d"]}}),
                Step(
                    "strategic",
                    "bob",
                    {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c"]}},
                ),
                Step("apply", "dan", config_map("cm", {"a": "1", "e": "5"})),
                Step("apply", "dan", config_map("cm", {"a": "2"})),
                Step("apply", "dan", config_map("cm", {"a": "2"}), force=True),
                Step("apply", "dan", config_map("cm", {})),
                Step("merge", "eve", {"metadata": {"finalizers": None}}),
            ],
            id="config-map",
        ),
        pytest.param(
            "ConfigMap",
            [
                Step("apply", "ann", config_map("shared", {"a": "1", "b": "2"})),
                Step("apply", "bob", config_map("shared", {"a": "1"})),
                Step("apply", "ann", config_map("shared", {"b": "2"})),
                Step("apply", "bob", config_map("shared", {"b": "3", "a": "2"})),
                Step("apply", "bob", config_map("shared", {"b": 3})),
                Step("apply", "bob", {**config_map("shared", {}), "extra": 1}),
                Step("apply", "bob", config_map("shared", {"b": "3"}), force=True),
                Step("apply", "ann", config_map("shared", {})),
                Step("apply", "bob", config_map("shared", {})),
            ],
            id="owners-share-and-let-go",
        ),
        pytest.param(
            "Deployment",
            [
                Step("apply", "ann", deployment("dep", MAIN, replicas=2)),
                Step("merge", "scaler", {"spec": {"replicas": 5}}),
                Step("apply", "ann", deployment("dep", MAIN, replicas=2)),
                Step("apply", "ann", deployment("dep", {**MAIN, "args": ["a"]}, LOG)),
                Step(
                    "strategic",
                    "bob",
                    {
                        "spec": {
                            "template": {
                                "spec": {
                                    "$setElementOrder/containers": [
                                        {"name": "log"},
                                        {"name": "main"},
                                    ],
                                    "containers": [{"name": "log", "image": "three"}],
                                }
                            }
                        }
                    },
                ),
                Step("apply", "ann", deployment("dep", LOG, MAIN)),
                Step("apply", "ann", deployment("dep", LOG, MAIN), force=True),
                Step("apply", "ann", deployment("dep", MAIN), force=True),
                Step(
                    "strategic",
                    "bob",
                    {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
                ),
                Step(
                    "apply",
                    "cyd",
                    deployment(
                        "dep",
                        {
                            "name": "main",
                            "ports": [{"containerPort": 80}],
                            "env": [{"name": "A", "value": "1"}],
                        },
                        tolerations=[{"key": "gpu", "operator": "Exists"}],
                        nodeSelector={"zone": "a"},
                    ),
                ),
                Step(
                    "apply",
                    "cyd",
                    deployment("dep", {"name": "main", "env": [{"name": "A", "value": "1"}]}),
                ),
            ],
            id="deployment",
        ),
        pytest.param(
            "Pod",
            [
                Step("create", "ann", pod("pod", MAIN, schedulingGates=[{"name": "a.b/hold"}])),
                Step(
                    "merge", "bob", {"metadata": {"labels": {"b": "2"}, "annotations": {"x": "1"}}}
                ),
                Step(
                    "json", "bob", [{"op": "replace", "path": "/metadata/labels/new", "value": "1"}]
                ),
                Step(
                    "strategic",
                    "bob",
                    {"spec": {"schedulingGates": [{"name": "a.b/hold", "$patch": "delete"}]}},
                ),
                Step(
                    "apply",
                    "cyd",
                    {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "metadata": {"name": "pod", "labels": {"b": "3", "a": "9"}},
                    },
                ),
                Step(
                    "strategic",
                    "bob",
                    {"spec": {"containers": [{"name": "main", "image": "other"}]}},
                ),
            ],
            id="pod",
        ),
        pytest.param(
            "Service",
            [
                Step("create", "ann", service("svc", {"port": 80, "name": "web"})),
                Step(
                    "apply", "bob", service("svc", {"port": 53, "protocol": "UDP", "name": "dns"})
                ),
                Step("apply", "bob", service("svc", {"port": 53, "name": "tcp-dns"})),
                Step("strategic", "cyd", {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}),
                Step("apply", "bob", service("svc", {"port": 80, "name": "other"})),
                Step("apply", "bob", service("svc", {"port": "eighty", "protocol": "TCP"})),
                Step("apply", "bob", service("svc", {"port": 80}, {"port": 80})),
            ],
            id="service",
        ),
    ],
)
def test_objects_and_owners_are_the_same(client, kind, steps):
    name = steps[0].body["metadata"]["name"]

    live = run(client, KINDS[kind], name, steps)

    assert managed_fields(live)


SINCE = {
    "status": "True",
    "lastUpdateTime": "2026-01-01T00:00:00Z",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def applied_by_client(name, data):
    text = json.dumps(config_map(name, data))
    return config_map(name, data, annotations={LAST_APPLIED: text})


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        pytest.param(
            "ConfigMap",
            [
                Step("create", "ann", config_map("many", {"a": "1"})),
                *(
                    Step("merge", f"writer-{number:02}", {"data": {f"d{number}": "1"}})
                    for number in range(13)
                ),
            ],
            id="the-oldest-of-many-updaters-are-taken-together",
        ),
        pytest.param(
            "ConfigMap",
            [
                Step("create", "ann", config_map("reset", {"a": "1"})),
                Step("merge", "ann", {"metadata": {"managedFields": [{}]}}),
                Step("merge", "bob", {"data": {"b": "1"}}),
                Step("apply", "cyd", config_map("reset", {"a": "2"})),
                Step("apply", "cyd", config_map("reset", {"c": "2"})),
            ],
            id="what-nobody-owned-before-the-first-apply",
        ),
        pytest.param(
            "ConfigMap",
            [
                Step("create", "kubectl-client-side-apply", applied_by_client("up", {"a": "1"})),
                Step("merge", "bob", {"data": {"b": "1"}}),
                Step("apply", "kubectl", config_map("up", {"a": "2", "b": "2"})),
                Step("apply", "kubectl", config_map("up", {"a": "2"})),
                Step("apply", "kubectl", config_map("up", {"c": "3"})),
            ],
            id="from-client-side-to-server-side-apply",
        ),
        pytest.param(
            "Deployment",
            [
                Step("apply", "ann", deployment("parts", MAIN)),
                Step(
                    "merge",
                    "controller",
                    {"status": {"replicas": 1, "observedGeneration": 1}},
                    subresource="status",
                ),
                Step(
                    "apply",
                    "other",
                    {
                        "apiVersion": "apps/v1",
                        "kind": "Deployment",
                        "metadata": {"name": "parts"},
                        "status": {
                            "replicas": 2,
                            "conditions": [{"type": "Available", **SINCE}],
                        },
                    },
                    subresource="status",
                ),
                Step(
                    "strategic",
                    "controller",
                    {"status": {"conditions": [{"type": "Progressing", **SINCE}]}},
                    subresource="status",
                ),
            ],
            id="the-status-has-owners-of-its-own",
        ),
    ],
)
def test_owners_are_the_same_in_special_cases(client, kind, steps):
    name = steps[0].body["metadata"]["name"]

    live = run(client, KINDS[kind], name, steps)

    assert managed_fields(live)


VALUES = ("1", "2")


def random_container(choose, name):
    container = {"name": name, "image": "one"}
    if choose.random() < 0.5:
        ports = choose.sample([80, 81, 82], choose.randint(1, 3))
        container["ports"] = [{"containerPort": port} for port in ports]
    if choose.random() < 0.5:
        env = choose.sample(["A", "B"], choose.randint(1, 2))
        container["env"] = [{"name": one, "value": choose.choice(VALUES)} for one in env]
    if choose.random() < 0.3:
        container["args"] = choose.choices(["x", "y"], k=2)
    return container


def random_applied(choose, name):
    """A deployment as an applier might want it."""
    names = choose.sample(["main", "log", "sync"], choose.randint(1, 3))
    applied = deployment(name, *(random_container(choose, each) for each in names))
    if choose.random() < 0.5:
        applied["spec"]["replicas"] = choose.randint(2, 4)
    if choose.random() < 0.5:
        labels = {one: choose.choice(VALUES) for one in choose.sample("ab", choose.randint(1, 2))}
        applied["metadata"]["labels"] = labels
    if choose.random() < 0.3:
        applied["spec"]["template"]["spec"]["nodeSelector"] = {"zone": choose.choice(VALUES)}
    if choose.random() < 0.3:
        applied["metadata"]["finalizers"] = choose.sample(["a.b/c", "a.b/d"], 1)
    return applied


def random_step(choose, name):
    manager = choose.choice(["ann", "bob", "cyd"])
    if choose.random() < 0.7:
        return Step("apply", manager, random_applied(choose, name), force=choose.random() < 0.6)
    patch = choose.choice(
        [
            {"spec": {"replicas": choose.randint(2, 5)}},
            {"metadata": {"labels": {choose.choice("abc"): choose.choice([*VALUES, None])}}},
            {"spec": {"template": {"spec": {"nodeSelector": {"disk": choose.choice(VALUES)}}}}},
        ]
    )
    return Step(choose.choice(["merge", "strategic"]), manager, patch)


@pytest.mark.parametrize("seed", range(6))
def test_random_writers_of_a_deployment_end_up_the_same(client, seed):
    choose = random.Random(seed)
    name = f"random-{seed}"
    steps = [random_step(choose, name) for _ in range(25)]
    steps[0] = Step("apply", "ann", random_applied(choose, name))

    live = run(client, KINDS["Deployment"], name, steps)

    assert managed_fields(live)


WIDGET_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "plain": {"type": "array", "items": {"type": "string"}},
                "tags": {
                    "type": "array",
                    "items": {"type": "string"},
                    "x-kubernetes-list-type": "set",
                },
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "zone"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "zone": {"type": "string", "default": "any"},
                            "size": {"type": "integer"},
                        },
                    },
                },
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "additionalProperties": {"type": "string"},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "either": {"x-kubernetes-int-or-string": True},
            },
        }
    },
}


def widget(**spec):
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "patches"},
        "spec": spec,
    }


@pytest.fixture
def widgets(client):
    """A custom kind whose schema has every type of list and object."""
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": WIDGET_SCHEMA},
                }
            ],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert client.send("POST", path, definition)[0] == 201
    # Until the schema is served, applying is refused.
    while "com.example.v1.Widget" not in str(client.send("GET", "/openapi/v3/apis/example.com/v1")):
        pass
    return Kind(
        api_version="example.com/v1", plural="widgets", schema=schema_from_openapi(WIDGET_SCHEMA)
    )


def test_a_custom_kind_merges_by_its_schema(client, widgets):
    steps = [
        Step("create", "ann", widget(size=1, tags=["a"], plain=["x"], whole={"k": "v"})),
        Step("apply", "bob", widget(tags=["b"], parts=[{"name": "p"}, {"name": "q", "zone": "z"}])),
        Step("apply", "bob", widget(parts=[{"name": "p", "zone": "any", "size": 3}])),
        Step("apply", "bob", widget(plain=["y"])),
        Step("apply", "bob", widget(plain=["y"], whole={"l": "w"}), force=True),
        Step("apply", "cyd", widget(free={"deep": {"a": 1, "list": [1]}}, either="1%")),
        Step("apply", "ann", widget(free={"deep": {"b": 2}}, either=5)),
        Step("merge", "dan", {"spec": {"free": {"deep": {"a": None}}, "size": None}}),
        Step("apply", "cyd", widget(tags=["b", "a"])),
        Step("apply", "cyd", widget(tags=["a", "a"])),
        Step("apply", "cyd", widget(unknown=1)),
        Step("apply", "cyd", widget(size="1")),
    ]

    live = run(client, widgets, "w", steps)

    assert live["spec"]["tags"] == ["b", "a"]

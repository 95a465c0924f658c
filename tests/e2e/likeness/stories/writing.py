"""Ways of writing: patches, apply, dry run, unknown fields, versions, and bodies that are none."""

from tests.e2e.likeness.asking import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Ask,
    apply,
    create,
    find,
    patch,
    path_of,
    read,
    remove,
    replace,
)
from tests.e2e.likeness.objects import CONTAINER, config_map, deployment, job, make, pod

UNKNOWN = pod("odd", container={"imagee": "x"}, colour="red", metadata={"colour": "red"})
TWICE = (
    '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "twice", "name": "twice2"},'
    ' "data": {"a": "b", "a": "c"}}'
)
TWICE_IN_YAML = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: twice-in-yaml}\ndata:\n  a: b\n  a: c\n"
)


def operations(*written):
    return patch("ConfigMap", "web", list(written), JSON_PATCH)


def op(name, path, **more):
    return {"op": name, "path": path, **more}


def posting(body, content="application/json", kind="ConfigMap"):
    return Ask(method="POST", path=path_of(kind), body=body, content=content)


def versioned(config_map, **data):
    return config_map | {"data": data}


APPLIED = config_map("shared", a="1", b="2")

STORIES = {
    "json-patch": [
        create(config_map(a="b")),
        operations(op("add", "/data/c", value="d")),
        operations(op("replace", "/data/c", value="e"), op("test", "/data/c", value="e")),
        operations(op("test", "/data/c", value="f")),
        operations(op("replace", "/data/none", value="e")),
        operations(op("remove", "/data/none")),
        operations(op("add", "/none/c", value="d")),
        operations(op("move", "/data/moved", **{"from": "/data/c"})),
        operations(op("copy", "/data/copied", **{"from": "/data/a"})),
        operations(op("jump", "/data/c", value="d")),
        operations(op("add", "data/c", value="d")),
        operations(op("add", "/data/c")),
        operations(op("replace", "", value=config_map(z="z"))),
        operations(op("add", "/data/n", value=5)),
        operations(op("add", "/metadata/name", value="other")),
        patch("ConfigMap", "web", "[", JSON_PATCH),
        patch("ConfigMap", "web", {"a": "b"}, JSON_PATCH),
        patch("ConfigMap", "web", [], JSON_PATCH),
        patch("ConfigMap", "nobody", [], JSON_PATCH),
        read("ConfigMap", "web"),
    ],
    "merge-patch": [
        create(config_map(a="b")),
        patch("ConfigMap", "web", {"data": {"a": None, "c": "d"}}),
        patch("ConfigMap", "web", {"data": None}),
        patch("ConfigMap", "web", {"data": "text"}),
        patch("ConfigMap", "web", {}),
        patch("ConfigMap", "web", []),
        patch("ConfigMap", "web", "{"),
        patch("ConfigMap", "web", "null"),
        patch("ConfigMap", "web", {"data": {"a": "b"}}, "text/plain"),
        patch("ConfigMap", "web", {"data": {"a": "b"}}, "application/json"),
        patch("ConfigMap", "nobody", {"data": {"a": "b"}}),
    ],
    "strategic-merge-patch": [
        create(pod(tolerations=[{"key": "a", "operator": "Exists"}])),
        patch(
            "Pod",
            "web",
            {"spec": {"containers": [{"name": "main", "image": "other"}]}},
            STRATEGIC,
        ),
        patch(
            "Pod",
            "web",
            {"metadata": {"$patch": "replace", "labels": {"a": "b"}, "name": "web"}},
            STRATEGIC,
        ),
        patch("Pod", "web", {"metadata": {"finalizers": ["example.com/x"]}}, STRATEGIC),
        patch("Pod", "web", {"metadata": {"finalizers": ["example.com/y"]}}, STRATEGIC),
        patch(
            "Pod",
            "web",
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/x"]}},
            STRATEGIC,
        ),
        patch("Pod", "web", {"metadata": {"finalizers": None}}, STRATEGIC),
        patch("Pod", "web", {"spec": {"containers": [{"image": "x"}]}}, STRATEGIC),
        patch("Pod", "web", {"spec": {"containers": [{"$patch": "wipe"}]}}, STRATEGIC),
        patch("Pod", "web", {"spec": {"containers": "none"}}, STRATEGIC),
        patch("Pod", "web", {"metadata": {"labels": {"$patch": "delete"}}}, STRATEGIC),
        read("Pod", "web"),
    ],
    "apply": [
        apply(APPLIED),
        apply(APPLIED),
        apply(config_map("shared", a="1")),
        apply(config_map("shared", a="2"), "other"),
        apply(config_map("shared", a="2", c="3"), "other", force="true"),
        apply(config_map("shared", a="1"), dryRun="All"),
        patch("ConfigMap", "shared", {"data": {"c": "4"}}),
        apply(config_map("shared", a="2", c="3"), "other"),
        Ask(method="PATCH", path=path_of("ConfigMap", "shared"), body=APPLIED, content=APPLY),
        apply(APPLIED | {"metadata": {"name": "shared", "managedFields": [{"manager": "x"}]}}),
        apply(config_map("shared", metadata={"resourceVersion": "1"})),
        apply(config_map("other", metadata={"resourceVersion": "1"})),
        Ask(
            method="PATCH",
            path=path_of("ConfigMap", "shared"),
            query={"fieldManager": "x"},
            body=config_map("another"),
            content=APPLY,
        ),
        Ask(
            method="PATCH",
            path=path_of("ConfigMap", "shared"),
            query={"fieldManager": "x"},
            body="a: [",
            content=APPLY,
        ),
        Ask(
            method="PATCH",
            path=path_of("ConfigMap", "shared"),
            query={"fieldManager": "x", "force": "true"},
            body={"data": {"a": "b"}},
            content=APPLY,
        ),
        apply(config_map("shared", a="x"), "x" * 129),
        read("ConfigMap", "shared"),
    ],
    "applying-lists": [
        apply(pod("listed", container={"env": [{"name": "A", "value": "1"}]})),
        apply(pod("listed", container={"image": "other"}), "other"),
        apply(pod("listed", container={"image": "other"}), "other", force="true"),
        apply(pod("listed", container={"name": "second"}), "third"),
        apply(deployment("listed", replicas=3)),
        patch("Deployment", "listed", {"spec": {"replicas": 5}}, part="scale", fieldManager="hpa"),
        apply(deployment("listed", replicas=3)),
        apply(deployment("listed")),
        apply(job("listed", suspend=True)),
        apply(job("listed", suspend=False), "queue"),
        apply(job("listed", suspend=False), "queue", force="true"),
        read("Deployment", "listed"),
        read("Job", "listed"),
    ],
    "dry-run": [
        create(config_map(), dryRun="All"),
        read("ConfigMap", "web"),
        create(config_map(), dryRun="Some"),
        create(config_map()),
        create(config_map(), dryRun="All"),
        patch("ConfigMap", "web", {"data": {"a": "c"}}, dryRun="All"),
        replace("ConfigMap", "web", config_map(a="d"), dryRun="All"),
        remove("ConfigMap", "web", dryRun="All"),
        remove("ConfigMap", "web", {"dryRun": ["All"]}),
        remove("ConfigMap", dryRun="All"),
        read("ConfigMap", "web"),
    ],
    "unknown-fields": [
        create(UNKNOWN, dryRun="All"),
        create(UNKNOWN, dryRun="All", fieldValidation="Ignore"),
        create(UNKNOWN, dryRun="All", fieldValidation="Warn"),
        create(UNKNOWN, dryRun="All", fieldValidation="Strict"),
        create(UNKNOWN, dryRun="All", fieldValidation="Hard"),
        create(config_map()),
        patch("ConfigMap", "web", {"colour": "red"}),
        patch("ConfigMap", "web", {"colour": "red"}, fieldValidation="Strict"),
        patch("ConfigMap", "web", {"colour": "red"}, STRATEGIC, fieldValidation="Strict"),
        patch(
            "ConfigMap",
            "web",
            [op("add", "/colour", value="red")],
            JSON_PATCH,
            fieldValidation="Strict",
        ),
        replace("ConfigMap", "web", {**config_map(), "colour": "red"}, fieldValidation="Strict"),
        apply({**config_map(), "colour": "red"}),
        apply({**config_map(), "colour": "red"}, fieldValidation="Strict"),
        apply({**config_map(), "colour": "red"}, fieldValidation="Ignore"),
    ],
    "fields-given-twice": [
        posting(TWICE),
        Ask(
            method="POST",
            path=path_of("ConfigMap"),
            query={"fieldValidation": "Strict"},
            body=TWICE,
        ),
        Ask(
            method="POST",
            path=path_of("ConfigMap"),
            query={"fieldValidation": "Ignore", "dryRun": "All"},
            body=TWICE.replace("twice2", "twice3"),
        ),
        posting(TWICE_IN_YAML, "application/yaml"),
        Ask(
            method="PATCH",
            path=path_of("ConfigMap", "twice2"),
            query={"fieldValidation": "Strict"},
            body='{"data": {"a": "b", "a": "c"}}',
            content=MERGE,
        ),
        Ask(
            method="PATCH",
            path=path_of("ConfigMap", "twice-in-yaml"),
            query={"fieldManager": "x", "fieldValidation": "Strict"},
            body=TWICE_IN_YAML,
            content=APPLY,
        ),
    ],
    "versions": [
        create(config_map()),
        replace("ConfigMap", "web", lambda found: versioned(found, a="c")),
        replace("ConfigMap", "web", lambda found: versioned(found, a="c")),
        replace("ConfigMap", "web", config_map(metadata={"resourceVersion": "1"})),
        replace("ConfigMap", "web", config_map(metadata={"resourceVersion": "x"})),
        replace("ConfigMap", "web", config_map(a="e")),
        patch("ConfigMap", "web", {"metadata": {"resourceVersion": "1"}}),
        patch(
            "ConfigMap",
            "web",
            [op("test", "/metadata/resourceVersion", value="1")],
            JSON_PATCH,
        ),
        patch("ConfigMap", "web", {"metadata": {"uid": "x"}}),
        remove("ConfigMap", "web", {"preconditions": {"uid": "x"}}),
        remove("ConfigMap", "web", {"preconditions": {"resourceVersion": "1"}}),
        remove("ConfigMap", "web", {"propagationPolicy": "Sometimes"}),
        remove("ConfigMap", "web", {"gracePeriodSeconds": -1}),
        remove("ConfigMap", "web", {"colour": "red"}),
        find("ConfigMap"),
    ],
    "bodies-that-are-none": [
        posting(""),
        posting("{"),
        posting("[]"),
        posting("null"),
        posting('"text"'),
        posting("a: b", "application/yaml"),
        posting("a: [", "application/yaml"),
        posting("{}", "text/plain"),
        posting("{}", "application/xml"),
        posting({"metadata": {"name": "untyped"}, "data": {"a": "b"}}),
        posting({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}}),
        posting({"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "x"}}),
        posting({"kind": "ConfigMap", "metadata": {"name": "no-version"}}),
        posting({"apiVersion": "v1", "metadata": {"name": "no-kind"}}),
        posting({"metadata": "text", "kind": "ConfigMap", "apiVersion": "v1"}),
        posting({"metadata": {"name": 5}, "kind": "ConfigMap", "apiVersion": "v1"}),
        posting({"metadata": {}, "kind": "ConfigMap", "apiVersion": "v1"}),
        posting({"kind": "ConfigMap", "apiVersion": "v1"}),
        posting(make("ConfigMap", "x", data=["a"])),
        posting(make("Pod", "x", spec={"containers": CONTAINER}), kind="Pod"),
        posting(make("Pod", "x", spec={"containers": ["x"]}), kind="Pod"),
        posting(make("Pod", "x", spec=[]), kind="Pod"),
        posting(make("Pod", "x", spec={"containers": [{"name": 5}]}), kind="Pod"),
        replace("ConfigMap", "web", "{"),
        remove("ConfigMap", "web", "{"),
    ],
    "paths-that-are-none": [
        Ask(method="GET", path="/api/v1/nothings"),
        Ask(method="GET", path="/api/v2/pods"),
        Ask(method="GET", path="/apis/batch/v2/jobs"),
        Ask(method="GET", path="/apis/nothing.example.com/v1/things"),
        Ask(method="GET", path="/nothing"),
        Ask(method="POST", path="/api/v1/pods", body=pod()),
        Ask(method="POST", path="/api/v1/namespaces/default/nodes", body=make("Node", "x")),
        Ask(method="PUT", path="/api/v1/namespaces/default/pods", body=pod()),
        Ask(method="DELETE", path="/api/v1/namespaces"),
        Ask(method="PATCH", path="/api/v1/namespaces/default/pods", body={}, content=MERGE),
        Ask(method="POST", path="/api/v1/namespaces/default/pods/x", body=pod()),
        Ask(method="GET", path="/api/v1/namespaces/default/pods/x/y/z"),
        Ask(method="GET", path="/api/v1/namespaces/default/configmaps/x/status"),
        Ask(method="GET", path="/api/v1/namespaces/default/pods/", query={}),
        Ask(method="TRACE", path="/api/v1/namespaces/default/pods"),
    ],
}

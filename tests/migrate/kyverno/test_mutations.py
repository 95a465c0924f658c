"""`mutate` changes what it changes in Kyverno: overlays, JSON patches, `foreach`, templates."""

import pytest

from policyd.migrate.kyverno.policies import convert
from tests.migrate.kyverno.deciding import decide, in_template, legacy, pod, rule


def mutated(of, match=None, **mutate):
    parts = {"match": match} if match else {}
    return decide(legacy(rule(mutate=mutate, **parts)), of)[1]


NAMED = {"name": "c", "image": "nginx:1"}
VOLUMES = [{"name": "v", "hostPath": {"path": "/data/a"}}]


@pytest.mark.parametrize(
    ("overlay", "expected"),
    [
        pytest.param(
            {"metadata": {"labels": {"a.example/b": "c"}}},
            pod(labels={"app": "web", "a.example/b": "c"}),
            id="label",
        ),
        pytest.param(
            {"metadata": {"labels": {"+(app)": "x", "+(b)": "{{request.object.metadata.name}}"}}},
            pod(labels={"app": "web", "b": "a"}),
            id="absent-only",
        ),
        pytest.param(
            {"metadata": {"labels": {"(app)": "x", "b": "c"}}},
            pod(labels={"app": "web"}),
            id="condition",
        ),
        pytest.param(
            {"spec": {"securityContext": {"runAsUser": 7}}},
            pod(labels={"app": "web"}, securityContext={"runAsUser": 7}),
            id="struct",
        ),
        pytest.param(
            {"spec": {"containers": [{"(name)": "c*", "imagePullPolicy": "Always"}]}},
            pod({**NAMED, "imagePullPolicy": "Always"}, labels={"app": "web"}),
            id="elements",
        ),
        pytest.param(
            {"spec": {"containers": [{"(image)": "redis*", "imagePullPolicy": "Always"}]}},
            pod(labels={"app": "web"}),
            id="no-element",
        ),
        pytest.param(
            {"spec": {"containers": [{"<(image)": "nginx*"}], "priorityClassName": "p"}},
            pod(labels={"app": "web"}, priorityClassName="p"),
            id="global-condition",
        ),
        pytest.param(
            {
                "metadata": {"labels": {"b": "c"}},
                "spec": {"containers": [{"securityContext": {"<(privileged)": True}}]},
            },
            pod(labels={"app": "web"}),
            id="deep-global-condition-that-does-not-hold",
        ),
        pytest.param(
            {
                "metadata": {"labels": {"b": "c"}},
                "spec": {"volumes": [{"hostPath": {"<(path)": "/data*"}}]},
            },
            pod(labels={"app": "web", "b": "c"}, volumes=VOLUMES),
            id="deep-global-condition",
        ),
        pytest.param(
            {"spec": {"imagePullSecrets": [{"name": "s"}]}},
            pod(labels={"app": "web"}, imagePullSecrets=[{"name": "s"}]),
            id="replaced-as-a-whole",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "x", "image": "y"}]}},
            pod({"name": "x", "image": "y"}, NAMED, labels={"app": "web"}),
            id="sidecar",
        ),
    ],
)
def test_an_overlay_is_merged(overlay, expected):
    volumes = {name: expected["spec"][name] for name in ("volumes",) if name in expected["spec"]}
    found = mutated(pod(labels={"app": "web"}, **volumes), patchStrategicMerge=overlay)

    assert bare(found) == bare(expected)


def bare(value):
    """Drop what is empty: a typed object has such fields."""
    if isinstance(value, dict):
        kept = {key: bare(part) for key, part in value.items()}
        return {key: part for key, part in kept.items() if part not in ({}, [], None)}
    return [bare(part) for part in value] if isinstance(value, list) else value


def test_templates_are_changed_like_pods():
    found = mutated(in_template(pod()), patchStrategicMerge={"spec": {"priorityClassName": "p"}})

    assert found["spec"]["template"]["spec"]["priorityClassName"] == "p"


def test_a_template_in_a_template_is_changed():
    template = {"template": {"spec": pod()["spec"]}}
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"jobTemplate": {"spec": template}},
    }
    found = mutated(cron, patchStrategicMerge={"metadata": {"labels": {"a": "b"}}})

    assert found["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"] == {"a": "b"}


def test_rules_change_what_the_ones_before_them_left():
    first = rule(name="one", mutate={"patchStrategicMerge": {"metadata": {"labels": {"a": "1"}}}})
    copied = {"metadata": {"labels": {"b": "{{ request.object.metadata.labels.a || 'none' }}"}}}
    second = rule(name="zwei", mutate={"patchStrategicMerge": copied})

    _, found = decide(legacy(first, second), pod())

    assert found["metadata"]["labels"] == {"a": "1", "b": "1"}


def test_operations_of_a_json_patch_add_what_they_are_in():
    patch = '[{"op": "add", "path": "/metadata/labels/x~1y", "value": "{{request.object.kind}}"}]'

    assert mutated(pod(), patchesJson6902=patch)["metadata"]["labels"] == {"x/y": "Pod"}


def test_every_element_is_changed():
    listed = {"list": "request.object.spec.containers"}
    merge = {"spec": {"containers": [{"name": "{{element.name}}", "image": "r/{{element.image}}"}]}}
    patch = (
        '- {op: add, path: "/spec/containers/{{elementIndex}}/env/-", '
        'value: {name: X, value: "{{element.name}}"}}'
    )
    of = pod({"name": "a", "image": "b"}, {"name": "c", "image": "d", "env": [{"name": "E"}]})

    found = mutated(of, foreach=[{**listed, "patchStrategicMerge": merge}])
    assert [each["image"] for each in found["spec"]["containers"]] == ["r/b", "r/d"]
    found = mutated(of, foreach=[{**listed, "patchesJson6902": patch}])
    names = [[e["name"] for e in each["env"]] for each in found["spec"]["containers"]]
    assert names == [["X"], ["E", "X"]]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("nginx:1", "docker.io/nginx:1"),
        ("a/library/b:1", "docker.io/a/library/b:1"),
        ("public.example/docker/library/nginx:1", "public.example/docker/library/nginx:1"),
    ],
)
def test_parts_of_images_are_those_that_kyverno_names(image, expected):
    of_element = '{{images.containers."{{element.name}}".%s}}'
    parts = [of_element % part for part in ("registry", "path", "tag")]
    entry = {"name": "{{ element.name }}", "image": "{}/{}:{}".format(*parts)}
    each = {
        "list": "request.object.spec.containers",
        "patchStrategicMerge": {"spec": {"containers": [entry]}},
    }
    policy = legacy(rule(mutate={"foreach": [each]}))

    _, found = decide(policy, pod({"name": "c", "image": image}), kyverno=True)

    assert found["spec"]["containers"][0]["image"] == expected


def test_keys_can_be_made_of_elements():
    merge = {"metadata": {"annotations": {"a.example/{{element.name}}": "yes"}}}
    entry = {"list": "request.object.spec.containers", "patchStrategicMerge": merge}

    found = mutated(pod(), foreach=[entry])

    assert found["metadata"]["annotations"] == {"a.example/c": "yes"}


def test_elements_are_removed_from_last_to_first():
    remove = '- {op: remove, path: "/spec/containers/0/env/{{elementIndex}}"}'
    listed = "request.object.spec.containers[0].env"
    entry = {"list": listed, "order": "Descending", "patchesJson6902": remove}
    of = pod({"name": "a", "image": "b", "env": [{"name": "A"}, {"name": "B"}]})

    found = mutated(of, foreach=[entry])

    assert "env" not in found["spec"]["containers"][0]


def test_the_last_element_comes_first():
    add = '- {op: add, path: "/metadata/labels/a-{{elementIndex}}", value: "{{element.name}}"}'
    entry = {
        "list": "request.object.spec.containers",
        "order": "Descending",
        "patchesJson6902": add,
    }
    of = pod({"name": "a", "image": "b"}, {"name": "c", "image": "d"})
    of["metadata"]["labels"] = {"l": "m"}

    found = mutated(of, foreach=[entry])

    assert found["metadata"]["labels"] == {"l": "m", "a-0": "a", "a-1": "c"}


TWO = ({"name": "a", "image": "x/y:1"}, {"name": "b", "image": "y:1"})
ANNOTATED = '- {op: add, path: "/metadata/annotations/%s", value: "{{element.image}}"}'
BOTH = """
- {op: add, path: "/metadata/annotations/first-{{elementIndex}}", value: "{{element.name}}"}
- {op: add, path: "/metadata/annotations/{{element.name}}", value: "{{element.image}}"}
"""
CHOSEN = {"all": [{"key": "{{element.name}}", "operator": "AnyIn", "value": ["%s"]}]}


@pytest.mark.parametrize(
    ("patch", "entry", "expected"),
    [
        pytest.param(
            ANNOTATED % "{{element.name}}", {}, {"a": "x/y:1", "b": "y:1"}, id="by-its-name"
        ),
        pytest.param(
            ANNOTATED % "{{elementIndex}}", {}, {"0": "x/y:1", "1": "y:1"}, id="by-its-index"
        ),
        pytest.param(
            ANNOTATED % "i-{{ elementIndex }}",
            {"order": "Descending"},
            {"i-0": "x/y:1", "i-1": "y:1"},
            id="from-last-to-first",
        ),
        pytest.param(
            ANNOTATED % "{{element.image | split(@, '/')[0]}}",
            {},
            {"x": "x/y:1", "y:1": "y:1"},
            id="by-an-expression-with-a-slash",
        ),
        pytest.param(
            BOTH,
            {},
            {"first-0": "a", "first-1": "b", "a": "x/y:1", "b": "y:1"},
            id="two-operations",
        ),
        pytest.param(
            ANNOTATED % "{{element.name}}",
            {"preconditions": {"all": [{**CHOSEN["all"][0], "value": ["b"]}]}},
            {"b": "y:1"},
            id="of-one-element",
        ),
        pytest.param(
            ANNOTATED % "i-{{elementIndex}}",
            {"preconditions": {"all": [{**CHOSEN["all"][0], "value": ["b"]}]}},
            {"i-1": "y:1"},
            id="of-one-element-by-its-index",
        ),
    ],
)
@pytest.mark.parametrize("annotations", [None, {"kept": "yes"}], ids=["absent", "there"])
@pytest.mark.parametrize("kyverno", [False, True], ids=["map", "mpol"])
def test_elements_add_to_one_object_that_is_missing(patch, entry, expected, annotations, kyverno):
    each = {"list": "request.object.spec.containers", "patchesJson6902": patch, **entry}
    of = pod(*TWO)
    if annotations:
        of["metadata"]["annotations"] = annotations

    _, found = decide(legacy(rule(mutate={"foreach": [each]})), of, kyverno=kyverno)

    assert found["metadata"]["annotations"] == {**(annotations or {}), **expected}


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({"list": "request.object.spec.initContainers || `[]`"}, id="no-elements"),
        pytest.param(
            {
                "list": "request.object.spec.containers",
                "preconditions": {"all": [{**CHOSEN["all"][0], "value": ["z"]}]},
            },
            id="no-chosen-element",
        ),
    ],
)
def test_nothing_is_added_for_no_element(entry):
    each = {**entry, "patchesJson6902": ANNOTATED % "{{element.name}}"}

    found = mutated(pod(*TWO), foreach=[each])

    assert "annotations" not in found["metadata"]


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param(
            """
            - {op: add, path: /metadata/annotations/a, value: x}
            - {op: add, path: /metadata/annotations/b, value: y}
            """,
            {"a": "x", "b": "y"},
            id="two-in-one",
        ),
        pytest.param(
            """
            - {op: add, path: /metadata/annotations, value: {a: x}}
            - {op: add, path: /metadata/annotations/b, value: y}
            """,
            {"a": "x", "b": "y"},
            id="the-object-itself-first",
        ),
        pytest.param(
            """
            - {op: add, path: "/metadata/annotations/{{request.object.metadata.name}}", value: x}
            - {op: add, path: /metadata/annotations/b, value: y}
            """,
            {"a": "x", "b": "y"},
            id="one-that-is-computed",
        ),
    ],
)
def test_operations_add_to_one_object_that_is_missing(patch, expected):
    assert mutated(pod(), patchesJson6902=patch)["metadata"]["annotations"] == expected


def test_elements_add_to_lists_of_their_own():
    patch = """
    - {op: add, path: "/spec/containers/{{elementIndex}}/env/-", value: {name: A, value: x}}
    - {op: add, path: "/spec/containers/{{elementIndex}}/env/-", value: {name: B, value: y}}
    - {op: add, path: "/metadata/labels/of-{{element.name}}", value: z}
    """
    each = {"list": "request.object.spec.containers", "patchesJson6902": patch}

    found = mutated(pod(*TWO), foreach=[each])

    names = [[e["name"] for e in each["env"]] for each in found["spec"]["containers"]]
    assert names == [["A", "B"], ["A", "B"]]
    assert found["metadata"]["labels"] == {"of-a": "z", "of-b": "z"}


DROPPED = {"capabilities": {"drop": ["ALL"]}}
HARDENED = {"name": "b", "image": "y:1", "securityContext": DROPPED}
OWN = {"name": "{{element.name}}", "securityContext": DROPPED}


@pytest.mark.parametrize(
    ("element", "of", "expected"),
    [
        pytest.param(
            {"(name)": "*", "command": ["x", "{{request.operation}}"]},
            TWO,
            [{**each, "command": ["x", "CREATE"]} for each in TWO],
            id="list",
        ),
        pytest.param(
            {"(name)": "b", "securityContext": {"runAsNonRoot": True, **DROPPED}},
            TWO,
            [TWO[0], {**TWO[1], "securityContext": {"runAsNonRoot": True, **DROPPED}}],
            id="beside-other-fields-of-a-chosen-element",
        ),
        pytest.param(
            {"(image)": "y:*", "image": "z:1", "args": ["x"]},
            TWO,
            [TWO[0], {**TWO[1], "image": "z:1", "args": ["x"]}],
            id="chosen-by-what-is-set",
        ),
        pytest.param(
            {"(name)": "*", "+(args)": ["x"]},
            ({**TWO[0], "args": ["own"]}, TWO[1]),
            [{**TWO[0], "args": ["own"]}, {**TWO[1], "args": ["x"]}],
            id="absent-only",
        ),
        pytest.param(
            {"(name)": "*", "securityContext": DROPPED},
            ({**TWO[0], "securityContext": {"capabilities": {"add": ["X"]}}},),
            [{**TWO[0], "securityContext": {"capabilities": {"add": ["X"], "drop": ["ALL"]}}}],
            id="in-an-object-that-is-there",
        ),
        pytest.param(
            {"(name)": "*", "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
            ({**TWO[0], "env": [{"name": "E"}]},),
            [
                {
                    **TWO[0],
                    "env": [
                        {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
                        {"name": "E"},
                    ],
                }
            ],
            id="elements-in-elements",
        ),
    ],
)
@pytest.mark.parametrize("kyverno", [False, True], ids=["map", "mpol"])
def test_elements_get_what_is_replaced_as_a_whole(element, of, expected, kyverno):
    mutate = {"patchStrategicMerge": {"spec": {"containers": [element]}}}

    for given in (pod(*of), in_template(pod(*of))):
        _, found = decide(legacy(rule(mutate=mutate)), given, kyverno=kyverno)
        spec = found["spec"].get("template", found)["spec"]
        assert bare(spec["containers"]) == bare(expected)


def test_elements_of_a_foreach_get_what_is_replaced_as_a_whole():
    merge = {"spec": {"containers": [OWN]}}
    chosen = {"all": [{**CHOSEN["all"][0], "value": ["b"]}]}
    listed = {"list": "request.object.spec.containers", "preconditions": chosen}

    found = mutated(pod(*TWO), foreach=[{**listed, "patchStrategicMerge": merge}])

    assert bare(found["spec"]["containers"]) == [TWO[0], HARDENED]


@pytest.mark.parametrize(
    ("listed", "spec", "reason"),
    [
        pytest.param(
            "request.object.spec.containers",
            {"containers": [OWN], "tolerations": [{"key": "a"}]},
            "replaces `spec.tolerations` for each element",
            id="of-the-object",
        ),
        pytest.param(
            "request.object.spec.initContainers",
            {"containers": [OWN]},
            "parts of elements of another list",
            id="of-another-list",
        ),
    ],
)
def test_what_a_foreach_would_replace_elsewhere_is_refused(listed, spec, reason):
    each = {"list": listed, "patchStrategicMerge": {"spec": spec}}

    conversion = convert(legacy(rule(mutate={"foreach": [each]})))

    assert not conversion.policies
    assert reason in conversion.refusals[0].reason


def test_what_an_operation_adds_is_there_for_the_next():
    patch = """\
- {op: add, path: /spec/containers/1, value: {name: d, image: e}}
- {op: add, path: /spec/containers/1/command, value: [ls]}
- {op: add, path: /spec/containers/1/securityContext/runAsUser, value: 1}
- {op: add, path: /spec/containers/1/securityContext/runAsGroup, value: 2}
"""
    _, changed = decide(legacy(rule(mutate={"patchesJson6902": patch})), pod())

    (added,) = changed["spec"]["containers"][1:]
    assert added["name"] == "d"
    assert added["command"] == ["ls"]
    assert added["securityContext"] == {"runAsUser": 1, "runAsGroup": 2}


def test_a_variable_of_a_patch_needs_no_quotes():
    patch = """\
- op: add
  path: /metadata/labels
  value: {{ request.object.metadata.annotations }}
- op: add
  path: /metadata/labels/b
  value: {{ join('-', ['a', 'b']) }}
"""
    given = pod(annotations={"a": "x"})

    _, changed = decide(legacy(rule(mutate={"patchesJson6902": patch})), given)

    assert changed["metadata"]["labels"] == {"a": "x", "b": "a-b"}


def test_a_text_of_a_patch_keeps_its_lines():
    patch = """\
- op: add
  path: /metadata/annotations/config
  value: |
    name: {{ request.object.metadata.name }}
"""
    _, changed = decide(legacy(rule(mutate={"patchesJson6902": patch})), pod())

    assert changed["metadata"]["annotations"]["config"] == "name: a\n"


def test_a_field_is_added_within_what_an_anchor_asks_for():
    volumes = [{"(emptyDir)": {"+(sizeLimit)": "20Mi"}, "name": "{{ element.name }}"}]
    each = {
        "list": "request.object.spec.volumes",
        "patchStrategicMerge": {"spec": {"volumes": volumes}},
    }
    given = pod(
        volumes=[
            {"name": "a", "emptyDir": {}},
            {"name": "b", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "c", "hostPath": {"path": "/c"}},
        ]
    )

    _, changed = decide(legacy(rule(mutate={"foreach": [each]})), given)

    first, *others = changed["spec"]["volumes"]
    assert first["emptyDir"] == {"sizeLimit": "20Mi"}
    assert others == given["spec"]["volumes"][1:]

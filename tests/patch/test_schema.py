"""Schemas: of built-in kinds, of custom ones, of anything."""

import pytest

from policyd.patch.schema import ATOMIC, DEDUCED, schema_from_openapi, schema_of_type
from policyd.patch.structured import trimmed
from policyd.patch.typed import SchemaError, check, fields_of

POD = schema_of_type("core/v1.Pod")
KEYED = schema_from_openapi(
    {
        "properties": {
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {}, "image": {}}},
            }
        }
    }
)
WIDGET = schema_from_openapi(
    {
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer"},
                    "when": {"type": "string", "format": "date-time"},
                    "either": {"x-kubernetes-int-or-string": True},
                    "tags": {
                        "type": "array",
                        "x-kubernetes-list-type": "set",
                        "items": {"type": "string"},
                    },
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name", "zone"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "name": {"type": "string"},
                                "zone": {"type": "string", "default": "any"},
                            },
                        },
                    },
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "template": {"type": "object", "x-kubernetes-embedded-resource": True},
                },
            }
        },
    }
)


def below(schema, *names):
    for name in names:
        schema = schema.map.field(name)
    return schema


def test_a_list_of_a_built_in_kind_knows_its_keys_and_their_defaults():
    ports = below(POD, "spec", "containers").list.element.map.field("ports").list

    assert (ports.associative, ports.keys) == (True, ("containerPort", "protocol"))
    assert ports.defaults == {"containerPort": 0, "protocol": "TCP"}


def test_fields_that_a_type_always_has_differ_from_pointers_and_options():
    container = below(POD, "spec", "containers").list.element.map

    assert {"spec", "status", "metadata"} <= below(POD).map.present
    assert "containers" in below(POD, "spec").map.present
    assert "resources" in container.present
    assert "securityContext" not in container.present
    assert "env" in container.optional


@pytest.mark.parametrize(
    ("path", "merges"),
    [
        pytest.param(("spec", "tags"), True, id="a-set"),
        pytest.param(("spec", "parts"), True, id="a-map-list"),
        pytest.param(("metadata", "finalizers"), True, id="metadata-as-of-every-object"),
        pytest.param(("spec", "free", "anything"), False, id="a-free-list"),
    ],
)
def test_lists_of_a_custom_kind_merge_as_its_schema_says(path, merges):
    assert below(WIDGET, *path).list.associative is merges


@pytest.mark.parametrize(
    ("path", "scalar"),
    [
        pytest.param(("spec", "size"), "numeric", id="an-integer"),
        pytest.param(("spec", "when"), "untyped", id="a-time"),
        pytest.param(("spec", "either"), "untyped", id="int-or-string"),
        pytest.param(("spec", "labels", "any"), "string", id="a-value-of-a-map"),
        pytest.param(("spec", "template", "kind"), "string", id="an-embedded-resource"),
        pytest.param(("apiVersion",), "string", id="api-version"),
    ],
)
def test_scalars_of_a_custom_kind(path, scalar):
    assert below(WIDGET, *path).scalar == scalar


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param(DEDUCED, {(".a", ".b"), (".a", ".l")}, id="deduced-goes-into-objects"),
        pytest.param(ATOMIC, set(), id="atomic-stays-outside"),
    ],
)
def test_values_without_schema(schema, expected):
    fields = fields_of({"a": {"b": 1, "l": [{"c": 1}]}}, schema)

    leaves = {tuple(element.replace("f:", ".") for element in path) for path in fields}
    assert {path for path in leaves if len(path) == 2} == expected


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        pytest.param(
            POD,
            {"spec": {"replicas": 1}},
            ".spec.replicas: field not declared in schema",
            id="an-unknown-field",
        ),
        pytest.param(
            POD,
            {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}},
            '.spec.containers: duplicate entries for key [name="a"]',
            id="two-items-of-one-key",
        ),
        pytest.param(
            KEYED,
            {"parts": [{"image": "a"}]},
            ".parts: element 0: associative list with keys has an element that omits all "
            'key fields ["name"] (and doesn\'t have default values for any key fields)',
            id="an-item-without-key",
        ),
        pytest.param(
            POD,
            {"spec": {"containers": [None]}},
            ".spec.containers: element 0: associative list with keys may not have a null element",
            id="a-null-item",
        ),
        pytest.param(
            POD,
            {"spec": {"priority": "1", "hostNetwork": "yes"}},
            "errors:\n  .spec.priority: expected numeric (int or float), got string\n"
            "  .spec.hostNetwork: expected boolean, got &{yes}",
            id="all-faults-are-said",
        ),
        pytest.param(POD, {"spec": []}, ".spec: expected map, got &{[]}", id="a-list-for-a-map"),
        pytest.param(
            POD,
            {"spec": {"containers": {}}},
            ".spec.containers: expected list, got &{map[]}",
            id="a-map-for-a-list",
        ),
        pytest.param(
            WIDGET,
            {"spec": {"tags": [["a"]]}},
            ".spec.tags: element 0: not supported: associative list with lists as elements",
            id="a-list-in-a-set",
        ),
        pytest.param(
            WIDGET,
            {"spec": {"when": {"a": True}}},
            ".spec.when: expected any scalar, got &{map[a:true]}",
            id="an-object-for-a-scalar",
        ),
    ],
)
def test_invalid_objects_are_reported_in_the_api_servers_words(schema, value, message):
    with pytest.raises(SchemaError) as raised:
        check(value, schema, what="")

    assert str(raised.value) == message


def test_null_fits_everywhere():
    check({"spec": {"containers": None, "priority": None}, "metadata": None}, POD, what="")


def test_fields_that_the_api_servers_type_omits_are_trimmed():
    pod = {
        "metadata": {"labels": {}, "annotations": {"a": "1"}, "deletionGracePeriodSeconds": None},
        "spec": {"containers": [{"name": "a", "env": [], "resources": {}}], "volumes": []},
    }

    assert trimmed(pod, POD) == {
        "metadata": {"annotations": {"a": "1"}},
        "spec": {"containers": [{"name": "a", "resources": {}}]},
    }
    assert trimmed(pod["spec"]["containers"][0]["resources"], POD) == {}


def test_a_custom_kind_is_stored_as_it_is():
    widget = {"spec": {"tags": [], "free": {"a": None}}}

    assert trimmed(widget, WIDGET) is widget

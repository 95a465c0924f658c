"""The table of built-in kinds, as merges and discovery read it."""

import dataclasses

import msgspec
import pytest

from policyd.api import kinds
from policyd.api.data import tables
from policyd.api.kinds import FieldType, fields, resource, resource_for_kind
from policyd.local.apiserver.wire.discovery import VERSION

NONE = ((), None)


@pytest.mark.parametrize(
    ("struct", "field", "applied", "patched"),
    [
        pytest.param(
            *("core/v1.PodSpec", "containers", ("map", ("name",)), (("merge",), "name")),
            id="containers-by-name",
        ),
        pytest.param(
            *("core/v1.Container", "ports", ("map", ("containerPort", "protocol"))),
            (("merge",), "containerPort"),
            id="ports-by-one-field-more-when-applied",
        ),
        pytest.param(
            *("core/v1.PodSpec", "tolerations", ("atomic", ()), NONE),
            id="tolerations-as-a-whole",
        ),
        pytest.param(
            *("core/v1.PodSpec", "volumes", ("map", ("name",)), (("merge", "retainKeys"), "name")),
            id="volumes-with-one-source-each",
        ),
        pytest.param(
            *("meta/v1.ObjectMeta", "finalizers", ("set", ()), (("merge",), None)),
            id="finalizers-as-a-set",
        ),
        pytest.param(
            *("meta/v1.ObjectMeta", "ownerReferences", ("map", ("uid",)), (("merge",), "uid")),
            id="owners-by-uid",
        ),
    ],
)
def test_lists_merge(struct, field, applied, patched):
    found = fields(struct)[field]

    assert (found.list_type, found.list_keys) == applied
    assert (found.patch_strategies, found.patch_merge_key) == patched


@pytest.mark.parametrize(
    ("struct", "field", "atomic"),
    [
        pytest.param("core/v1.PodSpec", "nodeSelector", True, id="a-map-by-its-field"),
        pytest.param("batch/v1.JobSpec", "selector", True, id="a-struct-by-its-type"),
        pytest.param("core/v1.PodSpec", "tolerations", True, id="a-list-that-says-nothing"),
        pytest.param("core/v1.Toleration", "operator", False, id="not-a-scalar"),
        pytest.param("core/v1.PodSpec", "containers", False, id="not-a-map-list"),
        pytest.param("meta/v1.ObjectMeta", "labels", False, id="not-labels"),
        pytest.param(
            "core/v1.PersistentVolumeSpec", "claimRef", False, id="a-field-may-overrule-its-type"
        ),
    ],
)
def test_values_that_are_applied_as_a_whole(struct, field, atomic):
    assert fields(struct)[field].atomic is atomic


def test_an_element_of_a_merged_list_may_be_applied_as_a_whole():
    element = fields("meta/v1.ObjectMeta")["ownerReferences"].element

    assert element == FieldType(shape="struct", struct="meta/v1.OwnerReference", atomic=True)


@pytest.mark.parametrize(
    ("struct", "field", "expected"),
    [
        pytest.param(
            *("core/v1.ContainerPort", "protocol"),
            FieldType(
                shape="scalar",
                scalar="string",
                enum=("SCTP", "TCP", "UDP"),
                go_type="v1.Protocol",
                default="TCP",
            ),
            id="enum-and-default",
        ),
        pytest.param(
            *("core/v1.ContainerPort", "containerPort"),
            FieldType(shape="scalar", scalar="int32", required=True),
            id="required",
        ),
        pytest.param(
            *("core/v1.ResourceRequirements", "limits"),
            FieldType(
                shape="map",
                element=FieldType(shape="scalar", scalar="quantity"),
                go_type="v1.ResourceList",
            ),
            id="map-of-quantities",
        ),
        pytest.param(
            *("apps/v1.DeploymentSpec", "strategy"),
            FieldType(
                shape="struct",
                struct="apps/v1.DeploymentStrategy",
                patch_strategies=("retainKeys",),
                default={},
            ),
            id="strategy-without-key",
        ),
        pytest.param(
            *("resource/v1.OpaqueDeviceConfiguration", "parameters"),
            FieldType(shape="scalar", scalar="any", atomic=True, required=True),
            id="foreign-object",
        ),
        pytest.param(
            *("coordination/v1.LeaseSpec", "renewTime"),
            FieldType(shape="scalar", scalar="microtime"),
            id="time-in-microseconds",
        ),
    ],
)
def test_a_field(struct, field, expected):
    assert fields(struct)[field] == expected


def test_a_type_may_contain_itself():
    properties = fields("apiextensions/v1.JSONSchemaProps")["properties"]

    assert properties.element is not None
    assert properties.element.struct == "apiextensions/v1.JSONSchemaProps"


def test_every_word_of_the_table_is_read():
    of_a_type = {field.name for field in dataclasses.fields(FieldType)}
    elsewhere = {"number", "pointer", "unset", "written"}

    for struct, record in tables().types.items():
        for name, field in msgspec.json.decode(record).items():
            assert field.keys() <= of_a_type | elsewhere, (struct, name)


def test_a_field_has_what_its_shape_says():
    for struct in tables().types:
        for name, field in fields(struct).items():
            given = {"scalar": field.scalar, "struct": field.struct, "element": field.element}
            expected = "element" if field.shape in {"map", "list"} else field.shape
            assert [key for key, value in given.items() if value] == [expected], (struct, name)


def test_the_file_says_where_it_is_from():
    sources = tables().sources

    assert sources.keys() >= {"resources", "columns", "types"}
    assert all(tables().version in sources[part] for part in ("resources", "columns", "types"))
    assert VERSION["gitVersion"].startswith(tables().version)


def test_every_struct_that_a_field_refers_to_is_in_the_table():
    referred = {
        struct
        for name in tables().types
        for field in fields(name).values()
        if (struct := innermost(field).struct) is not None
    }

    assert referred <= tables().types.keys()


def test_a_struct_that_is_not_in_the_table_is_a_key_error():
    with pytest.raises(KeyError, match="Nothing"):
        fields("core/v1.Nothing")


def test_a_resource_is_found_by_path_and_by_kind():
    pods = resource("", "v1", "pods")

    assert pods is resource_for_kind("", "v1", "Pod")
    assert (pods.api_version, pods.singular, pods.namespaced) == ("v1", "pod", True)
    assert (pods.short_names, pods.categories) == (("po",), ("all",))
    assert pods.type_name == "core/v1.Pod"
    assert "deletecollection" in pods.verbs


@pytest.mark.parametrize(
    ("group", "version", "plural"),
    [
        pytest.param("", "v1", "pod", id="singular"),
        pytest.param("", "v1", "pods/status", id="subresource"),
        pytest.param("apps", "v2", "deployments", id="version"),
        pytest.param("kueue.x-k8s.io", "v1beta2", "workloads", id="not-built-in"),
    ],
)
def test_no_such_resource(group, version, plural):
    assert resource(group, version, plural) is None


def test_a_subresource_may_have_a_kind_of_its_own():
    deployments = resource("apps", "v1", "deployments")
    scale, status = deployments.subresources["scale"], deployments.subresources["status"]

    assert (scale.group, scale.version, scale.kind) == ("autoscaling", "v1", "Scale")
    assert scale.type_name == "autoscaling/v1.Scale"
    assert (status.group, status.kind, status.verbs) == (
        *("apps", "Deployment"),
        ("get", "patch", "update"),
    )


def test_a_connection_has_no_type():
    assert resource("", "v1", "pods").subresources["exec"].type_name is None


def test_resources_come_in_the_servers_order():
    found = list(dict.fromkeys(resource.api_version for resource in kinds.resources()))

    assert found.index("v1") == 0
    assert found.index("autoscaling/v2") < found.index("autoscaling/v1")


def innermost(field):
    while field.element is not None:
        field = field.element
    return field

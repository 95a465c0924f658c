"""Objects of built-in kinds come out as the API server's types write them, changed ones too."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.patch.builtin_types import MistypedError, present, unset
from policyd.patch.builtin_views import changed_view, type_of, typed_view
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import Operation, PatchError

POD = "core/v1.Pod"


def pod(**spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            pod(),
            pod(containers=None) | {"status": {}},
            id="required-lists-are-null-and-structs-are-there",
        ),
        pytest.param(
            pod(containers=[{"name": "a"}], nodeSelector={}, hostname="", priority=None),
            pod(containers=[{"name": "a", "resources": {}}]) | {"status": {}},
            id="what-is-empty-is-gone",
        ),
        pytest.param(
            pod(containers=[{"name": "a", "tty": False, "startupProbe": {"periodSeconds": 0}}])
            | {"metadata": {"name": "a", "namespace": ""}},
            pod(containers=[{"name": "a", "startupProbe": {}, "resources": {}}]) | {"status": {}},
            id="false-and-zero-are-gone",
        ),
        pytest.param(
            pod(containers=[{"name": "a", "resources": {"limits": {"cpu": "1000m"}}}]),
            pod(containers=[{"name": "a", "resources": {"limits": {"cpu": "1"}}}]) | {"status": {}},
            id="quantities-are-canonical",
        ),
        pytest.param(
            pod(containers=[], tolerations=[]),
            pod(containers=[]) | {"status": {}},
            id="empty-lists-stay-where-they-are-never-left-out",
        ),
        pytest.param(
            pod(containers=[None], tolerations=[None], imagePullSecrets=[{"name": ""}])
            | {"metadata": {"name": "a", "finalizers": [None]}},
            pod(containers=[{"name": "", "resources": {}}], tolerations=[{}], imagePullSecrets=[{}])
            | {"metadata": {"name": "a", "finalizers": [""]}, "status": {}},
            id="null-in-a-list-is-what-nobody-set",
        ),
    ],
)
def test_a_type_writes_what_it_has(given, expected):
    assert typed_view(given, POD) == (expected, [])


@pytest.mark.parametrize(
    ("kind", "type_name", "spec", "expected"),
    [
        pytest.param(
            "PersistentVolumeClaim",
            "core/v1.PersistentVolumeClaim",
            {"dataSource": {"kind": "VolumeSnapshot", "name": "a"}},
            {
                "resources": {},
                "dataSource": {"apiGroup": None, "kind": "VolumeSnapshot", "name": "a"},
            },
            id="null-pointers-that-are-not-left-out",
        ),
        pytest.param(
            "Service",
            "core/v1.Service",
            {"ports": [{"port": 80}]},
            {"ports": [{"port": 80, "targetPort": 0}]},
            id="zeros-that-are-not-left-out",
        ),
    ],
)
def test_required_parts_are_present(kind, type_name, spec, expected):
    given = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec}

    assert typed_view(given, type_name)[0]["spec"] == expected


@pytest.mark.parametrize(
    ("value", "shown"), [(1.5, "number 1.5"), (2**31, "number 2147483648"), (True, "bool")]
)
def test_a_number_that_does_not_fit_is_quoted(value, shown):
    wrong = f"cannot unmarshal {shown} into Go struct field PodSpec.spec.priority of type int32"
    with pytest.raises(MistypedError, match=wrong):
        typed_view(pod(priority=value), POD)


def test_an_unknown_field_is_named():
    read, unknown = typed_view(pod(containers=[{"name": "a", "nme": "b"}]), POD)

    assert unknown == ["spec.containers[0].nme"]
    assert read["spec"]["containers"] == [{"name": "a", "resources": {}}]


@pytest.mark.parametrize(
    ("struct", "what", "expected"),
    [
        pytest.param("core/v1.EnvVar", "omitted", {"value"}, id="an-empty-value-is-none"),
        pytest.param("core/v1.TypedLocalObjectReference", "null", {"apiGroup"}, id="null"),
        pytest.param("core/v1.ServicePort", "zero", {"targetPort"}, id="zero"),
    ],
)
def test_the_tags_of_a_type(struct, what, expected):
    assert unset(struct, what) == expected


def test_zeros_are_written_however_deep():
    port = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}}

    assert present("core/v1.NodeStatus").items() >= port.items()
    assert present("core/v1.NodeStatus")["nodeInfo"] == present("core/v1.NodeSystemInfo")
    assert present("rbac/v1.Role") == {"rules": None}


def test_a_custom_kind_has_no_type_here():
    assert type_of({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}) is None
    assert type_of(pod()) == POD


BEFORE = typed_view(
    pod(
        containers=[{"name": "a", "env": [{"name": "x", "value": "1"}]}, {"name": "b"}],
        nodeSelector={"pool": "gpu"},
        securityContext={"runAsUser": 1},
    ),
    POD,
)[0]

VALUES = st.sampled_from([None, {}, [], "", "x", {"name": "c"}, {"a": ""}, [{"name": "d"}]])
PATHS = st.sampled_from(
    [
        "/metadata/labels",
        "/metadata/name",
        "/spec/containers",
        "/spec/containers/0",
        "/spec/containers/0/env",
        "/spec/containers/0/env/-",
        "/spec/containers/1/resources",
        "/spec/containers/1/image",
        "/spec/nodeSelector",
        "/spec/securityContext",
        "/spec/hostname",
        "/status",
        "/spec/nothing",
    ]
)


@given(st.lists(st.tuples(PATHS, VALUES), max_size=3))
def test_a_changed_object_equals_the_object_read_again(changes):
    changed = BEFORE
    for path, value in changes:
        with suppress(PatchError):
            changed = apply_json_patch(changed, [Operation("add", path, value=value)])

    def read(view, *arguments):
        try:
            return view(changed, *arguments, POD)
        except MistypedError as error:
            return str(error)

    assert read(changed_view, BEFORE) == read(typed_view)

"""Objects of built-in kinds come out as the API server's types write them, changed ones too."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.api import kinds
from policyd.patch.builtin_types import MistypedError
from policyd.patch.builtin_views import changed_view, type_of, typed_view
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.omitted import OMITTED
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
    ],
)
def test_a_type_writes_what_it_has(given, expected):
    assert typed_view(given, POD) == (expected, [])


def test_a_field_that_nobody_knows_is_named():
    read, unknown = typed_view(pod(containers=[{"name": "a", "nme": "b"}]), POD)

    assert unknown == ["spec.containers[0].nme"]
    assert read["spec"]["containers"] == [{"name": "a", "resources": {}}]


@pytest.mark.parametrize(("struct", "names"), OMITTED.items())
def test_what_is_left_out_is_an_optional_scalar_of_the_table(struct, names):
    known = kinds.fields(struct)

    assert [n for n in names if known[n].shape != "scalar" or known[n].required] == []


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
def test_what_became_of_an_object_is_read_as_if_it_were_read_anew(changes):
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

"""Server-side apply: merging, owners, conflicts."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.patch.conflicts import ApplyConflictError
from policyd.patch.fields_v1 import FieldsError, field_set
from policyd.patch.managed_fields import managed_fields
from policyd.patch.operations import PatchError
from policyd.patch.schema import DEDUCED, schema_of_type
from policyd.patch.structured import FieldWriter, apply, merge_applied, track_update

DEPLOYMENT = schema_of_type("apps/v1.Deployment")
CONFIG_MAP = schema_of_type("core/v1.ConfigMap")


def writer(manager, *, now=0.0, api_version="v1", **more):
    return FieldWriter(manager=manager, api_version=api_version, now=now, **more)


def config_map(data, **metadata):
    metadata = {"name": "cm", "namespace": "default", **metadata}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return {**obj, "data": data} if data else obj


def applied(live, data, manager, *, force=False, now=0.0):
    return apply(
        live, config_map(data), schema=CONFIG_MAP, writer=writer(manager, now=now), force=force
    )


def updated(live, data, manager, *, now=0.0):
    new = {**live, "data": data}
    entries = track_update(live, new, schema=CONFIG_MAP, writer=writer(manager, now=now))
    return {**new, "metadata": {**new["metadata"], "managedFields": entries}}


def owners(obj):
    return {
        (entry["manager"], entry["operation"]): sorted(
            key[2:] for key in entry["fieldsV1"].get("f:data", {}) if key != "."
        )
        for entry in managed_fields(obj) or ()
    }


def test_an_applier_owns_the_fields_that_it_applied():
    live = applied(None, {"a": "1"}, "ann", now=1.0)

    assert managed_fields(live) == [
        {
            "manager": "ann",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "1970-01-01T00:00:01Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}}},
        }
    ]


def test_fields_that_an_applier_omits_are_removed():
    live = applied(None, {"a": "1", "b": "2"}, "ann")

    live = applied(live, {"a": "1"}, "ann")

    assert live["data"] == {"a": "1"}


def test_fields_that_another_manager_owns_are_kept():
    live = applied(None, {"a": "1", "b": "2"}, "ann")
    live = applied(live, {"a": "1"}, "bob")

    live = applied(live, {"b": "2"}, "ann")

    assert live["data"] == {"a": "1", "b": "2"}
    assert owners(live) == {("ann", "Apply"): ["b"], ("bob", "Apply"): ["a"]}


def test_one_conflict_names_the_manager_and_the_field():
    created = config_map({"a": "1"})
    entries = track_update(None, created, schema=CONFIG_MAP, writer=writer("kubectl-edit"))
    live = config_map({"a": "1"}, managedFields=entries)

    with pytest.raises(ApplyConflictError) as raised:
        applied(live, {"a": "2"}, "ann")

    assert str(raised.value) == (
        'Apply failed with 1 conflict: conflict with "kubectl-edit" using v1: .data.a'
    )
    assert raised.value.causes == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "kubectl-edit" using v1',
            "field": ".data.a",
        }
    ]


def test_many_conflicts_are_listed_by_manager():
    live = applied(None, {"a": "1", "b": "1"}, "bob")
    live = applied(live, {"c": "1"}, "cyd")

    with pytest.raises(ApplyConflictError) as raised:
        applied(live, {"a": "2", "b": "2", "c": "2"}, "ann")

    assert str(raised.value) == (
        'Apply failed with 3 conflicts: conflicts with "bob":\n- .data.a\n- .data.b\n'
        'conflicts with "cyd":\n- .data.c'
    )


def test_force_takes_over():
    live = applied(None, {"a": "1", "b": "1"}, "bob")

    live = applied(live, {"a": "2"}, "ann", force=True)

    assert live["data"] == {"a": "2", "b": "1"}
    assert owners(live) == {("ann", "Apply"): ["a"], ("bob", "Apply"): ["b"]}


def test_an_update_takes_what_it_changes_from_the_applier():
    live = applied(None, {"a": "1", "b": "1"}, "ann")

    live = updated(live, {"a": "1", "b": "2"}, "bob")

    assert owners(live) == {("ann", "Apply"): ["a"], ("bob", "Update"): ["b"]}


def test_owners_of_nothing_are_removed():
    live = applied(None, {"a": "1"}, "ann")

    live = applied(live, {"a": "2"}, "bob", force=True)

    assert owners(live) == {("bob", "Apply"): ["a"]}


def test_an_apply_that_changes_nothing_keeps_its_time():
    live = applied(None, {"a": "1"}, "ann", now=1.0)

    assert applied(live, {"a": "1"}, "ann", now=9.0) == live


def test_the_same_name_applies_and_updates_apart():
    live = applied(None, {"a": "1"}, "ann")

    live = updated(live, {"a": "1", "b": "1"}, "ann")

    assert owners(live) == {("ann", "Apply"): ["a"], ("ann", "Update"): ["b"]}


def test_a_subresource_is_another_manager():
    live = applied(None, {"a": "1"}, "ann")
    status = FieldWriter(manager="ann", api_version="v1", now=0.0, subresource="status")

    with pytest.raises(ApplyConflictError) as raised:
        apply(live, config_map({"a": "2"}), schema=CONFIG_MAP, writer=status)

    assert raised.value.conflicts[0].manager.subresource == ""


def test_fields_that_a_path_does_not_write_are_not_owned():
    pod = {"metadata": {"name": "p", "labels": {"a": "1"}}, "status": {"phase": "Running"}}
    ignoring = writer("ann", ignored=field_set([("f:status",)]))

    entries = track_update(None, pod, schema=schema_of_type("core/v1.Pod"), writer=ignoring)

    assert list(entries[0]["fieldsV1"]) == ["f:metadata"]


def test_an_update_of_what_nobody_owns_records_nothing():
    assert (
        track_update(
            config_map({"a": "1"}), config_map({"a": "2"}), schema=CONFIG_MAP, writer=writer("ann")
        )
        == []
    )


def test_an_update_may_reset_the_owners():
    live = applied(None, {"a": "1"}, "ann")
    reset = {**live, "metadata": {**live["metadata"], "managedFields": [{}]}}

    assert track_update(live, reset, schema=CONFIG_MAP, writer=writer("bob")) == []


def test_managed_fields_are_not_applied():
    with pytest.raises(PatchError, match=r"metadata\.managedFields must be nil"):
        apply(
            None,
            config_map({}, managedFields=[]),
            schema=CONFIG_MAP,
            writer=writer("ann"),
        )


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({"operation": "Take"}, id="unknown-operation"),
        pytest.param({"operation": "Apply"}, id="no-version"),
        pytest.param({"operation": "Apply", "apiVersion": "v1"}, id="no-type-of-fields"),
        pytest.param(
            {
                "operation": "Apply",
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"x": {}},
            },
            id="no-fields",
        ),
    ],
)
def test_unreadable_owners_stop_an_apply_and_are_replaced_by_an_update(entry):
    live = config_map({"a": "1"}, managedFields=[entry])

    with pytest.raises(FieldsError):
        applied(live, {"a": "1"}, "ann")

    assert track_update(None, live, schema=CONFIG_MAP, writer=writer("ann"))[0]["manager"] == "ann"


def template(*containers, **spec):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": {"spec": {"containers": list(containers), **spec}}},
    }


@pytest.mark.parametrize(
    ("live", "wanted", "expected"),
    [
        pytest.param(["a", "b"], ["b"], ["a", "b"], id="order-of-the-live-list"),
        pytest.param(["a", "b"], ["b", "a"], ["b", "a"], id="order-of-the-applied-list"),
        pytest.param(["a", "b"], ["c", "a"], ["c", "a", "b"], id="a-new-one-before"),
        pytest.param(["a", "b", "c"], ["c", "x", "a"], ["b", "c", "x", "a"], id="around"),
        pytest.param([], ["x"], ["x"], id="nothing-before"),
    ],
)
def test_items_merge_in_order(live, wanted, expected):
    obj = template(*({"name": name, "image": "old"} for name in live))

    merged = merge_applied(obj, template(*({"name": name} for name in wanted)), DEPLOYMENT)

    containers = merged["spec"]["template"]["spec"]["containers"]
    assert [container["name"] for container in containers] == expected


def test_ports_merge_by_their_default_protocol():
    live = template({"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]})
    wanted = template({"name": "a", "ports": [{"containerPort": 80, "name": "web"}]})

    merged = merge_applied(live, wanted, DEPLOYMENT)

    container = merged["spec"]["template"]["spec"]["containers"][0]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP", "name": "web"}]


def test_items_with_one_key_are_replaced_together():
    live = template(
        {"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "X", "value": "2"}]}
    )
    wanted = template({"name": "a", "env": [{"name": "X", "value": "3"}]})

    merged = merge_applied(live, wanted, DEPLOYMENT)

    container = merged["spec"]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "X", "value": "3"}]


@pytest.mark.parametrize(
    ("wanted", "path"),
    [
        pytest.param(template({"name": "a", "args": ["x"]}), "containers[0].args", id="args"),
        pytest.param(template(tolerations=[{"key": "gpu"}]), "tolerations", id="tolerations"),
        pytest.param(template(nodeSelector={"a": "b"}), "nodeSelector", id="an-atomic-map"),
    ],
)
def test_a_policy_may_not_apply_what_is_atomic(wanted, path):
    with pytest.raises(PatchError) as raised:
        merge_applied(template(), wanted, DEPLOYMENT, forbid_atomic=True)

    place = f".spec.template.spec.{path}"
    assert str(raised.value) == f"may not mutate atomic arrays, maps or structs: {place}"
    assert merge_applied(template(), wanted, DEPLOYMENT)


def test_applying_equal_values_returns_the_object_itself():
    obj = template({"name": "a", "image": "i"})

    assert merge_applied(obj, copy.deepcopy(template({"name": "a"})), DEPLOYMENT) is obj


DATA = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)
MANAGERS = st.sampled_from(["ann", "bob"])
WRITES = st.lists(st.tuples(MANAGERS, st.booleans(), DATA), min_size=1, max_size=5)


def written(writes):
    live = None
    for manager, applies, data in writes:
        if applies or live is None:
            live = applied(live, data, manager, force=True)
        else:
            live = updated(live, data, manager)
    return live


@given(WRITES, DATA)
def test_applying_again_changes_nothing(writes, data):
    once = applied(written(writes), data, "ann", force=True, now=1.0)

    assert applied(once, data, "ann", now=2.0) == once


@given(WRITES, DATA)
def test_applying_nothing_removes_what_one_owned_alone(writes, data):
    live = applied(written(writes), data, "cyd", force=True)
    others = {
        name for (manager, _), names in owners(live).items() if manager != "cyd" for name in names
    }

    left = applied(live, {}, "cyd")

    assert left.get("data", {}) == {
        name: value
        for name, value in live.get("data", {}).items()
        if name in others or name not in data
    }


@given(WRITES, DATA)
def test_nothing_that_was_given_is_touched(writes, data):
    live, wanted = written(writes), config_map(data)
    given = copy.deepcopy((live, wanted))

    apply(live, wanted, schema=CONFIG_MAP, writer=writer("cyd"), force=True)
    track_update(live, wanted, schema=CONFIG_MAP, writer=writer("cyd"))
    merge_applied(live, wanted, DEDUCED)

    assert (live, wanted) == given

"""Which part of an object its writers sent, and what was set on the way in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.patch.json_patch import apply_json_patch
from policyd.patch.managed_fields import with_managed_fields
from policyd.patch.recorded import set_on_the_way, submitted
from policyd.patch.schema import schema_of_type
from policyd.patch.structured import FieldWriter, track_update

POD = schema_of_type("core/v1.Pod")


def stored(sent, after, *, manager="kubectl-create"):
    """Return an object as the API server stores it that a webhook changed on the way in."""
    writer = FieldWriter(manager=manager, api_version="v1", now=0.0)
    return with_managed_fields(after, track_update(None, sent, schema=POD, writer=writer))


def pod(containers, **metadata):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", **metadata},
        "spec": {"containers": containers},
    }


MAIN = {"name": "main", "image": "train:1", "args": ["a", "b"]}
SIDECAR = {"name": "proxy", "image": "proxy:1"}


def test_what_a_webhook_added_is_not_what_was_sent():
    sent = pod([MAIN], labels={"team": "a"})
    after = pod([MAIN, SIDECAR], labels={"team": "a", "queue": "q"})
    after["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]

    obj = stored(sent, after)

    assert submitted(obj) == sent
    assert {each.path for each in set_on_the_way(obj, sent)} == {
        "/metadata/labels/queue", "/spec/containers/1", "/spec/tolerations",
    }  # fmt: skip


def test_fields_of_managers_that_are_left_out_are_not_what_was_sent():
    sent = pod([MAIN])
    obj = stored(sent, sent)
    started = {**obj, "spec": {**obj["spec"], "nodeSelector": {"gpu": "h100"}}}
    writer = FieldWriter(manager="policyd", api_version="v1", now=9.0)
    started = with_managed_fields(started, track_update(obj, started, schema=POD, writer=writer))

    assert submitted(started, without=["policyd"]) == sent
    assert submitted(started)["spec"]["nodeSelector"] == {"gpu": "h100"}


@pytest.mark.parametrize(
    "managed",
    [
        pytest.param(None, id="none"),
        pytest.param([], id="no-entries"),
        pytest.param(["x"], id="no-objects"),
        pytest.param(
            [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
              "fieldsV1": {"x": {}}}],
            id="no-fields",
        ),
    ],
)  # fmt: skip
def test_an_object_that_does_not_say_who_wrote_it_has_no_part_that_was_sent(managed):
    assert submitted(pod([MAIN], managedFields=managed)) is None


def test_many_combinations_of_key_fields_are_not_all_tried():
    keys = {f'k:{{"{name}":"x"}}': {} for name in "abcdefghijklmnop"}
    item = dict.fromkeys("abcdefghijklmnop", "x")
    entry = {
        "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:list": keys}},
    }  # fmt: skip
    obj = {"kind": "K", "metadata": {"name": "n", "managedFields": [entry]}}

    assert submitted({**obj, "spec": {"list": [item]}})["spec"] == {"list": [item]}


NAMES = st.sampled_from(["a", "b", "c", "main"])
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": NAMES, "image": NAMES}),
    min_size=1,  # of a list that is sent empty, all items count as sent
    unique_by=lambda each: each["name"],
)
LABELS = st.dictionaries(NAMES, NAMES, min_size=1)


@given(st.tuples(CONTAINERS, LABELS), st.tuples(CONTAINERS, LABELS))
def test_the_part_and_the_changes_are_the_object(sent, added):
    of_sent = pod(sent[0], labels=sent[1])
    names = {each["name"] for each in sent[0]}
    more = [each for each in added[0] if each["name"] not in names]
    after = pod([*sent[0], *more], labels={**added[1], **sent[1]})
    obj = stored(of_sent, after)

    part = submitted(obj)

    assert part["metadata"] == of_sent["metadata"]
    assert part["spec"]["containers"] == sent[0]
    assert apply_json_patch(part, set_on_the_way(obj, part)) == after

"""Generated objects are brought to their state; nothing else is ever changed or deleted."""

import pytest

from policyd.engine.background.plan import (
    KnownPolicies,
    labelled,
    plan,
    replacement,
    state_of,
)
from policyd.engine.background.record import (
    MOST_RECORDED,
    ObjectName,
    RecordDamagedError,
    RecordedObject,
    RecordFullError,
    name_of,
    packed,
    unpacked,
)

TRIGGER = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "team-a", "uid": "u-1"},
}
AGAIN = {**TRIGGER, "metadata": {"name": "team-a", "uid": "u-2"}}
POLICY = "GeneratingPolicy/p"
KNOWN = KnownPolicies(ids=(POLICY,), kinds=("GeneratingPolicy",))
GONE = KnownPolicies(kinds=("GeneratingPolicy",))


def config_map(name="a", **more):
    metadata = {"name": name, "namespace": "team-a"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **more}


def wanted(obj=None, policy=POLICY, trigger=TRIGGER, **flags):
    return labelled(obj or config_map(data={"a": "b"}), policy, trigger, **flags)


def stored(wanted, uid="o-1", **more):
    """An object as it exists."""
    return {
        **wanted.object,
        **more,
        "metadata": {**wanted.object["metadata"], "uid": uid, **more.get("metadata", {})},
    }


def entry(wanted, uid="o-1"):
    """What is recorded after the object of `stored` was written."""
    return wanted.recorded(uid, state_of(stored(wanted), wanted.object))


def steps(*wanted, existing=(), record=None, known=KNOWN):
    by_name = {name_of(obj): obj for obj in existing}
    found = plan(wanted, by_name, record or {}, known)
    return [(step.kind, step.name.name) for step in found]


def of(wanted, **more):
    return {wanted.name: entry(wanted, **more)}


def test_a_missing_object_is_created_with_labels_for_people():
    (step,) = plan([wanted()], {}, {}, KNOWN)

    assert step.kind == "create"
    assert step.object["metadata"]["labels"]["policyd.io/generating-trigger"] == "u-1"
    assert step.object["metadata"]["annotations"]["policyd.io/generated-by"] == POLICY
    assert str(step.name) == "ConfigMap team-a/a"
    assert len(step.object["metadata"]["labels"]["policyd.io/generating-policy"]) <= 63


def test_an_object_as_it_was_written_stays_whatever_metadata_others_add():
    one = wanted()
    labels = {**one.object["metadata"]["labels"], "other": "label"}
    found = stored(one, metadata={"labels": labels}, status={"more": 1})

    assert steps(one, existing=[found], record=of(one)) == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"data": {"a": "other"}}, id="changed"),
        pytest.param({"data": {"a": "b", "c": "d"}}, id="added"),
        pytest.param({"immutable": True}, id="added-beside"),
        pytest.param({"metadata": {"labels": {}}}, id="labels-removed"),
        pytest.param({"metadata": {"uid": "o-2"}}, id="made-anew-by-others"),
    ],
)
def test_an_object_that_others_changed_is_restored(change):
    one = wanted()

    assert steps(one, existing=[stored(one, **change)], record=of(one)) == [("update", "a")]


def test_an_object_that_is_being_deleted_is_left_alone():
    one = wanted()
    leaving = stored(one, data={}, metadata={"deletionTimestamp": "t"})

    assert steps(one, existing=[leaving], record=of(one)) == []


def test_a_policy_that_generates_less_is_noticed():
    before, after = wanted(config_map(data={"a": "b", "c": "d"})), wanted()

    assert steps(after, existing=[stored(before)], record=of(before)) == [("update", "a")]


def test_the_replacement_has_nothing_that_others_added_but_metadata():
    one = wanted()
    found = stored(one, data={"a": "b", "c": "d"}, metadata={"resourceVersion": "7"}, status={})
    found["metadata"]["labels"] = {"other": "label"}

    made = replacement(one.object, found)

    assert made["data"] == {"a": "b"}
    assert made["metadata"]["resourceVersion"] == "7"
    assert made["metadata"]["labels"] == {"other": "label", **one.object["metadata"]["labels"]}


@pytest.mark.parametrize(
    ("existing", "record"),
    [
        pytest.param(config_map(), {}, id="of-others"),
        pytest.param(stored(wanted()), {}, id="with-forged-labels"),
        pytest.param(
            stored(wanted(policy="GeneratingPolicy/q")),
            of(wanted(policy="GeneratingPolicy/q")),
            id="of-another-policy",
        ),
        pytest.param(
            stored(wanted(trigger=AGAIN), uid="o-9"), of(wanted(trigger=AGAIN)), id="replaced"
        ),
    ],
)
def test_an_object_that_was_generated_otherwise_is_a_conflict(existing, record):
    known = KnownPolicies(ids=(POLICY, "GeneratingPolicy/q"))

    assert ("conflict", "a") in steps(wanted(), existing=[existing], record=record, known=known)


def test_an_object_passes_to_a_trigger_that_was_made_anew():
    one = wanted(trigger=AGAIN)

    assert steps(wanted(), existing=[stored(one)], record=of(one)) == [("update", "a")]


def test_it_does_not_pass_while_the_former_trigger_is_undecided():
    one = wanted(trigger=AGAIN)
    known = KnownPolicies(ids=(POLICY,), triggers={(POLICY, "u-2")})

    found = steps(wanted(), existing=[stored(one)], record=of(one), known=known)

    assert found == [("conflict", "a")]


def test_two_triggers_do_not_take_turns_with_one_object():
    first, second = wanted(), wanted(trigger=AGAIN)
    both = [stored(second)]

    assert steps(first, second) == [("create", "a"), ("conflict", "a")]
    # The order of triggers is the API server's: a trigger with an earlier name takes nothing over.
    assert steps(first, second, existing=both, record=of(second)) == [("conflict", "a")]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param(KNOWN, [("delete", "a")], id="trigger-gone"),
        pytest.param(KnownPolicies(ids=(POLICY,), undecided=(POLICY,)), [], id="policy-undecided"),
        pytest.param(
            KnownPolicies(ids=(POLICY,), triggers={(POLICY, "u-1")}), [], id="trigger-undecided"
        ),
        pytest.param(GONE, [("delete", "a")], id="policy-gone"),
        pytest.param(KnownPolicies(kinds=("DeletingPolicy",)), [], id="kind-not-served"),
    ],
)
def test_an_object_that_is_wanted_no_more_is_deleted_if_that_is_sure(known, expected):
    one = wanted()

    assert steps(existing=[stored(one)], record=of(one), known=known) == expected


def test_the_failure_for_one_trigger_keeps_no_other_objects():
    one, other = wanted(), wanted(config_map("b"), trigger=AGAIN)
    known = KnownPolicies(ids=(POLICY,), triggers={(POLICY, "u-2")})
    both = [stored(one), stored(other)]

    found = steps(existing=both, record=of(one) | of(other), known=known)

    assert found == [("delete", "a")]


def test_an_orphan_outlives_its_policy_but_not_its_trigger():
    orphan = wanted(orphan=True)
    given = {"existing": [stored(orphan)], "record": of(orphan)}

    assert steps(**given, known=GONE) == [("forget", "a")]
    assert steps(**given) == [("delete", "a")]


@pytest.mark.parametrize(
    "existing",
    [
        pytest.param([], id="gone"),
        pytest.param([stored(wanted(), uid="o-2")], id="another-of-its-name"),
        pytest.param([config_map()], id="without-a-uid"),
    ],
)
def test_only_the_recorded_object_itself_is_deleted(existing):
    one = wanted()

    assert steps(existing=existing, record=of(one)) == [("forget", "a")]
    assert steps(existing=existing) == []


def test_without_synchronize_an_object_is_generated_once():
    once = wanted(synchronize=False)
    changed = stored(once, data={"a": "other"})

    assert steps(once) == [("create", "a")]
    assert steps(once, record={once.name: once.recorded("")}) == [("create", "a")]  # it was cut off
    assert steps(once, record=of(once)) == []
    assert steps(once, existing=[changed], record=of(once)) == []
    assert steps(existing=[changed], record=of(once)) == [("forget", "a")]
    assert steps(existing=[changed], record=of(once), known=GONE) == [("forget", "a")]


def test_a_policy_that_begins_to_orphan_is_recorded():
    before, after = wanted(), wanted(orphan=True)

    assert steps(after, existing=[stored(after)], record=of(before)) == [("record", "a")]


def test_a_record_is_stored_and_read():
    record = of(wanted()) | of(wanted(config_map("b"), orphan=True))

    assert unpacked(packed(record)) == record
    assert packed(dict(reversed(record.items()))) == packed(record)


@pytest.mark.parametrize("body", [b"", b"x", packed({})[:-4], b"\x78\x9c"])
def test_a_damaged_record_is_an_error(body):
    with pytest.raises(RecordDamagedError, match="cannot be read"):
        unpacked(body)


def test_a_record_has_limited_room():
    given = RecordedObject(POLICY, "Namespace a", "u", "o", "s", synchronize=True, orphan=False)
    record = {ObjectName("v1", "ConfigMap", "a", str(i)): given for i in range(MOST_RECORDED + 1)}

    with pytest.raises(RecordFullError, match="no room for 10,001"):
        packed(record)

"""Generated objects are brought to their state; nothing else is ever changed or deleted."""

import pytest

from policyd.engine.background.plan import covers, marked, name_of, plan

TRIGGER = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "team-a", "uid": "u-1"},
}
POLICY = "GeneratingPolicy/p"


def config_map(name="a", **more):
    metadata = {"name": name, "namespace": "team-a"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **more}


def wanted(obj=None, policy=POLICY, trigger=TRIGGER, *, orphan=False):
    return marked(obj or config_map(data={"a": "b"}), policy, trigger, orphan=orphan)


def steps(*wanted, existing=(), undecided=(), known=(POLICY,), kinds=("GeneratingPolicy",)):
    stored = {name_of(obj): obj for obj in existing}
    found = plan(wanted, stored, undecided=undecided, known=known, kinds=kinds)
    return [(step.kind, step.name.name) for step in found]


def test_a_missing_object_is_created_with_marks():
    one = wanted()
    (step,) = plan([one], {}, undecided=(), known=(POLICY,), kinds=())

    assert step.kind == "create"
    assert step.object["metadata"]["labels"]["policyd.io/generating-trigger"] == "u-1"
    assert step.object["metadata"]["annotations"]["policyd.io/generated-by"] == POLICY
    assert str(step.name) == "ConfigMap team-a/a"
    assert len(step.object["metadata"]["labels"]["policyd.io/generating-policy"]) <= 63


def test_an_object_as_it_is_wanted_stays_whatever_else_it_has():
    stored = {**wanted().object, "immutable": False, "data": {"a": "b", "c": "d"}}

    assert steps(wanted(), existing=[stored]) == []


def test_an_object_that_differs_is_updated_unless_it_is_being_deleted():
    stored = {**wanted().object, "data": {"a": "other"}}
    leaving = {**stored, "metadata": {**stored["metadata"], "deletionTimestamp": "t"}}

    assert steps(wanted(), existing=[stored]) == [("update", "a")]
    assert steps(wanted(), existing=[leaving]) == []


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(config_map(), id="no-marks"),
        pytest.param(wanted(policy="GeneratingPolicy/q").object, id="another-policy"),
        pytest.param(
            wanted(trigger={**TRIGGER, "metadata": {"name": "team-a", "uid": "u-2"}}).object,
            id="another-trigger",
        ),
        pytest.param(
            {**config_map(), "metadata": {"name": "a", "namespace": "team-a", "labels": "x"}},
            id="labels-that-are-none",
        ),
    ],
)
def test_an_object_that_was_generated_otherwise_is_a_conflict(other):
    known = (POLICY, "GeneratingPolicy/q")

    assert steps(wanted(), existing=[other], known=known) == [("conflict", "a")]


def test_two_triggers_do_not_take_turns_with_one_object():
    second = {**TRIGGER, "metadata": {"name": "team-b", "uid": "u-2"}}

    assert steps(wanted(), wanted(trigger=second)) == [("create", "a"), ("conflict", "a")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, [("delete", "a")], id="trigger-gone"),
        pytest.param({"undecided": (POLICY,)}, [], id="policy-undecided"),
        pytest.param({"known": ()}, [("delete", "a")], id="policy-gone"),
        pytest.param({"known": (), "kinds": ("DeletingPolicy",)}, [], id="kind-not-served"),
    ],
)
def test_an_object_that_is_wanted_no_more_is_deleted_if_that_is_sure(given, expected):
    assert steps(existing=[wanted().object], **given) == expected


def test_an_orphan_outlives_its_policy_but_not_its_trigger():
    orphan = wanted(orphan=True).object

    assert steps(existing=[orphan], known=()) == []
    assert steps(existing=[orphan]) == [("delete", "a")]


def test_an_object_without_marks_is_never_deleted():
    assert steps(existing=[config_map()]) == []


@pytest.mark.parametrize(
    ("actual", "wanted", "expected"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": 1}, True, id="more-fields"),
        pytest.param({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]}, True, id="defaults-in-items"),
        pytest.param({"a": [1, 2]}, {"a": [1]}, False, id="more-items"),
        pytest.param({"a": 1}, {"a": True}, False, id="number-for-a-switch"),
        pytest.param({"a": None}, {"a": {}}, False, id="null"),
        pytest.param([], {}, False, id="list-for-an-object"),
    ],
)
def test_an_object_covers_what_is_wanted_of_it(actual, wanted, expected):
    assert covers(actual, wanted) == expected

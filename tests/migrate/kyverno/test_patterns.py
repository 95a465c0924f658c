"""Patterns mean what Kyverno means by them: anchors, operators, wildcards, what is absent."""

import pytest

from policyd.migrate.kyverno.policies import convert
from tests.migrate.kyverno.deciding import (
    THINGS,
    answer,
    in_template,
    judged,
    pod,
    thing,
    validating,
)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        pytest.param("a", ["a"], ["b", "", None], id="text"),
        pytest.param("?*", ["a"], ["", None], id="something"),
        pytest.param("*", ["a", ""], [None], id="anything"),
        pytest.param("a*", ["a", "ab"], ["ba", None], id="prefix"),
        pytest.param("*.b", ["a.b"], ["a.bc", "a-b"], id="suffix"),
        pytest.param("*a*", ["bab"], ["b"], id="inside"),
        pytest.param("a?c*e", ["abcde"], ["ace"], id="wildcards"),
        pytest.param("!a", ["b"], ["a", None], id="not"),
        pytest.param("!a*", ["b"], ["ab", None], id="not-like"),
        pytest.param("a | b", ["a", "b"], ["c", None], id="or"),
        pytest.param("a* | !*:*", ["ab", "c"], ["c:d", None], id="or-not"),
        pytest.param("!a & !b*", ["c"], ["a", "bc", None], id="and"),
        pytest.param(">1", [2, "2"], [1, "1", None, "x"], id="more"),
        pytest.param("<=1", [1, 0, None], [2], id="less-or-equal"),
        pytest.param("<5Gi", ["4Gi", "1000"], ["6Gi"], id="quantity"),
        pytest.param("1-5", [1, 5, "3"], [0, 6], id="range"),
        pytest.param("1!-5", [0, 6], [1, 5], id="out-of-range"),
        pytest.param("10Mi-1Gi", ["20Mi"], ["2Gi", "1Mi"], id="range-of-quantities"),
        pytest.param(">1h", ["2h", "61m"], ["30m"], id="duration"),
        pytest.param(7, [7], [8, None], id="number"),
        pytest.param(True, [True], [False, None], id="true"),
        pytest.param(False, [False], [True, None], id="false"),
        pytest.param("a'b\\c", ["a'b\\c"], ["ab"], id="quotes"),
        pytest.param("a", [["a", "a"], []], [["a", "b"]], id="each-of-a-list"),
    ],
)
def test_a_value_is_compared_as_by_kyverno(pattern, good, bad):
    if isinstance(good[0], list):
        pattern, key = [pattern], "x"
    else:
        key = "x"
    for value in good:
        assert judged({key: pattern}, **({} if value is None else {key: value})) == "pass", value
    for value in bad:
        assert judged({key: pattern}, **({} if value is None else {key: value})) == "fail", value


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param(
            {"x": {"=(y)": "a"}},
            [({"x": {}}, "pass"), ({"x": {"y": "b"}}, "fail"), ({}, "fail")],
            id="equality",
        ),
        pytest.param(
            {"X(x)": "null"},
            [({}, "pass"), ({"x": 1}, "fail")],
            id="negation",
        ),
        pytest.param(
            {"(x)": "a", "y": "b"},
            [
                ({"x": "a", "y": "b"}, "pass"),
                ({"x": "a"}, "fail"),
                ({"x": "c"}, "pass"),
                ({}, "pass"),
            ],
            id="conditional",
        ),
        pytest.param(
            {"<(x)": "a", "y": "b"},
            [({"x": "a", "y": "c"}, "fail"), ({"x": "c", "y": "c"}, "pass"), ({"y": "c"}, "fail")],
            id="global",
        ),
        pytest.param(
            {"^(l)": [{"x": "a"}]},
            [
                ({"l": [{"x": "b"}, {"x": "a"}]}, "pass"),
                ({"l": [{"x": "b"}]}, "fail"),
                ({}, "pass"),
            ],
            id="existence",
        ),
        pytest.param(
            {"l": [{"(x)": "a", "y": "b"}]},
            [
                ({"l": [{"x": "a", "y": "b"}, {"x": "c"}]}, "pass"),
                ({"l": [{"x": "c"}, {"x": "a", "y": "c"}]}, "fail"),
                ({}, "fail"),
            ],
            id="conditional-in-a-list",
        ),
        pytest.param(
            {"=(l)": [{"=(m)": [{"X(x)": "null"}]}]},
            [
                ({}, "pass"),
                ({"l": [{"m": [{}]}, {}]}, "pass"),
                ({"l": [{"m": [{"x": 1}]}]}, "fail"),
            ],
            id="lists-in-lists",
        ),
        pytest.param(
            {"x": {}},
            [({"x": {"y": 1}}, "pass"), ({"x": "a"}, "pass"), ({}, "fail")],
            id="empty-map",
        ),
    ],
)
def test_anchors_decide_as_in_kyverno(pattern, expected):
    for spec, result in expected:
        assert judged(pattern, **spec) in (result, "skip" if result == "pass" else result), spec


def test_all_elements_that_are_skipped_end_the_rule():
    pattern = {"l": [{"(x)": "a"}], "z": "1"}

    assert judged(pattern, l=[{"x": "b"}], z="2") == "pass"
    assert judged(pattern, l=[{"x": "b"}, {"x": "a"}], z="2") == "fail"


def test_one_of_several_patterns_is_enough():
    policy = validating(THINGS, anyPattern=[{"spec": {"x": "a"}}, {"spec": {"y": "?*"}}])

    assert answer(policy, thing(x="a")) == "pass"
    assert answer(policy, thing(y="b")) == "pass"
    assert answer(policy, thing(x="b")) == "fail"


def test_a_condition_that_does_not_hold_is_one_of_the_match():
    policy = validating(pattern={"spec": {"(hostNetwork)": True, "priorityClassName": "?*"}})

    assert answer(policy, pod()) == "skip"
    assert answer(policy, pod(hostNetwork=True)) == "fail"


def test_a_rule_for_pods_is_one_for_templates():
    policy = validating(pattern={"metadata": {"labels": {"app": "?*"}}})

    for obj, result in ((pod(), "fail"), (pod(labels={"app": "a"}), "pass")):
        assert answer(policy, obj) == result
        assert answer(policy, in_template(obj)) == result
    policy["metadata"]["annotations"]["pod-policies.kyverno.io/autogen-controllers"] = "none"
    assert answer(policy, in_template(pod())) == "skip"


def test_keys_with_wildcards_are_those_of_labels():
    policy = validating(pattern={"metadata": {"=(annotations)": {"=(a.example/*)": "yes"}}})

    assert answer(policy, pod(annotations={"b": "no"})) == "pass"
    assert answer(policy, pod(annotations={"a.example/x": "yes"})) == "pass"
    assert answer(policy, pod(annotations={"a.example/x": "no"})) == "fail"


def test_a_variable_in_a_pattern_is_compared():
    policy = validating(
        pattern={"spec": {"serviceAccountName": "{{ request.object.metadata.name }}"}}
    )

    assert answer(policy, pod(serviceAccountName="a")) == "pass"
    assert answer(policy, pod(serviceAccountName="b")) == "fail"


@pytest.mark.parametrize(
    ("pattern", "cel"),
    [
        pytest.param(
            {"spec": {"containers": [{"image": "!*:latest"}]}},
            "pod.spec.containers.all(container, has(container.image) &&"
            " !container.image.endsWith(':latest'))",
            id="containers",
        ),
        pytest.param(
            {"spec": {"=(hostNetwork)": False}},
            "!pod.spec.?hostNetwork.orValue(false)",
            id="equality",
        ),
        pytest.param(
            {"spec": {"=(securityContext)": {"=(seccompProfile)": {"=(type)": "A | B"}}}},
            "pod.spec.?securityContext.?seccompProfile.?type.orValue('A') in ['A', 'B']",
            id="equalities",
        ),
        pytest.param(
            {"spec": {"securityContext": {"runAsNonRoot": True}}},
            "pod.spec.?securityContext.?runAsNonRoot.orValue(false) == true",
            id="optional",
        ),
    ],
)
def test_it_is_written_as_a_person_would(pattern, cel):
    (policy,) = convert(validating(pattern=pattern)).policies

    assert policy["spec"]["validations"][0]["expression"] == cel

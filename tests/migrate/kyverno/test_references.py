"""A reference stands for a text of its rule, as in Kyverno; no other text is taken for one."""

import pytest

from policyd.migrate.kyverno.policies import convert
from tests.migrate.kyverno.deciding import (
    PODS,
    answer,
    decide,
    judged,
    legacy,
    pod,
    rule,
    validating,
)


@pytest.mark.parametrize(
    ("reference", "good", "bad"),
    [
        pytest.param("$(./../most)", ["2Gi"], ["1Gi"], id="the-same"),
        pytest.param("$(../most)", ["2Gi"], ["1Gi"], id="without-a-dot"),
        pytest.param("$(/spec/most)", ["2Gi"], ["1Gi"], id="from-the-root"),
        pytest.param("<=$(./../most)", ["1Gi", "2Gi"], ["3Gi"], id="operator-before-it"),
        pytest.param("$(<=./../most)", ["1Gi", "2Gi"], ["3Gi"], id="operator-in-it"),
        pytest.param("$(!./../most)", ["1Gi"], ["2Gi"], id="not"),
        pytest.param("1Gi | $(./../most)", ["1Gi", "2Gi"], ["3Gi"], id="alternative"),
        pytest.param("$(>./../count)", ["3"], ["2", "1"], id="more-than-a-number"),
        pytest.param(r"\$(./../most)", ["$(./../most)"], ["2Gi"], id="escaped"),
    ],
)
def test_a_pattern_may_refer_to_another_part_of_it(reference, good, bad):
    pattern = {"most": "2Gi", "=(count)": 2, "wanted": reference}

    for wanted in good:
        assert judged(pattern, most="2Gi", count=2, wanted=wanted) == "pass", wanted
    for wanted in bad:
        assert judged(pattern, most="2Gi", count=2, wanted=wanted) == "fail", wanted


def test_a_reference_leaves_lists_and_passes_anchors():
    """The example of Kyverno's documentation."""
    ports = {
        "livenessProbe": "$(<./../../../readinessProbe/tcpSocket/port)",
        "readinessProbe": "3000",
    }
    probes = {name: {"tcpSocket": {"port": port}} for name, port in ports.items()}
    policy = validating(pattern={"spec": {"^(containers)": [probes]}})

    def container(live, ready):
        given = {"livenessProbe": live, "readinessProbe": ready}
        return {"name": "c", "image": "a"} | {
            name: {"tcpSocket": {"port": port}} for name, port in given.items()
        }

    assert answer(policy, pod(container(2999, 3000))) == "pass"
    assert answer(policy, pod(container(3000, 3000))) == "fail"
    assert answer(policy, pod(container(2999, 3001))) == "fail"


def test_what_is_escaped_is_set_without_the_backslash():
    env = {"name": "A", "value": r"a=\$(POD), b=\$(NODE)"}
    overlay = {"spec": {"containers": [{"(name)": "*", "env": [env]}]}}
    policy = legacy(rule(mutate={"patchStrategicMerge": overlay}))

    _, changed = decide(policy, pod())

    assert changed["spec"]["containers"][0]["env"] == [
        {"name": "A", "value": "a=$(POD), b=$(NODE)"}
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("$(./../nothing)", "is to no text of the rule", id="nothing-there"),
        pytest.param("$(HOSTNAME)", "is to no text of the rule", id="no-path"),
        pytest.param("$(./../number)", "is to no text of the rule", id="number-as-a-text"),
        pytest.param("$(./../parts)", "is to no text of the rule", id="map"),
        pytest.param("$(./../further)", "is to no text of the rule", id="further-reference"),
    ],
)
def test_a_reference_to_no_text_is_refused_at_its_place(text, reason):
    pattern = {"a": text, "number": 1, "parts": {"b": "c"}, "further": "$(./../number)"}

    (refusal,) = convert(legacy(rule(validate={"pattern": {"spec": pattern}}))).refusals

    assert refusal.path == ("spec", "rules", 0, "validate", "pattern", "spec", "a")
    assert reason in refusal.reason
    assert text in refusal.reason


@pytest.mark.parametrize(
    "parts",
    [
        {"validate": {"message": "$(./../x)", "pattern": {"spec": {"a": "b"}}}},
        {"validate": {"pattern": {"spec": {"$(./../x)": "b"}}}},
        {"mutate": {"patchStrategicMerge": {"metadata": {"labels": {"a": "$(date)"}}}}},
        {
            "generate": {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "a",
                "namespace": "b",
                "data": {"data": {"a": "$(date)"}},
            }
        },
    ],
    ids=["message", "key", "overlay", "generated"],
)
def test_no_reference_is_taken_for_a_text(parts):
    (refusal,) = convert(legacy(rule(match=PODS, **parts))).refusals

    assert "reference" in refusal.reason


def test_a_reference_to_a_pattern_is_noted():
    """Its author may have meant the value of the object, which Kyverno does not look at."""
    asked = {"requests": {"memory": "<=$(./../../limits/memory)"}, "limits": {"memory": "?*"}}
    conversion = convert(validating(pattern={"spec": {"containers": [{"resources": asked}]}}))

    assert conversion.whole
    assert conversion.notes == (
        (0, "`$(./../../limits/memory)` is the text `?*` of the rule, and no value of an object"),
    )


def test_the_name_of_what_is_generated_may_refer_to_its_data():
    generate = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "$(./../data/data/a)-x",
        "namespace": "default",
        "data": {"data": {"a": "b"}},
    }

    (made,) = convert(legacy(rule(generate=generate))).policies

    assert "name: b-x" in made["spec"]["generate"][0]["template"]["value"]

"""The rules by which running jobs come under queues."""

import json

import pytest
from click.testing import CliRunner

from policyd.api.meta import ObjectMeta
from policyd.cli import main
from policyd.cli.importing.reading import IMPORTABLE
from policyd.cli.importing.rules import (
    UndecidedError,
    queue_of,
    read_rules,
    rules_from_options,
)

HEAD = "apiVersion: policyd.io/v1alpha1\nkind: ImportRules\nrules:\n"


def read(tmp_path, rules):
    file = tmp_path / "rules.yaml"
    file.write_text(HEAD + rules)
    return read_rules(str(file), IMPORTABLE)


def matched(tmp_path, rules, *, kind="Job", name="a", namespace="team-a", labels=None, ns=None):
    found, findings = read(tmp_path, rules)
    assert findings == []
    metadata = ObjectMeta(name=name, namespace=namespace, labels=labels or {})
    obj = {"kind": kind, "metadata": {"name": name, "labels": labels or {}}}
    rule = found.rule_for(obj, metadata, ns, {"urgent"})
    return None if rule is None else (rule.name, queue_of(rule, metadata))


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        pytest.param("{}", True, id="all"),
        pytest.param("{kinds: [Pod]}", False, id="another-kind"),
        pytest.param("{kinds: [Pod, Job]}", True, id="one-of-the-kinds"),
        pytest.param("{namespaces: ['team-*']}", True, id="a-wildcard"),
        pytest.param("{namespaces: [team]}", False, id="no-part-of-a-name"),
        pytest.param("{selector: {matchLabels: {a: b}}}", True, id="labels"),
        pytest.param(
            "{selector: {matchExpressions: [{key: a, operator: NotIn, values: [b]}]}}",
            False,
            id="expressions",
        ),
        pytest.param("{namespaceSelector: {matchLabels: {of: gpu}}}", True, id="of-namespaces"),
        pytest.param("{namespaceSelector: {matchLabels: {of: x}}}", False, id="other-namespaces"),
        pytest.param("{priorityClasses: [urgent]}", True, id="priority"),
        pytest.param("{priorityClasses: [low]}", False, id="another-priority"),
        pytest.param("{condition: \"object.metadata.name == 'a'\"}", True, id="condition"),
        pytest.param("{condition: \"object.metadata.name == 'b'\"}", False, id="condition-not-met"),
        pytest.param("{condition: namespaceObject.metadata.labels.of == 'gpu'}", True, id="in-cel"),
    ],
)
def test_a_rule_is_about_what_meets_all_of_its_match(tmp_path, rule, matches):
    namespace = {"metadata": {"labels": {"of": "gpu"}}}

    found = matched(
        tmp_path, f"- {{name: r, queue: q, match: {rule}}}\n", labels={"a": "b"}, ns=namespace
    )

    assert found == (("r", "q") if matches else None)


def test_the_first_rule_counts(tmp_path):
    rules = (
        "- {name: keep, skip: true, match: {namespaces: [x]}}\n"
        "- {name: label, queueLabel: team, queues: {red: lq-red}}\n"
        "- {name: rest, queue: other}\n"
    )

    assert matched(tmp_path, rules, labels={"team": "red"}) == ("label", "lq-red")
    assert matched(tmp_path, rules, labels={"team": "blue"}) == ("label", "blue")
    assert matched(tmp_path, rules) == ("rest", "other")
    assert matched(tmp_path, rules, namespace="x") == ("keep", "")


def test_options_are_a_rule(tmp_path):
    rules = rules_from_options("src", ["a=lq-a"])
    metadata = ObjectMeta(labels={"src": "a"}, namespace="n")

    rule = rules.rule_for({"kind": "Pod"}, metadata, None, set())

    assert queue_of(rule, metadata) == "lq-a"
    assert rules.rule_for({"kind": "Pod"}, ObjectMeta(namespace="n"), None, set()) is None


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        pytest.param("{condition: object.spec.missing == 1}", "the condition of rule", id="fails"),
        pytest.param(
            "{condition: '[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b,"
            " [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e,"
            " [1,2,3,4,5,6,7,8,9].all(f, [1,2,3,4,5,6,7,8,9].all(g, a + b + c + d + e + f + g"
            " > 0)))))))'}",
            "cost",
            id="costs-too-much",
        ),
        pytest.param("{namespaceSelector: {}}", "may not be read", id="unknown-namespace"),
    ],
)
def test_what_cannot_be_decided_has_a_reason(tmp_path, rule, why):
    with pytest.raises(UndecidedError, match=why):
        matched(tmp_path, f"- {{name: r, queue: q, match: {rule}}}\n")


@pytest.mark.parametrize(
    ("rules", "message", "line"),
    [
        pytest.param("- {name: r}\n", "needs one of `queue`, `queueLabel`", 4, id="no-queue"),
        pytest.param(
            "- {name: r, queue: a, skip: true}\n", "needs one of", 4, id="a-queue-and-skip"
        ),
        pytest.param("- {name: r, qeue: a}\n", "unknown field `qeue`", 4, id="unknown-field"),
        pytest.param("- {name: r, queue: A_B}\n", "`queue` is `A_B`", 4, id="no-name"),
        pytest.param(
            "- {name: r, queue: a}\n- {name: r, queue: b}\n", "two rules are called", 5, id="twice"
        ),
        pytest.param(
            "- {name: r, queue: a, match: {kinds: [Jobb]}}\n", "`Jobb` is not a kind", 4, id="kind"
        ),
        pytest.param(
            "- name: r\n  queue: a\n  match:\n    condition: object.a ==\n", "", 7, id="no-cel"
        ),
        pytest.param(
            "- {name: r, queue: a, match: {condition: '1'}}\n", "bool", 4, id="not-a-condition"
        ),
        pytest.param("[]\n", "", 4, id="no-rules"),
        pytest.param("- {name: r, queue: a, queues: {x: y}}\n", "needs `queueLabel`", 4, id="map"),
    ],
)
def test_mistakes_are_found_with_their_place(tmp_path, rules, message, line):
    found, findings = read(tmp_path, rules)

    assert found is None
    assert any(message in each.message and each.line == line for each in findings), findings


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param([], "give either --rules or --queue-label", id="nothing"),
        pytest.param(["--queue-label", "a", "--queue-mapping", "b"], "VALUE=QUEUE", id="mapping"),
        pytest.param(["--queue-label", "a", "-n", "A_B"], "not the name of a namespace", id="name"),
    ],
)
def test_wrong_options_end_with_2(words, message):
    result = CliRunner().invoke(main, ["import", *words])

    assert result.exit_code == 2
    assert message in result.output


def test_rules_of_another_kind_end_with_2(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}))

    result = CliRunner().invoke(main, ["import", "--rules", str(file)])

    assert result.exit_code == 2
    assert "rules.yaml:1:" in result.output

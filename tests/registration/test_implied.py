"""Labels that a match condition asks for become a selector, which costs nothing."""

import pytest

from policyd.api.admission import Rule
from policyd.registration.interest import implied_labels

HAD = "oldObject.metadata.?labels[?'a/b'].orValue('') != ''"
HAS = "object.metadata.?labels[?'c'].orValue('') != ''"


def rule(*operations):
    return Rule(api_groups=("",), api_versions=("v1",), operations=operations, resources=("pods",))


@pytest.mark.parametrize(
    ("expression", "operations", "labels"),
    [
        pytest.param(HAD, ("UPDATE",), ["a/b"], id="asked-for"),
        pytest.param(f"{HAD} && object.metadata.name != ''", ("UPDATE",), ["a/b"], id="and-more"),
        pytest.param(f"request.operation == 'CREATE' || {HAD}", ("UPDATE",), ["a/b"], id="never"),
        pytest.param(f"request.operation == 'CREATE' || {HAD}", ("CREATE", "UPDATE"), [], id="new"),
        pytest.param(f"request.operation == 'CREATE' || {HAD}", ("*",), [], id="any-operation"),
        pytest.param(f"{HAD} || object.metadata.name != ''", ("UPDATE",), [], id="or-else"),
        pytest.param(f"{HAD} || {HAS}", ("UPDATE",), [], id="one-of-two"),
        pytest.param(f"{HAD} || {HAD} && {HAS}", ("UPDATE",), ["a/b"], id="in-both"),
        pytest.param(f"{HAD} && {HAS}", ("UPDATE",), ["a/b"], id="one-object-need-not-have-both"),
        pytest.param(f"!({HAD})", ("UPDATE",), [], id="the-contrary"),
        pytest.param(HAD.replace("!=", "=="), ("UPDATE",), [], id="asked-for-its-absence"),
        pytest.param(HAD.replace("labels", "annotations"), ("UPDATE",), [], id="an-annotation"),
        pytest.param(HAD.replace("''", "'x'"), ("UPDATE",), [], id="another-default"),
        pytest.param(HAD.replace("oldObject", "params"), ("UPDATE",), [], id="of-something-else"),
    ],
)
def test_labels_follow_from_conditions(expression, operations, labels):
    found = implied_labels([expression], rule(*operations))

    assert [(each.key, each.operator) for each in found] == [(key, "Exists") for key in labels]

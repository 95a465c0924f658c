"""Lists and maps of mixed types: accepted and refused as a kube-apiserver of 1.36 does."""

import pytest

from policyd.cel import CelCompileError, admission_environment, compile_expression
from policyd.dialects.kyverno.environments import kyverno_environment


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("[[], ['a']]", id="an-empty-list-is-of-any-type"),
        pytest.param("[{}, {'a': 1}]", id="so-is-an-empty-map"),
        pytest.param("['b', ?optional.of('a')]", id="an-optional-text-is-a-text"),
        pytest.param("['%s %d'.format(['a', 1])]", id="format-is-given-anything"),
        pytest.param("[object.x, object.y]", id="all-of-any-type"),
    ],
)
def test_parts_of_one_type_are_accepted(expression):
    compile_expression(expression, admission_environment())


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        pytest.param(
            "['a', object.x]", "expected type 'string' but found 'dyn'", id="any-after-text"
        ),
        pytest.param(
            "[object.x, 'a']", "expected type 'dyn' but found 'string'", id="text-after-any"
        ),
        pytest.param(
            "['b', ?object.?x]", "expected type 'string' but found 'dyn'", id="an-optional-any"
        ),
        pytest.param("[1, 2u]", "expected type 'int' but found 'uint'", id="two-kinds-of-numbers"),
        pytest.param(
            "[timestamp('2020-01-01T00:00:00Z'), null]",
            "expected type 'timestamp' but found 'null'",
            id="null-where-it-may-stand",
        ),
        pytest.param(
            "[{'a': object.x}, {'b': 'c'}]",
            "expected type 'map(string, dyn)' but found 'map(string, string)'",
            id="inside-of-maps",
        ),
        pytest.param(
            "{'a': 1, dyn('b'): 2}", "expected type 'string' but found 'dyn'", id="keys-of-a-map"
        ),
    ],
)
def test_parts_of_different_types_are_refused(expression, message):
    with pytest.raises(CelCompileError) as refused:
        compile_expression(expression, admission_environment())

    assert message in str(refused.value)


def test_more_than_two_numbers_to_choose_from_are_a_list():
    environment = kyverno_environment()

    compile_expression("math.least(1, 2.0) + math.least(3, 2, 1)", environment)
    with pytest.raises(CelCompileError, match="expected type 'int' but found 'double'"):
        compile_expression("math.least(1, 2.0, 3)", environment)

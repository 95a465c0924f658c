"""Literals of CEL have the values that they are written for, in lists and maps of any types."""

import pytest

from policyd.cel import Budget, compile_expression
from policyd.cel.environments import base_environment
from policyd.cel.syntax.literals import CelText, json_literal


@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            True,
            1,
            -3,
            1.5,
            "a",
            "it's",
            'a"b',
            "a'\"b",
            "\\d+",
            "\\'",
            "a\\",
            "a\nb\t\r\x00é😀",
        ),
        *([], {}, ["a", "b"], ["a", 1], [[1], ["a"]], [[1], [2]], [{"a": 1}, {"a": "b"}]),
        *({"a": 1, "b": 2}, {"a": 1, "b": None}, {"a": {"b": [1, "c"]}, "d": {"b": [2]}}),
    ],
)
def test_a_literal_has_the_value(value):
    program = compile_expression(json_literal(value), base_environment())

    assert program.evaluate({}, Budget(10_000)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(["a", "b"], "['a', 'b']", id="one-type"),
        pytest.param([["a"], ["b"]], "[['a'], ['b']]", id="lists-of-one-type"),
        pytest.param(["a", 1], "[dyn('a'), dyn(1)]", id="types"),
        pytest.param([1, 2.0], "[1, 2]", id="whole-numbers"),
        pytest.param([CelText("x"), "a"], "[dyn(x), dyn('a')]", id="cel"),
        pytest.param("\\d", r"r'\d'", id="raw"),
    ],
)
def test_it_is_written_in_short(value, text):
    assert json_literal(value) == text

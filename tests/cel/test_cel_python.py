"""cel-python gives the same values where it follows the specification.

It has no optionals, no macros with two variables, and refuses to compare values of different types;
expressions keep to what it gets right.
"""

import json

import celpy
import pytest
from celpy.adapter import json_to_cel
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.cel import Budget
from policyd.cel.compile.program import compile_expression
from policyd.cel.environments import extended_environment
from policyd.cel.types import DYN

OBJECT = {
    "name": "web",
    "replicas": 3,
    "labels": {"app": "web", "tier": "front"},
    "ports": [80, 443, 8080],
    "images": ["a/b:1", "c/d:2"],
}
# Making one changes Python's recursion limit, which Hypothesis watches during a test.
_THEIRS = celpy.Environment()
_ENVIRONMENT = extended_environment().extend(variables={"object": DYN})

_numbers = st.sampled_from(
    ["1", "2", "-3", "object.replicas", "size(object.ports)", "object.ports[0]"]
)
_texts = st.sampled_from(["'a'", "'web'", "object.name", "object.labels.app", "object.images[1]"])
_sums = st.builds(
    "({} {} {})".format, _numbers, st.sampled_from(["+", "-", "*", "/", "%"]), _numbers
)
_tests = st.one_of(
    st.builds("({} {} {})".format, _sums, st.sampled_from(["<", "<=", "==", "!=", ">"]), _sums),
    st.builds("{}.startsWith({})".format, _texts, _texts),
    st.builds("{}.contains({})".format, _texts, _texts),
    st.builds("({} + {} == {})".format, _texts, _texts, _texts),
    st.builds("({} in object.labels)".format, _texts),
    st.builds("object.ports.all(p, p > {})".format, _numbers),
    st.builds("object.ports.exists(p, p == {})".format, _sums),
    st.builds("object.images.exists_one(i, i.endsWith({}))".format, _texts),
    st.builds("object.ports.map(p, p + {}) == [81, 444, 8081]".format, _numbers),
    st.just("has(object.missing)"),
)
_logic = st.recursive(
    _tests,
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!{}".format, st.builds("({})".format, inner)),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
    ),
    max_leaves=6,
)


@given(_logic)
@settings(max_examples=60, deadline=None)
def test_values_are_those_of_cel_python(source):
    program = _THEIRS.program(_THEIRS.compile(source))

    theirs = program.evaluate({"object": json_to_cel(OBJECT)})
    ours = compile_expression(source, _ENVIRONMENT).evaluate({"object": OBJECT}, Budget())

    assert ours == bool(theirs)


@pytest.mark.parametrize("place", [".labels", ".ports", ".images"])
def test_containers_are_those_of_cel_python(place):
    source = f"object{place}"

    theirs = _THEIRS.program(_THEIRS.compile(source)).evaluate({"object": json_to_cel(OBJECT)})
    ours = compile_expression(source, _ENVIRONMENT).evaluate({"object": OBJECT}, Budget())

    assert json.loads(json.dumps(theirs, cls=celpy.CELJSONEncoder)) == ours

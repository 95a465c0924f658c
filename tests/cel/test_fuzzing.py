"""Whatever comes in, only errors of CEL come out, within the limits of cost, time and memory."""

import string
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyd.cel import (
    Budget,
    CelCompileError,
    CelCostError,
    CelError,
    CelInternalError,
    admission_environment,
    compile_expression,
)
from policyd.cel.compile.program import MAX_LINES, compile_unchecked
from policyd.cel.cost import EXPRESSION_LIMIT, WORK_LIMIT
from policyd.cel.recursion import deep_recursion
from policyd.cel.types import DYN
from tests.cel import reference
from tests.cel.expressions import ENVIRONMENT, EXPRESSIONS, VARIABLES, mutated
from tests.cel.outcomes import outcome

ROOT = Path(__file__).parents[2]
_SETTINGS = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
_ADMISSION = admission_environment(variables=dict.fromkeys(string.ascii_lowercase, DYN))
_REVIEW = {
    "object": VARIABLES["object"],
    "oldObject": None,
    "request": {"operation": "CREATE", "userInfo": {"username": "u", "groups": []}},
    "namespaceObject": {"metadata": {"labels": {"a": "b"}}},
    "params": {"data": {"limit": 3}},
    "variables": dict.fromkeys(string.ascii_lowercase, 1),
}


class SpentBudget(Budget):
    """A budget that remembers how much work an expression did at most."""

    def charge_work(self, elements):
        super().charge_work(elements)
        assert self.work <= WORK_LIMIT


def issues_of(source, environment, variables):
    """Parse, check, compile and evaluate: only errors of CEL may come out. Return the issues."""
    try:
        compile_expression(source, environment).evaluate(variables, SpentBudget())
    except CelCompileError as error:
        return error.issues
    except CelInternalError:
        raise
    except CelError:
        return ()
    return ()


def in_text(issues, source):
    lines = source.split("\n")
    return all(
        1 <= issue.line <= len(lines) and 1 <= issue.column <= len(lines[issue.line - 1]) + 1
        for issue in issues
    )


@given(st.binary(max_size=80))
@_SETTINGS
def test_arbitrary_bytes(data):
    source = data.decode(errors="surrogateescape")

    issues = issues_of(source, ENVIRONMENT, VARIABLES)

    assert in_text(issues, source)


@given(st.data(), EXPRESSIONS)
@_SETTINGS
def test_mutated_expressions(data, source):
    source = mutated(data.draw, source)

    issues = issues_of(source, ENVIRONMENT, VARIABLES)

    assert in_text(issues, source)


def _expressions_of_policies():
    found = set()
    for path in sorted(ROOT.glob("policies/*/*/policy.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            pending = [document]
            while pending:
                part = pending.pop()
                if isinstance(part, dict):
                    pending += part.values()
                    texts = (part.get("expression"), part.get("messageExpression"))
                    found.update(text for text in texts if isinstance(text, str))
                elif isinstance(part, list):
                    pending += part
    return sorted(found)


@given(st.data(), st.sampled_from(_expressions_of_policies()))
@_SETTINGS
def test_mutated_policies(data, source):
    source = mutated(data.draw, source)

    issues = issues_of(source, _ADMISSION, _REVIEW)

    assert in_text(issues, source)


_DEEP = {
    "parentheses": "(" * 249 + "a" + ")" * 249,
    "lists": "[" * 100 + "a" + "]" * 100,
    "maps": "{'k':" * 100 + "a" + "}" * 100,
    "negations": "!(" * 248 + "a" + ")" * 248,
    "logic": "(a&&(a||" * 124 + "a" + "))" * 124,
    "logic-with-errors": "(l[9]||(a&&" * 124 + "a" + "))" * 124,
    "conditions": "!a?1:" * 249 + "2",
    "conditions-in-front": "a?(" * 124 + "2" + "):3" * 124,
    "maps-in-maps": "l.map(x," * 124 + "a" + ")" * 124,
    "quantifiers": "l.all(x," * 124 + "a" + ")" * 124,
    "reading-all-variables": "".join(f"l.map(v{n}," for n in range(100))
    + "+".join(f"v{n}" for n in range(100))
    + ")" * 100,
    "bindings": "cel.bind(x,a," * 124 + "x" + ")" * 124,
    "bound-values": "cel.bind(x," * 124 + "a" + ",x)" * 124,
    "failing-bindings": "cel.bind(x,l[9]," * 120 + "x" + ")" * 120,
    "optionals": "optional.of(a).optMap(x," * 60 + "x" + ")" * 60,
    "alternatives": "optional.none().orValue(" * 82 + "a" + ")" * 82,
    "two-variables": "l.transformMap(x,y," * 62 + "x" + ")" * 62,
    "sorting": "l.sortBy(x," * 62 + "1" + ")" * 62,
    "functions": "string(" * 249 + "1" + ")" * 249,
    "all-kinds": "(a && !l.exists(x, x > 5 || !(l.all(y, a ? " * 20 + "a" + " : a))))" * 20,
}


@pytest.mark.parametrize("source", _DEEP.values(), ids=_DEEP.keys())
def test_the_deepest_nesting_is_compiled_correctly(source):
    environment = ENVIRONMENT.extend(variables={"a": DYN, "l": DYN})
    variables = {"a": True, "l": [1]}
    limit = sys.getrecursionlimit()

    program = compile_unchecked(source, environment)
    compiled = outcome(lambda: program.evaluate(variables, Budget()))

    assert sys.getrecursionlimit() == limit
    with deep_recursion():
        assert compiled == outcome(lambda: reference.evaluate(source, environment, variables))


def test_the_largest_expressions_are_refused_in_words():
    source = " && ".join(["object.a.b"] * 7_000)

    with pytest.raises(CelCompileError, match=f"expression too large: .* limit: {MAX_LINES}"):
        compile_expression(source, _ADMISSION)


def _nested(levels, last):
    value = last
    for _ in range(levels):
        value = [{"part": value}]
    return value


@pytest.mark.parametrize(
    "source",
    [
        "object == params",
        "object != oldObject",
        "object in [oldObject, params]",
        "optional.of(object) == optional.of(params)",
        "sets.equivalent([object, oldObject], [oldObject, params, params])",
        "sets.intersects([object], [params])",
        "[oldObject, object].lastIndexOf(params) == 1",
        "size([object, oldObject, params].distinct()) == 2",
    ],
)
def test_values_are_compared_however_deep_they_nest(source):
    values = {name: _nested(5_000, 1) for name in ("object", "params")}

    program = compile_expression(source, _ADMISSION)

    assert program.evaluate({**values, "oldObject": _nested(5_000, 2)}, Budget()) is True


def test_values_that_nest_too_deep_are_not_formatted():
    program = compile_expression("'%s'.format([object])", _ADMISSION)

    with pytest.raises(CelError, match="a value nests more than 200 levels deep"):
        program.evaluate({"object": _nested(5_000, 1)}, Budget())


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("[1]" + ".map(x, {x: x})" * 60, id="maps-of-maps"),
        pytest.param("[1]" + f".map(x, {'[' * 100}x{']' * 100})" * 100, id="lists-of-lists"),
    ],
)
def test_types_of_any_size_are_checked(source):
    """What grows with each power of two would not come back."""
    assert compile_expression(source, _ADMISSION).result_type.name == "list"


def test_an_expression_that_was_stopped_has_spent_its_limit():
    budget = Budget()
    program = compile_expression("object.all(x, object.all(y, x + y >= 0))", _ADMISSION)

    with pytest.raises(CelCostError):
        program.evaluate({"object": list(range(2_000))}, budget)
    assert EXPRESSION_LIMIT <= budget.spent < EXPRESSION_LIMIT + 100

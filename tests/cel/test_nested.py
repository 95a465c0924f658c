"""Loops in loops have a shorter way where all is in order; only its time tells."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyd.cel import Budget, CelCostError, admission_environment, compile_expression
from policyd.cel.check.checker import check
from policyd.cel.compile.emit_nested import write_nested
from policyd.cel.compile.globals import SHORT_LIMIT
from policyd.cel.syntax.parser import parse
from tests.cel import nested, reference
from tests.cel.outcomes import outcome

_SETTINGS = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
UNIQUE = "a.list.all(x, a.list.exists_one(y, y.name == x.name))"


@given(st.integers(0, 2**32))
@_SETTINGS
def test_both_ways_give_the_same_results_places_and_costs(seed):
    choose = random.Random(seed).choice
    source, variables = nested.expression(choose), nested.objects(choose)
    ordinary, whole = nested.both_ways(source)

    found = nested.results(ordinary, variables)

    assert found == nested.results(whole, variables)
    assert found[0] == outcome(lambda: reference.evaluate(source, nested.ENVIRONMENT, variables))


def test_most_of_what_is_made_up_for_it_has_a_shorter_way():
    choose = random.Random(1).choice
    sources = [nested.expression(choose) for _ in range(300)]

    assert sum(shorter(source) is not None for source in sources) > 100


def shorter(source):
    environment = nested.ENVIRONMENT
    return write_nested(check(parse(source, macros=environment.macros), source, environment))


@pytest.mark.parametrize(
    ("name", "gives_up"),
    [
        pytest.param("main", False, id="short-text"),
        pytest.param("x" * 300, False, id="long-text"),
        pytest.param(7, False, id="integer"),
        pytest.param(0, False, id="zero"),
        pytest.param("", True, id="empty-text"),
        pytest.param(True, True, id="bool"),
        pytest.param(1.5, True, id="double"),
        pytest.param([1], True, id="list"),
        pytest.param(None, True, id="null"),
    ],
)
def test_unusual_inputs_are_left_to_the_full_function(name, gives_up):
    asked = []
    program = compile_expression(UNIQUE, nested.ENVIRONMENT)
    whole = program.run.__globals__["R_whole"]
    program.run.__globals__["R_whole"] = lambda *given: asked.append(given) or whole(*given)

    value = program.evaluate({"a": {"list": [{"name": "other"}, {"name": name}]}}, Budget())

    assert value is True
    assert bool(asked) is gives_up


def test_expensive_expressions_are_evaluated_in_full():
    program = compile_expression(UNIQUE, nested.ENVIRONMENT)
    variables = {"a": {"list": [{"name": f"n{number}"} for number in range(100)]}}
    budget = Budget()

    assert program.evaluate(variables, budget) is True
    assert budget.spent > SHORT_LIMIT
    with pytest.raises(CelCostError):
        program.evaluate(variables, Budget(SHORT_LIMIT))


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("object.a.all(x, x.b == 1)", id="one-loop"),
        pytest.param("object.a.all(x, variables.b.all(y, x == y))", id="lazy-variables"),
        pytest.param("object.a.all(x, x.b.all(y, has(y.c)))", id="presence"),
        pytest.param("object.a.all(x, x.b.map(y, y) == [])", id="lists-made"),
    ],
)
def test_other_expressions_are_compiled_in_full_only(source):
    environment = admission_environment(variables={"b": nested.DYN})

    assert write_nested(check(parse(source), source, environment)) is None


def test_words_reach_the_shorter_way_only_as_string_literals():
    source = "object.zzmark.all(zzmark, zzmark.b.exists_one(y, y.`zz/mark` == 'zzmark'))"
    names = compile_expression(source, admission_environment()).run.__code__

    assert not any("mark" in name for name in (*names.co_names, *names.co_varnames))

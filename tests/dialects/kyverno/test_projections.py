"""JMESPath on the data of GlobalContextEntries: what it selects, and that its work is charged."""

import pytest

from policyd.cel import Budget, CelError, compile_expression
from policyd.cel.errors import CelCostError
from policyd.dialects.kyverno.declared import declared_values
from policyd.dialects.kyverno.environments import kyverno_environment
from policyd.dialects.kyverno.projections import selected
from tests.dialects.kyverno.functions.test_functions import VOLATILE

PODS = [{"metadata": {"name": f"p{n}", "labels": {"a": "b"}}} for n in range(3_000)]


def search(expression, data=PODS):
    budget = Budget()
    found = selected(data, {}, "pods", "", expression, charge=budget.charge_work)
    return found, budget.work


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("length(@)", 3_000),
        ("[?metadata.name=='p7'].metadata.labels.a | [0]", "b"),
        (
            "[0].{name: metadata.name, pair: [metadata.name, `1`]}",
            {"name": "p0", "pair": ["p0", 1]},
        ),
        ("max_by([:3], &metadata.name).metadata.name", "p2"),
        ("[1000:1002].metadata.name | join(',', @)", "p1000,p1001"),
        ("[].nothing", []),
    ],
)
def test_parts_are_selected_at_little_work(expression, found):
    value, work = search(expression)

    assert value == found
    assert 0 < work < 60_000


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("[0:3]" + "|[@,@][]" * 60, id="a-list-that-doubles"),
        pytest.param("[0]" + "|[@,@]" * 60 + "|to_string(@)", id="lists-in-lists"),
        pytest.param("[0]" + "|{a: @, b: @}" * 60, id="objects-in-objects"),
        pytest.param("[0].metadata.name" + "|join('', [@,@])" * 60, id="a-text-that-doubles"),
        pytest.param("[0:9]" + "|map(&[@,@], @)[]" * 60, id="a-function-that-doubles"),
        pytest.param("[*].[@]" + "|[*].[@][]" * 200, id="many-steps"),
    ],
)
def test_an_expression_that_grows_without_end_is_stopped(expression):
    with pytest.raises(CelCostError):
        search(expression)


def run(source):
    values = declared_values(entries=[{"name": "pods", "data": PODS}])
    program = compile_expression(source, kyverno_environment(volatile=VOLATILE))
    budget = Budget()
    return program.evaluate(values, budget), budget.done


def test_what_an_expression_selects_is_charged_to_it():
    names, work = run("globalContext.Get('pods', '', '[].metadata.name').size()")
    nothing, little = run("globalContext.Get('pods').size()")

    assert (names, nothing) == (3_000, 3_000)
    assert work > little + 10_000


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("'[0:3]' + '|[@,@][]|[@,@][]|[@,@][]|[@,@][]|[@,@][]|[@,@][]'", id="long"),
        pytest.param("'[].metadata.name'", id="one-that-ends"),
    ],
)
def test_loops_select_no_more_than_an_expression_may(expression):
    looping = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(n, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(m, "

    with pytest.raises(CelError, match="cost limit exceeded"):
        run(f"{looping} [{', '.join(['1'] * 90)}].all(k, "
            f"globalContext.Get('pods', '', {expression}).size() > 0)))")  # fmt: skip


def test_an_exhausted_budget_is_no_error_that_a_policy_can_absorb():
    doubling = "|[@,@][]" * 60

    with pytest.raises(CelError, match="cost limit exceeded"):
        run(f"globalContext.Get('pods', '', '[0:3]{doubling}').size() > 0 || true")

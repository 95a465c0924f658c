"""What the API server's cost does not see is charged as work: counted here, never timed."""

from contextlib import suppress

import pytest

from policyd.cel import (
    Budget,
    CelCostError,
    CelError,
    CelTimeError,
    LazyVariables,
    admission_environment,
)
from policyd.cel.compile.program import compile_expression, compile_unchecked
from policyd.cel.cost import (
    _LOOK_WORK,
    EXPRESSION_LIMIT,
    POLICY_LIMIT,
    REQUEST_LIMIT,
    WORK_LIMIT,
    WORK_UNITS,
    RequestBudget,
    visit_list,
    weigh,
)
from policyd.cel.environments import extended_environment
from policyd.cel.lib.authorizer import Authorization, Authorizer
from policyd.cel.types import DYN
from policyd.dialects.kyverno.environments import kyverno_environment, kyverno_values
from policyd.engine.model.dialects import Volatile
from policyd.engine.model.functions import FUNCTIONS

_LETTERS = "cdlmostu"
_EXTENDED = extended_environment().extend(variables=dict.fromkeys(_LETTERS, DYN))
_KYVERNO = kyverno_environment(
    volatile=Volatile(now=lambda: 0, random_below=lambda sides: 7 % sides)
).extend(variables=dict.fromkeys(_LETTERS, DYN), functions=FUNCTIONS)
_MIB = 1 << 20


def _container(resources):
    return {"resources": {"limits": {f"nvidia.com/mig-{n}": 1 for n in range(resources)}}}


_VALUES = {
    "l": list(range(1_000)),
    "m": [{"name": f"n{i}", "value": i} for i in range(80_000)],
    "o": [{"name": f"n{i}", "value": i} for i in range(80_000)],
    "s": "a" * _MIB,
    "t": "1h" * _MIB,
    "c": {f"n{i}": i for i in range(20_000)},
    "u": {f"u{i}": i for i in range(20_000)},
    "d": {"spec": {"containers": [_container(10) for _ in range(2_000)]}},
}


def work_of(source, environment=_KYVERNO, **values):
    """Return what an expression works, be it stopped or not."""
    charged, counted = [], []

    class Noting(Budget):
        def charge_work(self, elements):
            before = self.done
            try:
                super().charge_work(elements)
            finally:
                charged.append(elements)
                counted.append(self.done - before)

    budget = Noting()
    program = compile_unchecked(source, environment)
    with suppress(CelError):
        program.evaluate({**kyverno_values(), **_VALUES, **values}, budget)
    return sum(charged) + budget.done - sum(counted)


@pytest.mark.parametrize(
    ("source", "least"),
    [
        pytest.param("optional.of(m) == optional.of(o)", WORK_LIMIT, id="equal-optionals"),
        pytest.param("optional.of(m) != optional.of(o)", WORK_LIMIT, id="unequal-optionals"),
        pytest.param("[[optional.of(m)]].indexOf([optional.of(o)])", 160_000, id="found-optionals"),
        pytest.param("[optional.of(m)] == [optional.of(o)]", WORK_LIMIT, id="optionals-in-lists"),
        pytest.param("{'a': optional.of(m)} == {'a': optional.of(o)}", WORK_LIMIT, id="in-maps"),
        pytest.param("sets.contains([], m)", 80_000, id="nothing-contains"),
        pytest.param("sets.intersects([], m)", 80_000, id="nothing-intersects"),
        pytest.param("m.isSorted()", 80_000, id="no-order"),
        pytest.param("m.lastIndexOf({})", 80_000, id="last-index"),
        pytest.param("l.transformMap(i, x, x)", 1_000, id="entries-of-a-map"),
        pytest.param("c == {'a': 0}.transformMapEntry(k, v, c)", 40_000, id="maps"),
        pytest.param("c == u", 40_000, id="maps-of-other-keys"),
        pytest.param("random('[a-z]{100}')", 1_000, id="random"),
        pytest.param(r"random('[\u0000-\uffff]')", 40_000, id="random-of-a-large-class"),
        pytest.param("random('((((a{9}){9}){9}){9}){9}')", 5_000, id="random-of-groups"),
        pytest.param("random(s)", 40_000, id="random-of-a-long-pattern"),
        pytest.param("duration(t)", _MIB, id="durations"),
        pytest.param("double(s)", _MIB // 20, id="digits"),
        pytest.param("semver('1.2.3-' + s)", _MIB, id="versions"),
        pytest.param("s.indexOf('aaaaaaaaaaaaaaaaaaab')", 40_000, id="searches"),
        pytest.param("s.replace('aaaaaaaaaaaaaaaaaaab', '')", 40_000, id="replaced-searches"),
        pytest.param("json.unmarshal('[' + s + ']')", _MIB // 8, id="json"),
        pytest.param("json.marshal(m)", WORK_LIMIT, id="written-json"),
        pytest.param("gzip.compress(l[0] == 0 ? 'a' : '')", 60, id="a-compressor"),
        pytest.param("x509.decode(s)", 2_000, id="certificates"),
        pytest.param("resource.ToGVR(s, s)", 10_000, id="names-of-resources"),
        pytest.param("resource.Post('v1', 'a', {'a': m})", 80_000, id="questions"),
        pytest.param("math.greatest(l)", 500, id="greatest"),
        pytest.param("url('https://a/' + s)", _MIB // 20, id="urls"),
        pytest.param("d.requests('cpu')", 100_000, id="what-many-containers-request"),
        pytest.param("d.gpus()", 100_000, id="gpus-of-many-containers"),
        pytest.param("[d].all(p, p.gpus() > 0)", 100_000, id="gpus-counted-before"),
    ],
)
def test_work_is_charged_where_time_is_spent(source, least):
    assert work_of(source) >= least


def test_a_value_is_looked_at_only_as_far_as_it_may_be():
    looked = []

    class Items(list):
        def __iter__(self):
            for item in super().__iter__():
                looked.append(item)
                yield item

    budget = Budget()
    budget.work = WORK_LIMIT - 10
    weight = budget.weigh([Items(range(5)), *([Items(range(20))] * 100)])

    assert weight.elements > 10
    assert not weight.certain
    assert len(looked) < 100


def test_work_is_the_same_each_time():
    expressions = ("d.gpus() > 0", "optional.of(m) == optional.of(o)", "s.indexOf('aab') > 0")

    assert [work_of(e) for e in expressions] == [work_of(e) for e in expressions]


def _failing(count, missing):
    known = [f"o == {n}" for n in range(count)]
    return " || ".join((*known, missing, "true"))


def test_an_absorbed_error_costs_more_in_a_long_expression():
    short, long = (
        work_of(f"l.all(x, {_failing(count, 'x.y == 1')})", _EXTENDED, o=-1, l=[0])
        for count in (1, 1_000)
    )

    assert short < 100
    assert long > 1_000


def test_errors_that_are_absorbed_one_after_the_other_end_at_the_limit():
    source = " || ".join(f"o.x{n} == 1" for n in range(3_000))

    with pytest.raises(CelCostError):
        compile_expression(source, _EXTENDED).evaluate({"o": {}}, Budget())


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("m[0][s] == 1", id="a-key"),
        pytest.param("{s: 1}[s + 'b'] == 1", id="a-key-of-a-literal"),
        pytest.param("url('https://a:' + s) == url('/')", id="a-port"),
        pytest.param("semver(s).major() == 1", id="a-version"),
    ],
)
def test_errors_do_not_repeat_what_is_long(source):
    program = compile_unchecked(source, _EXTENDED)

    with pytest.raises(CelError) as caught:
        program.evaluate({**_VALUES, "m": [{}]}, Budget())
    assert len(str(caught.value)) < 5_000


def test_variables_work_on_the_account_of_their_policy():
    heavy = compile_unchecked("m == o || true", _EXTENDED)
    budget = Budget()
    variables = LazyVariables({f"v{n}": heavy for n in range(30)}, _VALUES, budget)
    asked = [compile_unchecked(f"variables.v{n}", _READING) for n in range(30)]

    for program in asked:
        with pytest.raises(CelCostError):
            program.evaluate({"variables": variables}, budget)
    limit = POLICY_LIMIT * WORK_LIMIT // EXPRESSION_LIMIT
    assert limit <= budget.done < 2 * limit


_READING = extended_environment().extend(variables={"variables": DYN})


# --- requests


def spent_by(policies, source="m == o"):
    """Let policies of a request take what they can get; return what each took, in units."""
    program = compile_unchecked(source, _EXTENDED)
    allowance = RequestBudget(policies)
    taken = []
    for number in range(policies):
        budget = Budget(POLICY_LIMIT, allowance, f"p{number}")
        for _ in range(40):
            with suppress(CelCostError):
                program.evaluate(_VALUES, budget)
        taken.append(budget.spent + WORK_UNITS * budget.done)
    return taken


def test_policies_behind_a_greedy_one_keep_their_share():
    taken = spent_by(5)

    share = REQUEST_LIMIT // 2 // 5
    assert taken[0] > 2 * share
    assert all(each >= share * 9 // 10 for each in taken)


def test_all_policies_together_take_no_more_than_there_is():
    assert sum(spent_by(30)) < REQUEST_LIMIT * 11 // 10


def test_budgets_of_one_policy_share_what_it_has():
    program = compile_unchecked("m == o", _EXTENDED)
    allowance = RequestBudget(10)
    budgets = [Budget(POLICY_LIMIT, allowance, "p") for _ in range(60)]

    for budget in budgets:
        budget.renew()
        with suppress(CelCostError):
            program.evaluate(_VALUES, budget)

    taken = sum(budget.spent + WORK_UNITS * budget.done for budget in budgets)
    assert taken < REQUEST_LIMIT // 2 + REQUEST_LIMIT // 10


def test_a_policy_alone_may_cost_what_the_api_server_lets_it():
    budget = Budget(POLICY_LIMIT, RequestBudget(1), "p")
    program = compile_unchecked("l.all(a, l.all(b, a + b >= 0)) || true", _EXTENDED)

    for _ in range(9):
        with pytest.raises(CelCostError):
            program.evaluate(_VALUES, budget)
    assert budget.remaining > 0


def test_the_cost_of_the_authorizer_is_not_charged_to_the_request():
    allowance = RequestBudget(50)
    program = compile_expression(
        "authorizer.path('/a').check('get').allowed()", admission_environment()
    )
    values = {"authorizer": Authorizer(lambda _attributes: Authorization(allowed=True))}

    for number in range(50):
        budget = Budget(POLICY_LIMIT, allowance, f"p{number}")
        for _ in range(25):
            assert program.evaluate(values, budget) is True
    assert not allowance.strained


def test_time_is_asked_after_what_takes_long_and_not_after_what_does_not():
    asked = []
    budget = Budget(POLICY_LIMIT, RequestBudget(1, lambda: asked.append(1) or False), "p")
    light = compile_unchecked("l[0] == 0", _EXTENDED)
    heavy = compile_unchecked("l.all(x, x >= 0)", _EXTENDED)

    for _ in range(100):
        light.evaluate(_VALUES, budget)
    assert not asked
    for _ in range(3):
        heavy.evaluate(_VALUES, budget)
    assert len(asked) >= 3


def test_out_of_time_ends_what_nothing_absorbs():
    budget = Budget(POLICY_LIMIT, RequestBudget(1, lambda: True), "p")
    heavy = compile_unchecked("l.all(x, l.all(y, x + y >= 0))", _EXTENDED)
    variables = LazyVariables({"v": heavy}, {"l": list(range(100))}, budget)
    program = compile_unchecked("variables.v || true", _READING)

    with pytest.raises(CelTimeError):
        program.evaluate({"variables": variables}, budget)


@pytest.mark.parametrize("source", ["double(text)", "quantity(text)", "int(text)", "uint(text)"])
def test_what_is_no_number_is_reported_in_one_look(source):
    """A million digits: one look at them for each would take hours."""
    environment = _EXTENDED.extend(variables={"text": DYN})

    with pytest.raises(CelError):
        compile_unchecked(source, environment).evaluate({"text": "1" * _MIB + "!"}, Budget())


@pytest.mark.parametrize("values", [[], [1.5], [1, 2.5, None], [True, 0.0, 1e300]])
def test_a_few_scalars_weigh_what_a_walk_through_them_finds(values):
    few, walked = Budget(), weigh(values)

    found = visit_list(values, None, few)

    assert (found, few.work) == (walked.cost, _LOOK_WORK + walked.elements)

"""Static estimates are the API server's, and hold whatever an expression is given."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from policyd.cel import Budget, CelCompileError, admission_environment, compile_expression
from policyd.cel.cost import EXPRESSION_LIMIT
from policyd.cel.environments import LIBRARIES, extended_environment
from policyd.cel.estimate.estimates import COUNTERPARTS
from policyd.cel.estimate.estimator import estimate_cost
from policyd.cel.estimate.spans import ANY, Span, exactly
from policyd.dialects.kyverno.environments import kyverno_environment
from tests.cel.expressions import EXPRESSIONS, TYPED

ENVIRONMENT = replace(admission_environment(mutation=True), free_constants=False)
WORD = "'abcdefghijkl'"  # twelve characters
WORDS = f"[{WORD}, {WORD}, {WORD}]"
KNOWN = {
    ("object", "name"): Span(0, 63),
    ("object", "list"): Span(1, 3),
    ("object", "list", "@items"): Span(0, 20),
}


def sizes(path, kind):
    if path in KNOWN:
        return KNOWN[path]
    return Span(0, 12) if kind.name in ("string", "bytes") else None


def estimated(source):
    span = estimate_cost(source, ENVIRONMENT, sizes=sizes)
    return span.least, span.most


@pytest.mark.parametrize(
    ("source", "least", "most", "spent"),
    [
        pytest.param("1 + 2 * 3", 2, 2, 2, id="arithmetic"),
        pytest.param(f"{WORD} + {WORD}", 3, 3, 3, id="joined-strings"),
        pytest.param(f"{WORD} == {WORD}", 1, 2, 2, id="equal-strings"),
        pytest.param(f"{WORD} < 'b'", 1, 1, 1, id="compared-to-the-shorter"),
        pytest.param("1 == 2 || 3 == 4", 1, 2, 2, id="logic-may-stop-early"),
        pytest.param(f"true ? {WORDS}.size() : 1", 0, 11, 11, id="one-branch"),
        pytest.param("[1, 2, 3].all(x, x > 0)", 20, 26, 26, id="all"),
        pytest.param("[1, 2].exists_one(x, x > 1)", 18, 20, 18, id="exactly-one"),
        pytest.param("[1, 2].map(x, x + 1).size()", 50, 50, 50, id="map"),
        pytest.param("[1, 2].filter(x, x > 1)", 27, 51, 38, id="filter"),
        pytest.param("{'a': 1}.all(k, v, v > 0)", 34, 36, 36, id="two-variables"),
        pytest.param("2 in [1, 2, 3]", 13, 13, 13, id="membership-of-a-list"),
        pytest.param("'a' in {'a': 1}", 31, 31, 31, id="membership-of-a-map"),
        pytest.param(f"{WORDS}.max()", 13, 19, 13, id="elements-that-are-strings"),
        pytest.param(f"{WORDS}.join(',')", 11, 14, 18, id="join-makes-more-than-estimated"),
        pytest.param(f"{WORD}.indexOf('c')", 2, 2, 1, id="place-in-a-string"),
        pytest.param(f"{WORD}.startsWith('abc')", 1, 1, 2, id="prefix-estimated-by-the-prefix"),
        pytest.param(f"{WORD}.contains('b')", 2, 2, 2, id="contains"),
        pytest.param(f"{WORD}.matches('^a.*')", 2, 2, 2, id="pattern"),
        pytest.param(f"matches({WORD}, '^a.*')", 1, 1, 1, id="pattern-by-the-function"),
        pytest.param(f"{WORD}.replace('a', 'b')", 3, 3, 3, id="replace"),
        pytest.param(f"bytes({WORD}).size()", 3, 3, 3, id="to-bytes"),
        pytest.param("[3, 1, 2].sort()", 39, 39, 39, id="sort"),
        pytest.param("['b', 'a'].sort()", 30, 30, 29, id="sort-of-strings"),
        pytest.param("[1, 2].distinct()", 29, 29, 29, id="distinct"),
        pytest.param("[1, 2, 3].slice(0, 2)", 23, 23, 23, id="slice"),
        pytest.param("lists.range(4)", 15, 15, 15, id="range"),
        pytest.param("[[1], [2]].flatten()", 43, 43, 43, id="flatten"),
        pytest.param("[1, 2].reverse()", 23, 23, 23, id="reverse"),
        pytest.param("semver('1.2.3').major()", 2, 2, 2, id="semver"),
        pytest.param("cidr('fd00::/8').containsIP('fd00::1')", 3, 6, 3, id="network"),
        pytest.param("format.dns1123Label().validate('x')", 33, 33, 9, id="format"),
        pytest.param("Object{a: 1}", 40, 40, 40, id="struct"),
        pytest.param("optional.of(1).optMap(x, x + 1)", 3, 17, 17, id="operand-costs-twice"),
        pytest.param("optional.of([1]).optFlatMap(x, x[?0])", 13, 36, 36, id="flat-map"),
        pytest.param("optional.none().optMap(x, x)", 3, 16, 3, id="map-of-nothing"),
        pytest.param("optional.of(1).orValue(2)", 2, 2, 1, id="alternative-is-free"),
        pytest.param("[2, 1].sortBy(x, -x)", 80, 80, 80, id="sort-by"),
        pytest.param("dyn(1) == 1", 2, 2, 2, id="dyn"),
    ],
)
def test_constants_cost_what_is_estimated(source, least, most, spent):
    budget = Budget()
    compile_expression(source, ENVIRONMENT).evaluate({}, budget)

    assert (*estimated(source), budget.spent) == (least, most, spent)


@pytest.mark.parametrize(
    ("source", "least", "most"),
    [
        pytest.param("has(object.name)", 1, 1, id="presence-is-free"),
        pytest.param("object.name == 'a'", 2, 2, id="selection-from-anything"),
        pytest.param("request.name == ''", 2, 2, id="selection-from-a-struct"),
        pytest.param("object.name + 'a' == object.name", 4, 16, id="known-size"),
        pytest.param("object.list.all(x, x == 1)", 5, 17, id="known-length"),
        pytest.param("object.list[0] + 'abc' == ''", 3, 5, id="known-element"),
        pytest.param("optional.of(1).optMap(x, x + 1)", 3, 17, id="map-of-an-optional"),
        pytest.param("authorizer.path('/').check('get').allowed()", 350_003, 350_003, id="check"),
    ],
)
def test_inputs_are_as_large_as_is_known(source, least, most):
    assert estimated(source) == (least, most)


def test_nothing_known_means_no_upper_limit():
    span = estimate_cost("object.list.all(x, x.name.contains('a'))", ENVIRONMENT)

    assert not span.is_bounded
    assert str(span) == f"at least {span.least}"


def test_a_span_says_what_it_spans():
    assert str(exactly(350_003)) == "350,003"
    assert str(Span(1, 1_000)) == "1 to 1,000"
    assert (ANY + ANY) * ANY == ANY


def test_an_expression_over_its_limit_whatever_it_is_given_is_found():
    check = "authorizer.path('/{}').check('get').allowed()"
    twice = " && ".join((check.format("a"), check.format("b")))
    thrice = f"[{', '.join(check.format(path) for path in 'abc')}].size() == 3"

    assert estimate_cost(twice, ENVIRONMENT).least <= EXPRESSION_LIMIT
    assert estimate_cost(thrice, ENVIRONMENT).least == 1_050_021


@pytest.mark.parametrize(
    "overload",
    [
        *(overload for library in LIBRARIES for overload in library),
        *(o for overloads in extended_environment().functions.values() for o in overloads),
        *(o for overloads in kyverno_environment().functions.values() for o in overloads),
    ],
    ids=lambda overload: overload.name,
)
def test_every_function_says_what_it_may_cost(overload):
    assert isinstance(overload.cost, int) or overload.estimate or overload.cost in COUNTERPARTS


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS)
def test_every_compilable_expression_can_be_estimated(source):
    try:
        span = estimate_cost(source, TYPED)
    except CelCompileError:
        return
    assert 0 <= span.least <= span.most

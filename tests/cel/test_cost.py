"""Evaluation costs what it costs in the API server, and no attack gets more."""

import resource

import pytest

from policyd.cel import Budget, CelCostError, CelError, admission_environment
from policyd.cel.compile.program import compile_expression, compile_unchecked
from policyd.cel.cost import EXPRESSION_LIMIT, WORK_LIMIT, deep_size
from policyd.cel.environments import extended_environment
from policyd.cel.types import DYN

_MEGABYTES = 120


@pytest.mark.parametrize(
    ("source", "cost"),
    [
        pytest.param("1 + 2", 1, id="constants"),
        pytest.param("object.a.b", 3, id="selections"),
        pytest.param("has(object.a.b)", 2, id="presence-is-free"),
        pytest.param("object.a.b == 1", 4, id="comparison"),
        pytest.param("object.text == 'abcdefghijk'", 4, id="long-text"),
        pytest.param("object.empty == 'abc'", 2, id="empty-text"),
        pytest.param("object.a.b == object.empty", 3 + 2, id="nothing-to-compare"),
        pytest.param("object.text == object.text", 2 + 2 + 2, id="texts-compared"),
        pytest.param("object.list != object.a", 2 + 2 + 1, id="containers-compared"),
        pytest.param("object.a.b > 0 ? 1 : object.a.b", 4, id="one-branch"),
        pytest.param("object.a.b > 0 || object.a.b < 0", 4, id="decided-early"),
        pytest.param("object.list.all(x, x > 0)", 2 + 3 * 5 + 1, id="all"),
        pytest.param("object.list.exists(x, x > 1)", 2 + 2 * 6 + 3 + 1, id="exists"),
        pytest.param("object.list.map(x, x)", 2 + 1 + 3 * 13, id="map"),
        pytest.param("object.text.contains('ab')", 2 + 2, id="contains"),
        pytest.param("object.text.matches('^[a-z]+$')", 2 + 2 * 2, id="matches"),
        pytest.param("1 in object.list", 2 + 3, id="in"),
        pytest.param("[object.a.b, object.a.b]", 10 + 3 + 3, id="list"),
        pytest.param("{'a': object.a.b}", 30 + 3, id="map-literal"),
        pytest.param("Object{}", 40, id="struct"),
    ],
)
def test_cost_is_the_api_servers(source, cost):
    budget = Budget()
    object_ = {"a": {"b": 1}, "text": "abcdefghijkl", "empty": "", "list": [1, 2, 3]}

    program = compile_expression(source, admission_environment(mutation=True))
    program.evaluate({"object": object_}, budget)

    assert budget.spent == cost


def test_a_search_in_a_list_costs_the_whole_list_each_time():
    source = "object.list.all(x, object.list.indexOf(x) >= 0)"
    values = [{"name": "a" * 25, "number": 1}, {"name": "b" * 9, "parts": [None, 2.5, True]}]
    budget = Budget()

    compile_expression(source, admission_environment()).evaluate(
        {"object": {"list": values}}, budget
    )

    walk = 2 + 1 + 0 + 3
    assert budget.spent == 2 + 1 + 2 * (2 + 1 + 2 + 1 + walk + 1)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("[x, {'a': 1}].indexOf({'a': 1})", 1, id="a-map"),
        pytest.param("[x, y, z].indexOf(y)", 0, id="an-equal-one-before"),
        pytest.param("[[double('NaN')]].map(n, [[n].indexOf(n), 1])[0][0]", -1, id="no-number"),
        pytest.param("[[true], [1]].map(n, n)[1] in [[true]] ? 1 : 0", 0, id="bool-is-no-number"),
        pytest.param("[dyn([1]), [1.0]].indexOf([1u])", 0, id="numbers-across-types"),
        pytest.param("[[optional.of(1)]].indexOf([optional.of(1)])", 0, id="optionals"),
        pytest.param("['a', 'b'].indexOf('b')", 1, id="a-text"),
        pytest.param("[x, y, z].lastIndexOf(x)", 1, id="the-last-of-equals"),
    ],
)
def test_values_are_found_in_lists(source, expected):
    variables = {"x": {"n": [1, None]}, "y": {"n": [1, None]}, "z": {"n": [1, False]}}
    environment = extended_environment().extend(variables=dict.fromkeys("xyz", DYN))

    assert compile_unchecked(source, environment).evaluate(variables, Budget()) == expected


def test_expressions_of_a_policy_share_a_budget():
    program = compile_expression("object.a.b == 1", admission_environment(mutation=True))
    budget = Budget(7)
    program.evaluate({"object": {"a": {"b": 1}}}, budget)

    with pytest.raises(CelCostError, match="actual cost limit exceeded"):
        program.evaluate({"object": {"a": {"b": 1}}}, budget)


def test_an_expression_has_a_limit_of_its_own():
    source = "object.all(a, object.all(b, object.all(c, a + b + c >= 0)))"
    program = compile_expression(source, admission_environment(mutation=True))
    budget = Budget()

    with pytest.raises(CelCostError):
        program.evaluate({"object": list(range(1_000))}, budget)
    assert EXPRESSION_LIMIT < budget.spent < EXPRESSION_LIMIT + 1_000


def test_sizes_are_counted_as_far_as_the_limit():
    nested = [1, 2, 3]
    for _ in range(30):
        nested = [nested] * 8

    assert deep_size([1, 2, 3]) == 5
    assert deep_size(["x" * 250, "y"]) == 6
    assert deep_size({"a": [1, 2], "b": {"c": None}}) == 9
    assert deep_size([{"a": "b"}] * 1_000) == 2 + 3 * 1_000
    assert WORK_LIMIT < deep_size(nested) < WORK_LIMIT + 10_000


ATTACKS = {
    "loops-in-loops": "l.all(a, l.all(b, l.all(c, true)))",
    "maps-in-maps": "l.map(a, l.map(b, l.map(c, c)))",
    "four-loops": "l.exists(a, l.exists(b, l.exists(c, l.exists(d, false))))",
    "bound-loops": "cel.bind(a, l, a.all(x, a.all(y, a.all(z, true))))",
    "doubling-strings": "[s]" + ".map(x, x + x)" * 40,
    "doubling-lists": "[l]" + ".map(x, x + x)" * 40,
    "replacing": "[s]" + ".map(x, x.replace('a', 'aaaaaaaaaa'))" * 8,
    "replacing-by-wide-characters": "cel.bind(t, s.replace('a', '\U0001f600'), "
    "l.map(x, s.replace('a', t)))",
    "replacing-nothing": "l.map(x, s.replace('', s))",
    "splitting-and-joining": "[s]" + ".map(x, x.split('').join('aaaaaaaaaaaaa'))" * 6,
    "joining": "l.map(x, s).join(s)",
    "deep-equality": "l.all(a, l.all(b, o[0] == o[1]))",
    "equality-of-shared-parts": "[l]" + ".map(x, [x,x,x,x,x,x,x,x])" * 9 + ".all(x, x == [x][0])",
    "membership-of-shared-parts": "[l]" + ".map(x, [x,x,x,x,x,x,x,x])" * 9 + ".all(x, x in [x])",
    "precision": "'%.999999999f'.format([1.0])",
    "format-of-shared-parts": "[l]" + ".map(x, [x,x,x,x,x,x,x])" * 9 + ".map(x, '%s'.format([x]))",
    "flatten-of-shared-parts": "[l]" + ".map(x, [x,x,x,x,x,x,x])" * 9 + "[0].flatten(20)",
    "backtracking": "l.all(x, !s.matches('(a|aa)+$b'))",
    "many-matches": "l.all(x, s.findAll('a').size() > 0)",
    "range": "lists.range(100000000)",
    "distinct": "(l + l + l + l + l).map(x, string(x)).distinct()",
    "sets": "sets.contains(l.map(x, l), l.map(x, l))",
    "sorting": "l.map(x, l.sort()).size()",
    "sorting-by": "l.map(x, l.sortBy(y, -y)).size()",
    "maximum-of-texts": "cel.bind(t, l.map(x, s + s), l.all(x, t.max() == s))",
    "absorbed-errors": "l.exists(a, l.exists(b, l[5].x == 1))",
    "merging": "l.map(q, l.transformMapEntry(i, v, {string(i): v}))",
    "quoting": "l.map(x, strings.quote(s))",
    "encoding": "l.map(x, base64.encode(bytes(s)))",
    "containing": "l.all(x, !s.contains(s + 'b'))",
    "computed-patterns": "l.all(x, !s.matches('\\\\pL{20}' + string(x)))",
    "patterns-too-large": "l.all(x, s.matches('(\\\\pL{10}|.){10}' + string(x)) || true)",
    "unknown-zones": "l.all(x, l.all(y, timestamp(0).getHours(string(x * y)) >= 0 || true))",
    "known-zone": "l.all(x, l.all(y, timestamp(0).getHours('Europe/Berlin') >= 0))",
    "queries": "cel.bind(t, url('/?' + s.replace('a', 'a=b&')), l.all(x, t.getQuery() != {}))",
    "escaped-paths": "l.all(x, url('/' + s.replace('a', '%41')).getEscapedPath() != '')",
    "long-numbers": "l.all(x, l.all(y, quantity('1e900').add(quantity('1e900')).sign() == 1))",
    "networks": "l.all(x, l.all(y, cidr('ff::/16').containsIP('ff::1')))",
    "no-addresses": "l.all(x, l.all(y, !isIP(string(x * y))))",
    "versions": "cel.bind(v, semver('1.2.3-a' + s.replace('a', '.a')), l.all(x, !v.isLessThan(v)))",
    "splitting-into-characters": "cel.bind(t, s.replace('a', '\U0001f600'), l.map(x, t.split('')))",
    "joining-numbers": "l.all(x, l.all(y, l.join() == '' || true))",
    "letters": "cel.bind(t, s.replace('a', '\u00e9A'), l.all(x, t.lowerAscii() != t))",
    "arithmetic": "l.all(a, l.all(b, l.all(c, (a * b + c) % 7 >= 0)))",
    "mixed-comparisons": "l.all(a, l.all(b, l.all(c, a < 1e9 && double(b) >= -1 && c != 'x')))",
    "numbers-as-text": "l.all(a, l.all(b, string(a * 1.1) != string(b)))",
    "presence": "l.all(a, l.all(b, l.all(c, has(o[0].k1.x))))",
    "optionals": "l.all(a, l.all(b, o[?0].?k1.?x.orValue([]) != [1]))",
    "long-optional-chains": f"l.all(a, l.all(b, o[?0]{'.?k1.?x' * 20}.hasValue() || true))",
    "steps-of-a-pattern": f"s.matches('{'a?' * 1_250}c')",
    "steps-of-a-computed-pattern": "cel.bind(p, 'a.{900}' + string(l[0]), l.all(x, !s.matches(p)))",
    "maps-made": "l.map(a, l.map(b, {string(a): b, 'x': a}))",
    "finding-in-shared-parts": "[l]" + ".map(x, [x,x,x,x,x,x,x,x])" * 12 + ".indexOf([l])",
    "finding-texts-in-shared-parts": "[[s]]" + ".map(x, [x,x])" * 40 + ".indexOf([s])",
    "finding-in-many-lists": "l.all(x, l.map(y, [s, y]).indexOf([s, x]) >= 0)",
    "free-logic": f"l.all(x, l.all(y, {' && '.join(['true'] * 1_000)}))",
    "free-membership": "l.all(x, l.all(y, !(string(x) in ['" + "','".join("a" * 1_000) + "'])))",
    "durations": "l.all(x, l.all(y, duration(string(x * y) + 's') >= duration('0s')))",
    "quantities": "l.all(x, l.all(y, isQuantity(string(x * y))))",
    "urls": "l.all(x, l.all(y, isURL('https://a/' + string(x * y))))",
    "finding-patterns": "l.all(x, l.all(y, string(x * y).find('[0-9]') != ''))",
    "deep-values": "[l]" + ".map(x, [[[[x]]]])" * 60 + ".all(x, l.all(y, x == [x][0]))",
}


@pytest.mark.parametrize("source", ATTACKS.values(), ids=ATTACKS.keys())
def test_attacks_end_within_the_limits(source):
    environment = extended_environment().extend(variables=dict.fromkeys("los", DYN))
    big = [{f"k{i}": {"x": [1, 2, 3, "y" * 50]} for i in range(300)} for _ in range(2)]
    program = compile_expression(source, environment)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(CelError) as caught:
        program.evaluate({"l": list(range(1_000)), "o": big, "s": "a" * 10_000}, Budget())

    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown // 1_024 < _MEGABYTES
    assert isinstance(caught.value, CelCostError) or "precision" in caught.value.message


def test_lists_in_an_object_are_compared_within_the_limits():
    made = "Object{spec: Object.spec{a: ['a']" + ".map(x, [x,x])" * 40 + "}}"
    environment = admission_environment(mutation=True)

    with pytest.raises(CelCostError):
        compile_expression(f"{made} == {made}", environment).evaluate({}, Budget())
    same = compile_expression("Object{a: [['a']]}.a == [['a']]", environment)
    assert same.evaluate({}, Budget()) is True


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("object.a.b", id="selections"),
        pytest.param("object.text == 'abcdefghijk'", id="literal"),
        pytest.param("object.text == object.text", id="texts-compared"),
        pytest.param("object.list.all(x, x > 0)", id="loop"),
        pytest.param("object.missing", id="error"),
    ],
)
def test_no_expression_is_evaluated_over_the_limit(source):
    object_ = {"a": {"b": 1}, "text": "abcdefghijkl", "list": [1, 2, 3]}
    program = compile_expression(source, admission_environment())
    budget = Budget(limit=1)

    with pytest.raises(CelCostError, match="actual cost limit exceeded"):
        program.evaluate({"object": object_}, budget)
    spent = budget.spent
    with pytest.raises(CelCostError, match="actual cost limit exceeded"):
        program.evaluate({"object": object_}, budget)

    assert budget.remaining < 0
    assert budget.spent == 2 * spent

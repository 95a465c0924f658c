"""Every part of an expression has a value, by the same compiler as the whole."""

import pytest
from hypothesis import given, settings

from policyd.cel import CelCompileError, CelError, compile_expression
from policyd.cel.cost import Budget
from policyd.cel.environments import environment_named, extended_environment
from policyd.cel.explain import MOST_ROUNDS, MOST_STEPS, explain
from policyd.cel.syntax.parser import parse
from policyd.cel.syntax.unparse import unparse
from policyd.cel.values_as_json import as_json
from tests.cel.expressions import EXPRESSIONS, TYPED, VARIABLES

OBJECT = {
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {"replicas": 3, "containers": [{"image": "x:1"}, {"image": "y"}]},
}


def parts(source, **variables):
    """The parts of an expression by depth and text, with their values, errors, or a dash."""
    found = explain(source, environment_named("vap"), {"object": OBJECT, **variables})
    return [(step.depth, step.text, shown(step.outcome)) for step in found.steps]


def shown(outcome):
    if outcome is None:
        return "-"
    return outcome.value if outcome.error is None else f"error: {outcome.error.message}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            "object.spec.replicas <= 5",
            [(0, "object.spec.replicas <= 5", True), (1, "object.spec.replicas", 3)],
            id="operands",
        ),
        pytest.param(
            "has(object.spec.paused) && object.spec.paused",
            [
                (0, "has(object.spec.paused) && object.spec.paused", False),
                (1, "has(object.spec.paused)", False),
                (1, "object.spec.paused", "-"),
            ],
            id="not-evaluated",
        ),
        pytest.param(
            "object.a == 1 || object.spec.replicas == 3",
            [
                (0, "object.a == 1 || object.spec.replicas == 3", True),
                (1, "object.a == 1", "error: no such key: a"),
                (2, "object.a", "error: no such key: a"),
                (1, "object.spec.replicas == 3", True),
                (2, "object.spec.replicas", 3),
            ],
            id="absorbed-error",
        ),
        pytest.param(
            "object.spec.containers.exists(c, c.image == 'x:1')",
            [
                (0, "object.spec.containers.exists(c, c.image == 'x:1')", True),
                (1, "object.spec.containers", OBJECT["spec"]["containers"]),
                (1, "c", {"image": "x:1"}),
                (2, "c.image == 'x:1'", True),
                (3, "c.image", "x:1"),
            ],
            id="loop-that-ends-early",
        ),
        pytest.param(
            "object.metadata.labels.map(k, object.metadata.labels[k])",
            [
                (0, "object.metadata.labels.map(k, object.metadata.labels[k])", ["web"]),
                (1, "object.metadata.labels", {"app": "web"}),
                (1, "k", "app"),
                (2, "object.metadata.labels[k]", "web"),
                (3, "object.metadata.labels", {"app": "web"}),
            ],
            id="keys",
        ),
        pytest.param(
            "object.?a.orValue(1) > 2 ? 'big' : object.metadata.name",
            [
                (0, "object.?a.orValue(1) > 2 ? 'big' : object.metadata.name", "web"),
                (1, "object.?a.orValue(1) > 2", False),
                (2, "object.?a.orValue(1)", 1),
                (3, "object.?a", None),
                (1, "object.metadata.name", "web"),
            ],
            id="branches",
        ),
        pytest.param(
            "object.?spec.optMap(s, s.replicas).value()",
            [
                (0, "object.?spec.optMap(s, s.replicas).value()", 3),
                (1, "object.?spec.optMap(s, s.replicas)", 3),
                (2, "object.?spec", OBJECT["spec"]),
                (2, "s", OBJECT["spec"]),
                (3, "s.replicas", 3),
            ],
            id="optional",
        ),
        pytest.param(
            "object.?a.optMap(s, s.b).hasValue()",
            [
                (0, "object.?a.optMap(s, s.b).hasValue()", False),
                (1, "object.?a.optMap(s, s.b)", None),
                (2, "object.?a", None),
                (2, "s.b", "-"),
            ],
            id="optional-without-value",
        ),
        pytest.param(
            "[3, 1].sortBy(n, -n)",
            [
                (0, "[3, 1].sortBy(n, -n)", [3, 1]),
                (1, "n", 3),
                (2, "-n", -3),
                (1, "n", 1),
                (2, "-n", -1),
            ],
            id="sorting",
        ),
    ],
)
def test_parts_are_reported_in_the_order_of_the_text(source, expected):
    assert [(d, t, as_json(v)) for d, t, v in parts(source)] == expected


def test_bound_names_have_their_values():
    found = explain("cel.bind(x, 2, x + 1)", extended_environment(), {})

    assert [(step.text, step.outcome.value) for step in found.steps] == [
        ("cel.bind(x, 2, x + 1)", 3),
        ("x", 2),
        ("x + 1", 3),
    ]


def test_an_inner_loop_may_use_the_names_of_the_outer():
    found = parts("[1, 2].map(x, [x].map(x, x + 1))")

    assert [value for _, text, value in found if text == "x + 1"] == [2, 3]


def test_a_step_says_where_it_begins():
    found = explain(
        "true &&\n  object.spec.replicas == 3", environment_named("vap"), {"object": OBJECT}
    )

    assert [(step.text, step.line, step.column) for step in found.steps][1:] == [
        ("object.spec.replicas == 3", 2, 3),
        ("object.spec.replicas", 2, 3),
    ]


def test_the_whole_has_its_type_and_cost():
    found = explain("object.spec.replicas <= 5", environment_named("vap"), {"object": OBJECT})

    assert (found.outcome.value, str(found.result_type), found.spent) == (True, "bool", 4)
    assert str(found.estimate) == "2"


def test_of_long_loops_some_rounds_are_shown():
    found = parts("lists.range(1000).all(n, n >= 0)")

    assert sum(text == "n" for _, text, _ in found) == MOST_ROUNDS
    assert len(parts(" + ".join(["[1].map(n, n * 2)[0]"] * 200))) == MOST_STEPS


@settings(max_examples=100, deadline=None)
@given(EXPRESSIONS)
def test_the_whole_is_what_it_is_without_explanation(source):
    try:
        program = compile_expression(source, TYPED)
    except CelCompileError:
        return
    explained = explain(source, TYPED, VARIABLES).outcome
    try:
        expected = as_json(program.evaluate(VARIABLES, Budget()))
    except CelError as error:
        expected = error.message

    assert expected == (explained.error.message if explained.error else as_json(explained.value))


@pytest.mark.parametrize(
    "source",
    [
        "-(1 + 2) * 3 - 4 - (5 - 6)",
        "a && (b || c) && !d",
        "(a ? b : c) ? d : e ? f : g",
        "x.?y[?'z'].orValue(null) in [1, ?o, b'\\xff', 2u, 0.5, 'it\\'s\\n']",
        "{'a': 1, ?k: v}.transformMap(k, v, v > 1, v)",
        "Object.spec{a: 1, ?b: c}",
        ".absolute.name.`odd-name`",
        "cel.bind(x, [1].filter(e, e > 0), x.sortBy(e, -e))",
        "o.optMap(v, v).optFlatMap(v, optional.of(v))",
        "has(a.b) == (1 == 2) && size('a') < (-1)",
        "math.abs(-1) + {}.size()",
        "-(-(0.5)) - -(-x) == 1.0 && !(!y)",
    ],
)
def test_text_is_written_as_it_may_be_read_again(source):
    written = unparse(parse(source))

    assert unparse(parse(written)) == written
    assert shape(parse(written)) == shape(parse(source))


@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS)
def test_any_written_form_means_the_same(source):
    assert shape(parse(unparse(parse(source)))) == shape(parse(source))


def shape(node):
    """A tree without its positions."""
    if isinstance(node, list | tuple):
        return [shape(part) for part in node]
    if not hasattr(node, "position"):
        return (type(node).__name__, node)
    slots = [s for kind in type(node).__mro__ for s in getattr(kind, "__slots__", ())]
    return (type(node).__name__, [shape(getattr(node, s)) for s in slots if s != "position"])

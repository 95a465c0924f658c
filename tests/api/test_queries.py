"""Label queries are read as the API server reads them, with its words for what is wrong."""

import pytest

from policyd.api.queries import SelectorError, parse_query

LABELS = [{"a": "x", "n": "2"}, {"a": "y", "n": "10"}, {"b": "x"}, {"a": "", "n": "many"}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [0, 1, 2, 3], id="nothing-asked"),
        pytest.param("a", [0, 1, 3], id="there"),
        pytest.param("!a", [2], id="not-there"),
        pytest.param("a=x", [0], id="equal"),
        pytest.param(" a == x , n ", [0], id="blanks"),
        pytest.param("a!=x", [1, 2, 3], id="not-equal"),
        pytest.param("a=", [3], id="equal-to-nothing"),
        pytest.param("a in (x,y)", [0, 1], id="one-of"),
        pytest.param("a in (x,)", [0, 3], id="one-of-or-nothing"),
        pytest.param("a in ()", [3], id="one-of-none"),
        pytest.param("a notin (x, y)", [2, 3], id="none-of"),
        pytest.param("n>2", [1], id="greater"),
        pytest.param("n<10", [0], id="less"),
        pytest.param("a,!b,n>1", [0, 1], id="all-of-it"),
        pytest.param("in in (in)", [], id="words-that-mean-something"),
    ],
)
def test_queries_select(text, expected):
    query = parse_query(text)

    assert [i for i, labels in enumerate(LABELS) if query.matches(labels)] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a=b=c", "found '=', expected: ',' or 'end of string'", id="two-equals"),
        pytest.param("a,", "found '', expected: identifier after ','", id="a-comma-too-many"),
        pytest.param("=", "found '=', expected: !, identifier, or 'end of string'", id="no-key"),
        pytest.param(
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            id="no-operator",
        ),
        pytest.param("!", "unable to parse requirement: found '', expected: identifier", id="not"),
        pytest.param("a in x", "unable to parse requirement: found 'x' expected: '('", id="in"),
        pytest.param(
            "a in (x y)",
            "unable to parse requirement: found 'y', expected: ',' or ')'",
            id="no-comma",
        ),
        pytest.param(
            "n>x",
            'unable to parse requirement: values[0]: Invalid value: "x":'
            " for 'Gt', 'Lt' operators, the value must be an integer",
            id="no-number",
        ),
    ],
)
def test_invalid_queries_are_reported_in_the_api_servers_words(text, message):
    with pytest.raises(SelectorError) as caught:
        parse_query(text)

    assert str(caught.value) == message

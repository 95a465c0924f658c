"""Expressions are parsed by cel-go's grammar, and what is wrong is said in its words."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.cel.compile.program import compile_expression
from policyd.cel.environments import extended_environment
from policyd.cel.errors import CelCompileError
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.cel.syntax.tokens import MAX_CODE_POINTS
from policyd.cel.types import DYN
from policyd.cel.values import UInt


def shape(node):
    """Write a tree with brackets."""
    match node:
        case ast.Literal():
            return repr(node.value)
        case ast.Identifier():
            return f".{node.name}" if node.absolute else node.name
        case ast.Select():
            return f"({shape(node.operand)} {'.?' if node.optional else '.'} {node.field})"
        case ast.Logic():
            word = " && " if node.conjunction else " || "
            return f"({word.join(map(shape, node.operands))})"
        case ast.Call():
            parts = ast.children(node)
            return f"({' '.join((node.function, *map(shape, parts)))})"
        case _:
            return f"({' '.join((type(node).__name__, *map(shape, ast.children(node))))})"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("1 + 2 * 3 - 4", "(_-_ (_+_ 1 (_*_ 2 3)) 4)", id="precedence"),
        pytest.param("a || b && c || d", "(a || (b && c) || d)", id="and-before-or"),
        pytest.param("a ? b : c ? d : e", "(Conditional a b (Conditional c d e))", id="ternary"),
        pytest.param("!a.b", "(!_ (a . b))", id="not-after-member"),
        pytest.param("-1.5", "-1.5", id="negative-literal"),
        pytest.param("- a", "(-_ a)", id="negation"),
        pytest.param("!!a", "a", id="double-not-is-nothing"),
        pytest.param("1 - -1", "(_-_ 1 -1)", id="minus-minus"),
        pytest.param("-9223372036854775808", "-9223372036854775808", id="least-integer"),
        pytest.param("a.?b[?c]", "(Index (a .? b) c)", id="optional-access"),
        pytest.param("a.`b/c-d`", "(a . b/c-d)", id="quoted-field"),
        pytest.param("[1, 2,]", "(ListLiteral 1 2)", id="trailing-comma"),
        pytest.param("[[,], {,}]", "(ListLiteral (ListLiteral) (MapLiteral))", id="only-a-comma"),
        pytest.param(".a.b", "(.a . b)", id="absolute-name"),
        pytest.param("a in b", "(@in a b)", id="in"),
        pytest.param("0x1F + 2", "(_+_ 31 2)", id="hexadecimal"),
        pytest.param("'a' // comment\n + 'b'", "(_+_ 'a' 'b')", id="comment"),
        pytest.param(r"'\x41é\U0001F600\101\n'", r"'Aé😀A\n'", id="escapes"),
        pytest.param(r"r'\n' + R'''a'b'''", r"""(_+_ '\\n' "a'b")""", id="raw-strings"),
        pytest.param(r"b'\xffé'", r"b'\xff\xc3\xa9'", id="bytes"),
        pytest.param("l.all(x, x > 0)", "(Comprehension l (_>_ x 0))", id="macro"),
        pytest.param("f(a).map(b)", "(map (f a) b)", id="no-macro-with-other-arity"),
        pytest.param("A.B{c: 1, ?d: 2}", "(StructLiteral 1 2)", id="struct"),
    ],
)
def test_text_becomes_tree(source, expected):
    assert shape(parse(source)) == expected


def test_unsigned_literals_have_their_own_type():
    literal = parse("1u")

    assert isinstance(literal, ast.Literal)
    assert type(literal.value) is UInt


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        pytest.param("1 +", [(1, 4, "Syntax error: mismatched input '<EOF>'")], id="end"),
        pytest.param("a b", [(1, 3, "Syntax error: extraneous input 'b'")], id="two-names"),
        pytest.param(
            "f(1,,2) && g(]) || + 1",
            [
                (1, 5, "extraneous input ','"),
                (1, 14, "mismatched input ']'"),
                (1, 20, "extraneous input '+'"),
            ],
            id="several-errors",
        ),
        pytest.param(
            "f(a b, c) && [(d e), g[1 2]] && {'a' 1}.h ||",
            [
                (1, 5, "mismatched input 'b' expecting ')'"),
                (1, 18, "extraneous input 'e' expecting ')'"),
                (1, 26, "extraneous input '2' expecting ']'"),
                (1, 38, "missing ':' at '1'"),
                (1, 45, "mismatched input '<EOF>' expecting {'[', '{', '(', '.'"),
            ],
            id="one-error-a-bracket",
        ),
        pytest.param("f(a", [(1, 4, "missing ')' at '<EOF>'")], id="bracket-missing"),
        pytest.param("((a", [(1, 4, "mismatched input '<EOF>' expecting ')'")], id="two-missing"),
        pytest.param(
            "f([a)", [(1, 5, "input ')' expecting {']', ','}")], id="inner-bracket-missing"
        ),
        pytest.param("f(a,)", [(1, 5, "mismatched input ')'")], id="comma-behind-arguments"),
        pytest.param("a b c", [(1, 3, "mismatched input 'b' expecting <EOF>")], id="three-names"),
        pytest.param("a.", [(1, 3, "no viable alternative at input '.'")], id="dot-at-the-end"),
        pytest.param("a.+b", [(1, 3, "no viable alternative at input '.+'")], id="no-field"),
        pytest.param("a.true", [(1, 3, "mismatched input 'true' expecting IDENT")], id="constant"),
        pytest.param("1e999", [(1, 1, "invalid double literal")], id="double-overflow"),
        pytest.param(
            "a | b",
            [
                (1, 3, "token recognition error at: '| '"),
                (1, 5, "extraneous input 'b' expecting <EOF>"),
            ],
            id="half-an-operator",
        ),
        pytest.param(
            "l.all(c, has(c.x d)) && l.map(1 2, e)",
            [(1, 18, "extraneous input 'd'"), (1, 33, "mismatched input '2'")],
            id="mistakes-in-macros-are-said-once",
        ),
        pytest.param("a\n&& @ b", [(2, 4, "token recognition error at: '@'")], id="second-line"),
        pytest.param("'abc", [(1, 1, "token recognition error")], id="unterminated-string"),
        pytest.param("'\\q'", [(1, 1, "invalid escape")], id="unknown-escape"),
        pytest.param("9223372036854775808", [(1, 1, "invalid int literal")], id="int-overflow"),
        pytest.param("18446744073709551616u", [(1, 1, "invalid uint literal")], id="uint-overflow"),
        pytest.param("9" * 5_000, [(1, 1, "invalid int literal")], id="endless-integer"),
        pytest.param("has(a)", [(1, 5, "invalid argument to has() macro")], id="has-of-a-name"),
        pytest.param(
            "math.least()",
            [(1, 1, "math.least() requires at least one argument")],
            id="least-of-nothing",
        ),
        pytest.param(
            "math.greatest([1, true])",
            [(1, 15, "math.greatest() invalid single argument value")],
            id="greatest-of-no-numbers",
        ),
        pytest.param(
            "math.least(a, 'b', {})",
            [(1, 15, "math.least() simple literal arguments must be numeric")],
            id="least-of-a-text",
        ),
        pytest.param(
            "l.all(1, true)", [(1, 7, "argument must be a simple name")], id="no-variable"
        ),
        pytest.param(
            "l.all(x, x, true)", [(1, 10, "duplicate variable")], id="same-variable-twice"
        ),
        pytest.param("for", [(1, 1, "reserved identifier: for")], id="reserved"),
        pytest.param("a.in", [(1, 3, "no viable alternative at input '.in'")], id="keyword"),
        pytest.param("'\ud800'", [(1, 1, "not valid unicode")], id="lone-surrogate"),
        pytest.param("a ? b ? c : d : e", [(1, 7, "expecting ':'")], id="ternary-in-the-middle"),
        pytest.param("", [(1, 1, "mismatched input '<EOF>'")], id="nothing"),
    ],
)
def test_mistakes_are_all_reported_with_their_places(source, wrong):
    with pytest.raises(CelCompileError) as caught:
        parse(source)

    found = [(issue.line, issue.column) for issue in caught.value.issues]
    assert found == [(line, column) for line, column, _ in wrong]
    for issue, (_, _, message) in zip(caught.value.issues, wrong, strict=True):
        assert message in issue.message


def test_messages_point_at_the_place():
    with pytest.raises(CelCompileError) as caught:
        parse("object.spec\n  .replicas = 3")

    assert str(caught.value) == (
        "ERROR: <input>:2:13: Syntax error: token recognition error at: '= '\n"
        " |   .replicas = 3\n"
        " | ............^\n"
        "ERROR: <input>:2:15: Syntax error: extraneous input '3' expecting <EOF>\n"
        " |   .replicas = 3\n"
        " | ..............^"
    )


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        pytest.param("a = b", "did you mean `==`?", id="equals-sign"),
        pytest.param("a & b", "did you mean `&&`?", id="ampersand"),
        pytest.param("a and b", "did you mean `&&`?", id="word-and"),
        pytest.param("f(a or b)", "did you mean `||`?", id="word-or"),
        pytest.param("'abc", "the string does not end", id="open-string"),
    ],
)
def test_hints_say_what_was_meant(source, hint):
    with pytest.raises(CelCompileError) as caught:
        parse(source)

    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("source", "usage"),
    [
        pytest.param("l.all(c.x == 1 && c.y == 2)", "list.all(x, condition)", id="no-variable"),
        pytest.param("l.exists(c, c.x, c.y, c.z)", "list.exists(x, condition)", id="too-many"),
        pytest.param("l.map(x.y)", "list.map(x, value)", id="map"),
        pytest.param("has(l.a, l.b)", "has(object.field)", id="has"),
        pytest.param("cel.bind(x, x + 1)", "cel.bind(x, value, result)", id="bind"),
        pytest.param("l[?0].optMap(y + 1)", "optional.optMap(x, value)", id="optional"),
    ],
)
def test_a_slip_in_a_macro_is_one_mistake_with_a_hint(source, usage):
    environment = extended_environment().extend(variables={"l": DYN})

    with pytest.raises(CelCompileError) as caught:
        compile_expression(source, environment)

    assert len(caught.value.issues) == 1
    assert caught.value.hint == f"it is written `{usage}`"


def test_long_lines_are_cut_around_the_place():
    with pytest.raises(CelCompileError) as caught:
        parse("a" * 500 + " b " + "c" * 500)

    assert max(map(len, str(caught.value).splitlines())) < 210


@pytest.mark.parametrize(
    ("nested", "deepest"),
    [
        pytest.param(lambda depth: "(" * depth + "1" + ")" * depth, 249, id="parentheses"),
        pytest.param(lambda depth: "[" * depth + "]" * depth, 250, id="lists"),
        pytest.param(lambda depth: "{1:" * depth + "1" + "}" * depth, 249, id="maps"),
        pytest.param(lambda depth: "f(" * depth + "1" + ")" * depth, 249, id="calls"),
        pytest.param(lambda depth: "!(" * depth + "a" + ")" * depth, 249, id="negations"),
        pytest.param(lambda depth: "(1+" * depth + "1" + ")" * depth, 83, id="sums-on-the-right"),
        pytest.param(lambda depth: "(1*1+" * depth + "1" + ")" * depth, 62, id="both-kinds"),
        pytest.param(lambda depth: "(1+1*" * depth + "1" + ")" * depth, 49, id="a-product-each"),
        pytest.param(lambda depth: "(1<" * depth + "1" + ")" * depth, 83, id="relations"),
        pytest.param(lambda depth: "a" + "[0]" * depth, 248, id="indices"),
        pytest.param(lambda depth: "a" + ".b" * depth, 249, id="selections"),
        pytest.param(lambda depth: "a" + ".b()" * depth, 249, id="methods"),
        pytest.param(lambda depth: "1" + "+1" * depth, 248, id="sums"),
        pytest.param(lambda depth: "1" + "*1" * depth, 248, id="products"),
        pytest.param(lambda depth: "a?b:" * depth + "c", 249, id="conditions"),
        pytest.param(lambda depth: "(a&&(a||" * depth + "a" + "))" * depth, 124, id="logic"),
        pytest.param(lambda depth: "a.b(" * depth + "a" + ")" * depth, 124, id="methods-inside"),
        pytest.param(lambda depth: "(a+a).b(" * depth + "c" + ")" * depth, 124, id="both-ways"),
        pytest.param(lambda depth: "a.all(x," * depth + "a" + ")" * depth, 124, id="macros"),
    ],
)
def test_nesting_has_cel_gos_limit(nested, deepest):
    parse(nested(deepest))

    with pytest.raises(CelCompileError, match="expression recursion limit exceeded: 250"):
        parse(nested(deepest + 1))


def test_length_has_a_limit():
    with pytest.raises(CelCompileError, match=r"code point size exceeds limit: size: 100001"):
        parse("'" + "a" * (MAX_CODE_POINTS - 1) + "'")


def test_chains_of_logic_do_not_nest():
    tree = parse(" && ".join(["a"] * 1_000))

    assert isinstance(tree, ast.Logic)
    assert len(tree.operands) == 1_000


@given(st.text(max_size=60) | st.text("abc.?[](){}'\"`\\:,+-*/!&|<>= 01ux\n", max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_parses_or_is_refused_with_issues(source):
    issues = ()
    try:
        tree = parse(source)
    except CelCompileError as error:
        tree, issues = None, error.issues

    assert (tree is None) == bool(issues)
    assert all(issue.line >= 1 and issue.column >= 1 for issue in issues)

"""cel-cpp, through cel-expr-python, accepts the same texts and gives the same values.

It is one of Google's own implementations, with cel-go's grammar. It has none of Kubernetes'
libraries, not all macros, and nests 32 levels; expressions keep to what both have.
"""

import re

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from policyd.cel import Budget, CelCompileError, CelError
from policyd.cel.compile.program import compile_unchecked
from policyd.cel.syntax.parser import parse
from tests.cel.expressions import ENVIRONMENT, VARIABLES, expression, mutated

cel = pytest.importorskip(
    "cel_expr_python.cel",
    reason="cel-expr-python has no wheel for this Python",
    exc_type=ImportError,
)
_EXTENSIONS = ("optional.ExtOptional", "bindings.ExtBindings", "strings.ExtStrings")
_OTHERS = ("math.ExtMath", "encoders.ExtEncoders")
_SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))
# What only one of them has, or what the API server decides otherwise.
_APART = re.compile(
    r"quantity|Quantity|semver|Semver|isURL|isIP|format|Object|JSONPatch|sets\.|lists\.|has\(|split"
    r"|ofNonZero|\.(?:includes|min|max|sum|isSorted|find|findAll|first|last|slice|sort|sortBy)\("
    r"|\.(?:distinct|flatten|reverse|existsOne|transform\w+)\(|[iI]ndexOf|\(x, y,|unwrap|quote"
    r"|type\(|\bu?int\b|duration\((?!')|bool\(|bit|greatest|least|\[\?|\.\?|\{|substring"
)


def _theirs():
    extensions = []
    for name in (*_EXTENSIONS, *_OTHERS):
        module, _, factory = name.partition(".")
        imported = pytest.importorskip(f"cel_expr_python.ext.ext_{module}")
        extensions.append(getattr(imported, factory)())
    return cel.NewEnv(variables=dict.fromkeys(VARIABLES, cel.Type.DYN), extensions=extensions)


_THEIRS = _theirs()


@st.composite
def _sources(draw, kind, depth):
    return expression(lambda options: draw(st.sampled_from(options)), kind, depth)


def _first_mistake(source):
    """Return the place of the first mistake cel-cpp finds; None if it finds none."""
    try:
        _THEIRS.compile(source, disable_check=True)
    except RuntimeError as error:
        found = re.search(r"ERROR: <input>:(\d+):(\d+): (.*)", str(error))
        return found and found.groups()
    return None


@given(st.data(), _sources("any", 2))
@settings(_SETTINGS, max_examples=100)
def test_texts_are_accepted_or_refused_alike(data, source):
    source = mutated(data.draw, source)
    assume("transform" not in source and "(x, y," not in source and "sortBy" not in source)
    theirs = _first_mistake(source)
    assume(theirs is None or "recursion" not in theirs[2])

    try:
        ours = parse(source)
    except CelCompileError:
        ours = None

    assert (ours is None) == (theirs is not None)


@pytest.mark.parametrize(
    "source",
    [
        *("1 +", "f(1,,2)", "a b", "a b c", "(a b)", "((a", "f(a", "f(a,)", "[1, 2", "[a[1 2]]"),
        *("{1", "{1:", "{'a' 1}", "{a: b c}", "a.", "a.+b", "a.in", "a..b", "a.b(c", "a[1", "a &&"),
        *("a && || b", "*@a | b", "a = 3", "a & b", "a ? b c : d", "a ? b", "f(a b, c) && d e"),
        *("1 + $ && ? && 3 +", "'abc", "a and b", "a not in b", "f(a;b)", "(a,b)", "a[b,c]", "()"),
    ],
)
def test_the_first_mistake_is_reported_in_the_same_words(source):
    with pytest.raises(CelCompileError) as caught:
        parse(source)

    issue = caught.value.issues[0]
    assert (str(issue.line), str(issue.column), issue.message) == _first_mistake(source)


@given(_sources("bool", 3))
@example("(true == true ? 0 : true)")  # nobody checked that both are of one type
@settings(_SETTINGS, max_examples=100)
def test_values_are_those_of_cel_cpp(source):
    assume(not _APART.search(source))
    theirs = _THEIRS.compile(source, disable_check=True).eval(data=VARIABLES)
    expected = "error" if theirs.type() == cel.Type.ERROR else theirs.value()

    try:
        ours = compile_unchecked(source, ENVIRONMENT).evaluate(VARIABLES, Budget())
    except CelError:
        ours = "error"

    assert (ours, type(ours)) == (expected, type(expected))

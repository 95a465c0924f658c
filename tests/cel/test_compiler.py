"""What is compiled means the same as what the reference evaluator walks."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyd.cel.check.checker import check_leniently
from policyd.cel.compile.generator import Generator
from policyd.cel.compile.program import _EMITTERS, compile_expression, compile_unchecked
from policyd.cel.errors import CelCompileError
from policyd.cel.syntax.parser import parse
from tests.cel import reference
from tests.cel.expressions import ENVIRONMENT, EXPRESSIONS, TYPED, VARIABLES
from tests.cel.outcomes import outcome

_SETTINGS = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(EXPRESSIONS)
@_SETTINGS
@pytest.mark.parametrize("environment", [ENVIRONMENT, TYPED], ids=["dyn", "typed"])
def test_compiled_expressions_mean_what_the_reference_says(environment, source):
    program = compile_unchecked(source, environment)

    compiled = outcome(lambda: program.evaluate(VARIABLES, reference.unlimited()))
    walked = outcome(lambda: reference.evaluate(source, environment, VARIABLES))

    assert compiled in (walked, ("error", "operation cancelled: actual cost limit exceeded"))


_HOLDERS = (
    *("{'a': {'b': 1}}", "{'a': {'b': optional.of({'c': 2})}}", "{'a': [{'b': 1}]}", "{'a': null}"),
    *("{'a': optional.none()}", "{'a': optional.of({'b': 1})}", "{1: {'b': 1}}", "{true: 1}"),
    *("optional.of({'a': {'b': 1}})", "optional.none()", "[{'b': 1}]", "[]", "1", "null", "''"),
)
_CHOSEN = (
    *(".?a.?b", ".?a.b", "[?'a'].?b", ".?a", "[?0].?b", "[?1]", "[?true]", "[?['a']]", "[?1.0]"),
    *(".?a[?0].b", ".?a.?b.?c", ".?b.or(X.?a.?b)", ".?z.or(X[?dyn('a')]).or(X.?b)", "[?X]"),
)


@pytest.mark.parametrize("chosen", _CHOSEN)
@pytest.mark.parametrize("holder", _HOLDERS)
@pytest.mark.parametrize("strict", [False, True], ids=["open", "strict"])
def test_an_element_is_chosen_as_by_an_optional(strict, holder, chosen):
    environment = replace(ENVIRONMENT, strict_selection=strict)
    element = f"dyn({holder}){chosen.replace('X', f'dyn({holder})')}"

    found, oracle = (
        outcome(lambda program=program: program.evaluate(VARIABLES, reference.unlimited()))
        for program in (
            compile_unchecked(f"[{element}.orValue('other')]", environment),
            compile_unchecked(f"[{element}].map(o, o.orValue('other'))", environment),
        )
    )

    assert found == oracle


@given(EXPRESSIONS)
@settings(_SETTINGS, max_examples=150)
def test_evaluation_changes_neither_variables_nor_constants(source):
    program = compile_unchecked(source, ENVIRONMENT)
    before = repr(VARIABLES)

    first = outcome(lambda: program.evaluate(VARIABLES, reference.unlimited()))
    second = outcome(lambda: program.evaluate(VARIABLES, reference.unlimited()))

    assert first == second
    assert repr(VARIABLES) == before


_WORDS = st.sampled_from(
    [
        *("object", ".", "spec", "?", "[", "]", "(", ")", "{", "}", ",", ":", "'a'", "1", "-", "+"),
        *("all", "x", "has", "==", "&&", "||", "!", "in", "null", "size", "map", "Object", "2.5"),
    ]
)


@given(st.lists(_WORDS, max_size=25).map(" ".join) | st.text(max_size=30))
@settings(_SETTINGS, max_examples=300)
def test_any_text_is_refused_or_evaluates_without_a_bug(source):
    try:
        program = compile_expression(source, TYPED)
    except CelCompileError as error:
        program, result = None, str(error)
    if program is not None:
        result = outcome(lambda: program.evaluate(VARIABLES, reference.unlimited()))

    assert result


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("'zzmark'", id="string"),
        pytest.param("'\\n\"\"\"zzmark\\'\\'\\''", id="quotes"),
        pytest.param("object.zzmark.`zz/mark`", id="fields"),
        pytest.param("[1].map(zzmark, zzmark + 1)", id="variable-of-a-macro"),
        pytest.param("cel.bind(zzmark, 1, zzmark)", id="bound-variable"),
        pytest.param("zzmark", id="unknown-name"),
        pytest.param("zzmark(1).zzmark()", id="unknown-function"),
        pytest.param("{'zzmark': 1}.zzmark", id="key"),
        pytest.param("b'zzmark'", id="bytes"),
        pytest.param("has(object.zzmark)", id="has"),
    ],
)
def test_words_of_an_expression_reach_python_only_as_string_literals(source):
    checked = check_leniently(parse(source), source, ENVIRONMENT)
    generated = Generator(source, checked, ENVIRONMENT, _EMITTERS).generate()

    tree = compile(generated.source, "<generated>", "exec")
    assert not any("mark" in name for name in names_in(tree))


def names_in(code):
    """Return all names in a code object and in those within it."""
    yield from (*code.co_names, *code.co_varnames, *code.co_freevars)
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            yield from names_in(constant)


def test_deep_logic_is_compiled_in_inner_functions():
    source = "true"
    for _ in range(9):
        source = f"(flag && (object.list.exists(x, x == 'b' && {source}) || false))"

    value = compile_unchecked(source, ENVIRONMENT).evaluate(VARIABLES, reference.unlimited())

    assert value is True

"""Everything there is has a sentence, a signature and its version."""

import pytest

from policyd.cel.describe import describe, function_names, signature, summaries
from policyd.cel.environments import ENVIRONMENTS, environment_named, extended_environment
from policyd.cel.functions import method
from policyd.cel.syntax.macros import MATH_MACROS
from policyd.cel.types import INT, STRING, A, Type, list_of, optional_of
from policyd.dialects.kyverno.environments import kyverno_environment
from policyd.engine.model.functions import FUNCTIONS, expression_environment

KNOWN = summaries()

ENVIRONMENTS = [
    *(pytest.param(environment_named(f"{place}-1.37"), id=place) for place in ENVIRONMENTS),
    pytest.param(kyverno_environment((1, 37), mutation=True), id="kyverno"),
    pytest.param(extended_environment(), id="extended"),
    pytest.param(expression_environment(), id="policy"),
]


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_everything_in_an_environment_is_described(environment):
    described = {entry.name for entry in describe(environment)}
    names = {KNOWN.aliases.get(name, name) for name in environment.functions}
    alone = environment.macros - MATH_MACROS  # which are functions as well
    macros = {"existsOne" if name == "exists_one" else name for name in alone}

    assert names | macros == described


def test_nothing_is_described_twice():
    names = [name for section in KNOWN.functions.values() for name in section]

    assert len(names) == len(set(names))
    assert set(function_names()) == {*names, *KNOWN.macros}


@pytest.mark.parametrize(
    "text",
    [
        *(text for section in KNOWN.functions.values() for text in section.values()),
        *(overload.summary for overload in FUNCTIONS),
    ],
)
def test_a_summary_is_a_sentence(text):
    assert text[0].isupper() or not text[0].isalpha()
    assert text.endswith(".")


@pytest.mark.parametrize(
    ("name", "since"),
    [
        pytest.param("size", "", id="always"),
        pytest.param("semver", "1.33", id="function"),
        pytest.param("transformMap", "1.32", id="macro"),
        pytest.param("sortBy", "1.34", id="macro-of-lists"),
        pytest.param("includes", "1.37", id="newest"),
    ],
)
def test_the_first_version_is_named(name, since):
    (entry,) = (each for each in describe(environment_named("vap-1.37")) if each.name == name)

    assert entry.since == since


def test_signatures_read_like_calls():
    named = method("find", list_of(A), Type("net.IP"), INT, returns=optional_of(STRING), run=print)
    operators = extended_environment().functions

    assert signature(named) == "list(A).find(IP, int) -> optional(string)"
    assert signature(operators["@in"][0]) == "A in list(A) -> bool"
    assert signature(operators["!_"][0]) == "!bool -> bool"
    assert signature(operators["_<_"][0]) == "int < int -> bool"

"""The solver: formulas as they are, and with opaque values in place of strings.

Questions about many strings are decided sooner with opaque values. Each string becomes one, of
which only what is listed here is known: which constants it begins with, contains or equals, and how
that depends on each other. If no value is an answer, no string is. If one of a few strings, made of
the constants, is an answer, the solver finds it among them.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import z3

from policyd.prove.values import all_of, any_of, negation, text_of_term, text_term

_FIRST_STEPS: Final = 1_000_000
"""Before the solver looks at a question in another way."""
_MOST_MEMORY: Final = 2_048
"""For the solver, in MB."""
_FEW_STEPS: Final = 100_000
_FEW_SECONDS: Final = 2.0
"""For a string that matches a regular expression."""
_OPAQUE: Final = z3.DeclareSort("text")
_STRINGS: Final = z3.StringSort()
_MOST_TRIED: Final = 100
"""Strings that are tried for each unknown one."""
_TESTS: Final[dict[int, tuple[str, Callable[[str, str], bool]]]] = {
    z3.Z3_OP_SEQ_PREFIX: ("prefix", str.startswith),
    z3.Z3_OP_SEQ_SUFFIX: ("suffix", str.endswith),
    z3.Z3_OP_SEQ_CONTAINS: ("part", str.__contains__),
}
"""Tests of a string by a constant."""


class SolverLimits(NamedTuple):
    """How long the solver looks for an answer about one kind of object.

    Attributes:
        seconds: A guard: which answer there is depends on the steps.
        steps: Of the solver.
    """

    seconds: float
    steps: int

    @property
    def quick(self) -> "SolverLimits":
        """Those of a look that is not the last one."""
        return self._replace(steps=min(self.steps, _FIRST_STEPS))


@dataclass
class Texts:
    """The opaque values that stand for the strings of some formulas.

    Attributes:
        formulas: The formulas about opaque values.
        strings: The opaque value of each unknown string.
    """

    formulas: list[Any] = field(default_factory=list)
    strings: list[tuple[Any, Any]] = field(default_factory=list)
    _made: dict[int, Any] = field(default_factory=dict)  # by address: formulas keep their parts
    _constants: dict[str, Any] = field(default_factory=dict)
    _tests: dict[tuple[str, str], tuple[Callable[[str, str], bool], dict[int, Any]]] = field(
        default_factory=dict
    )

    _languages: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, formulas: Iterable[Any]) -> "Texts":
        """Write formulas anew, with opaque values in place of strings."""
        made = cls()
        made.formulas += [made._rewritten(each) for each in formulas]
        return made

    def _rewritten(self, top: Any) -> Any:  # noqa: ANN401 - terms of z3
        waiting = [top]
        while waiting:
            term = waiting[-1]
            if term.ast.value in self._made:
                waiting.pop()
                continue
            parts = term.children()
            missing = [part for part in parts if part.ast.value not in self._made]
            if missing:
                waiting += missing
            else:
                waiting.pop()
                made = self._one(term, parts, [self._made[part.ast.value] for part in parts])
                self._made[term.ast.value] = made
        return self._made[top.ast.value]

    def _one(self, term: Any, parts: Sequence[Any], made: Sequence[Any]) -> Any:  # noqa: ANN401
        """Return a term with its parts as they were made."""
        if not parts and not z3.is_re(term) and term.sort() == _STRINGS:
            return self._string(term)
        if all(a.ast.value == b.ast.value for a, b in zip(parts, made, strict=True)):
            return term
        kind = term.decl().kind()
        if kind in _TESTS or kind == z3.Z3_OP_SEQ_IN_RE:
            return self._tested(kind, parts, made)
        if kind in _OF_ANY_SORT:
            return _OF_ANY_SORT[kind](*made)
        if not any(each.sort() == _OPAQUE for each in made):
            return term.decl()(*made)
        result = _OPAQUE if term.sort() == _STRINGS else term.sort()
        return z3.Function(term.decl().name(), *(each.sort() for each in made), result)(*made)

    def _within(self, language: Any) -> Any:  # noqa: ANN401 - a term, a function of z3
        """Return the test that a string matches a regular expression."""
        name = language.sexpr()
        self._languages[name] = language
        return z3.Function(f"within {name}", _OPAQUE, z3.BoolSort())

    def _string(self, term: Any) -> Any:  # noqa: ANN401 - terms of z3
        """Return the opaque value of a constant, or of an unknown string."""
        if z3.is_string_value(term):
            return self._constant(text_of_term(term))
        opaque = z3.Const(str(term), _OPAQUE)
        self.strings.append((term, opaque))
        return opaque

    def _constant(self, text: str) -> Any:  # noqa: ANN401 - a term of z3
        if text not in self._constants:
            self._constants[text] = z3.Const(f"constant {text!r}", _OPAQUE)
        return self._constants[text]

    def _tested(self, kind: int, parts: Sequence[Any], made: Sequence[Any]) -> Any:  # noqa: ANN401
        if kind == z3.Z3_OP_SEQ_IN_RE:
            return self._within(parts[1])(made[0])
        name, test = _TESTS[kind]
        whole, part = (0, 1) if kind == z3.Z3_OP_SEQ_CONTAINS else (1, 0)
        if not z3.is_string_value(parts[part]):
            general = z3.Function(f"{name} of", _OPAQUE, _OPAQUE, z3.BoolSort())
            return general(made[whole], made[part])
        text = text_of_term(parts[part])
        _, asked = self._tests.setdefault((name, text), (test, {}))
        asked[made[whole].ast.value] = made[whole]
        return _test(name, text)(made[whole])

    def facts(self) -> Iterator[Any]:
        """Yield what holds of the opaque values, as it does of strings."""
        if len(self._constants) > 1:
            yield z3.Distinct(*self._constants.values())
        for (name, part), (test, _) in self._tests.items():
            for text, constant in self._constants.items():
                holds = _test(name, part)(constant)
                yield holds if test(text, part) else negation(holds)
        for language, (text, constant) in itertools.product(
            self._languages.values(), self._constants.items()
        ):
            holds = z3.simplify(z3.InRe(text_term(text), language))
            if z3.is_true(holds) or z3.is_false(holds):
                yield self._within(language)(constant) == holds
        yield from self._relations()

    def _relations(self) -> Iterator[Any]:
        """Yield how tests of one opaque value depend on each other."""
        for one, other in itertools.permutations(self._tests, 2):
            how = _relation(one, other)
            of_other = self._tests[other][1]
            for address, value in self._tests[one][1].items() if how else ():
                if address in of_other:
                    follows = _test(*other)(value)
                    denied = negation(_test(*one)(value))
                    yield any_of([denied, follows if how == "implies" else negation(follows)])

    def among_few(self) -> list[Any]:
        """Return that each unknown string is one of a few, which are made of the constants."""
        parts: dict[str, list[str]] = {"prefix": [], "suffix": [], "part": []}
        for name, text in self._tests:
            parts[name].append(text)
        starts, ends = [*parts["prefix"], *parts["part"]], [*parts["suffix"], *parts["part"]]
        each = dict.fromkeys([*starts, *ends])
        tried = dict.fromkeys(
            itertools.chain(
                *(["", "a", "b", "c", "d"], self._constants, each, self._words()),
                (one + other for one, other in itertools.product(starts, ends)),
                (text + "a" for text in each),
                ("a" + text for text in each),
                (one + other for one, other in itertools.product(starts, starts)),
            )
        )
        few = [self._constant(text) for text in itertools.islice(tried, _MOST_TRIED)]
        return [any_of(opaque == each for each in few) for _, opaque in self.strings]

    def _words(self) -> Iterator[str]:
        """Yield a string that matches each regular expression, and one that does not."""
        for language in self._languages.values():
            for wanted in (True, False):
                text = z3.String("word")
                condition = z3.InRe(text, language) == wanted
                _, model = _checked([condition], _FEW_STEPS, _FEW_SECONDS)
                if model is not None:
                    yield text_of_term(model.eval(text, model_completion=True))

    def found(self, model: z3.ModelRef) -> Any:  # noqa: ANN401 - a term of z3
        """Return what the unknown strings are in a model, if they are among few."""
        values = {
            str(model.eval(constant, model_completion=True)): text
            for text, constant in self._constants.items()
        }
        known = (
            (term, values.get(str(model.eval(opaque, model_completion=True))))
            for term, opaque in self.strings
        )
        return all_of(term == text_term(text) for term, text in known if text is not None)


_OF_ANY_SORT: Final[dict[int, Callable[..., Any]]] = {
    z3.Z3_OP_EQ: lambda one, other: one == other,
    z3.Z3_OP_ITE: z3.If,
    z3.Z3_OP_DISTINCT: z3.Distinct,
}


def _test(name: str, part: str) -> Any:  # noqa: ANN401 - a function of z3
    return z3.Function(f"{name} {part!r}", _OPAQUE, z3.BoolSort())


def _relation(one: tuple[str, str], other: tuple[str, str]) -> str:
    """Return what a test of a string says of another: `implies`, `excludes`, or nothing."""
    (name, text), (of, part) = one, other
    if of == "part":
        return "implies" if part in text else ""
    if name != of:
        return ""
    test = str.startswith if name == "prefix" else str.endswith
    if test(text, part):
        return "implies"
    return "" if test(part, text) else "excludes"


def solved(formulas: list[Any], limits: SolverLimits) -> tuple[z3.ModelRef | None, str]:
    """Return a model of formulas, or why it is not known; neither if there is none.

    Args:
        formulas: What has to hold.
        limits: How long to look.
    """
    try:
        looks = [(limits.quick.steps, _checked), (limits.quick.steps, _checked_without_strings)]
        if limits != limits.quick:
            looks.append((limits.steps, _checked))
        for steps, look in looks:
            result, model = look(formulas, steps, limits.seconds)
            if result != z3.unknown:
                return model, ""
    except z3.Z3Exception as error:
        return None, f"the solver gave up: {error}"
    return None, f"the solver found no answer in {limits.steps:,} steps and {limits.seconds:g} s"


def _checked(
    formulas: list[Any], steps: int, seconds: float
) -> tuple[z3.CheckSatResult, z3.ModelRef | None]:
    """Return what the solver finds in so many steps: the incremental one decides fewer strings."""
    solver = z3.Tactic("smt").solver()
    solver.set("rlimit", steps)
    solver.set("timeout", max(1, int(seconds * 1000)))
    solver.set("max_memory", _MOST_MEMORY)
    solver.add(*formulas)
    result = solver.check()
    return result, solver.model() if result == z3.sat else None


def _checked_without_strings(
    formulas: list[Any], steps: int, seconds: float
) -> tuple[z3.CheckSatResult, z3.ModelRef | None]:
    """Return what the solver finds if strings are opaque, or a few that are likely."""
    texts = Texts.of(formulas)
    if not texts.strings:
        return z3.unknown, None
    result, _ = _checked([*texts.formulas, *texts.facts()], steps, seconds)
    if result != z3.sat:
        return result, None
    few = texts.among_few()
    _, model = _checked([*texts.formulas, *texts.facts(), *few], steps, seconds)
    if model is None:
        return z3.unknown, None
    result, model = _checked([*formulas, texts.found(model)], steps, seconds)
    return (result, model) if result == z3.sat else (z3.unknown, None)

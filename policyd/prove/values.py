"""Values of CEL in formulas: what an expression may be, and under which condition.

An `Outcome` has alternatives with conditions that exclude each other. Where none of them holds the
expression fails, as CEL's errors do.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import z3

from policyd.errors import PolicydError

TRUE: Final = z3.BoolVal(val=True)
FALSE: Final = z3.BoolVal(val=False)


class UnencodableError(PolicydError):
    """A part of an expression cannot be written as a formula; the message names it."""


class Alternative(NamedTuple):
    """A value, and the condition under which the expression has it."""

    when: Any
    value: Any


Outcome = tuple[Alternative, ...]


@dataclass(frozen=True)
class Bool:
    """A bool."""

    term: Any


@dataclass(frozen=True)
class Int:
    """An int of 64 bits."""

    term: Any


@dataclass(frozen=True)
class Double:
    """A double, taken for a real number."""

    term: Any


@dataclass(frozen=True)
class Text:
    """A string."""

    term: Any


@dataclass(frozen=True)
class Null:
    """Null."""


@dataclass(frozen=True)
class TypeName:
    """A type, as `type()` returns it."""

    name: str


@dataclass(frozen=True)
class Measure:
    """A quantity, duration or timestamp, as a real number; `kind` says which."""

    kind: str
    term: Any


@dataclass(frozen=True)
class Listing:
    """A list. Elements whose condition does not hold are not in it.

    Attributes:
        elements: The conditions and values, in order.
        dense: Whether no element can be missing before one that is there.
    """

    elements: tuple[tuple[Any, Outcome], ...]
    dense: bool = True


@dataclass(frozen=True)
class Mapping:
    """A map. Entries whose condition does not hold are not in it; keys are strings."""

    entries: tuple[tuple[Any, Any, Outcome], ...]


@dataclass(frozen=True)
class OptionalValue:
    """An optional: the condition that it has a value, and the value."""

    present: Any
    value: Outcome


def text_term(text: str) -> Any:  # noqa: ANN401 - a term of z3
    """Return the term of a text; the solver would read escapes in it."""
    return z3.StringVal(text.replace("\\", "\\u{5c}"))


def text_of_term(term: Any) -> str:  # noqa: ANN401 - a term of z3
    """Return the text of a constant string."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), str(term.py_value()))


_ESCAPE: Final = re.compile(r"\\u\{([0-9a-fA-F]+)\}")


def all_of(terms: Iterable[Any]) -> Any:  # noqa: ANN401 - a term of z3
    """Return the condition that all conditions hold, without constants."""
    kept = []
    for term in terms:
        if z3.is_false(term):
            return FALSE
        if not z3.is_true(term):
            kept.append(term)
    return kept[0] if len(kept) == 1 else z3.And(*kept) if kept else TRUE


def any_of(terms: Iterable[Any]) -> Any:  # noqa: ANN401 - a term of z3
    """Return the condition that one of some conditions holds, without constants."""
    kept = []
    for term in terms:
        if z3.is_true(term):
            return TRUE
        if not z3.is_false(term):
            kept.append(term)
    return kept[0] if len(kept) == 1 else z3.Or(*kept) if kept else FALSE


def negation(term: Any) -> Any:  # noqa: ANN401 - a term of z3
    """Return the condition that a condition does not hold."""
    if z3.is_true(term):
        return FALSE
    return TRUE if z3.is_false(term) else z3.Not(term)


def sure(value: Any) -> Outcome:  # noqa: ANN401 - any value
    """Return the outcome that is one value."""
    return (Alternative(TRUE, value),)


def only_if(condition: Any, outcome: Outcome) -> Outcome:  # noqa: ANN401 - a term of z3
    """Return an outcome under a further condition."""
    if z3.is_true(condition):
        return outcome
    made = (Alternative(all_of([condition, when]), value) for when, value in outcome)
    return tuple(each for each in made if not z3.is_false(each.when))


def succeeds(outcome: Outcome) -> Any:  # noqa: ANN401 - a term of z3
    """Return the condition that an outcome has a value."""
    return any_of(when for when, _ in outcome)


_SCALARS: Final = (Bool, Int, Double, Text)


def joined(alternatives: Iterable[Alternative]) -> Outcome:
    """Return alternatives, with those of one kind of scalars as one."""
    others: list[Alternative] = []
    scalars: dict[Any, list[Alternative]] = {}
    for each in alternatives:
        if z3.is_false(each.when):
            continue
        kind: Any = type(each.value)
        if isinstance(each.value, Measure):
            kind = (Measure, each.value.kind)
        elif kind is Null or kind is TypeName:
            kind = each.value
        elif kind not in _SCALARS:
            others.append(each)
            continue
        scalars.setdefault(kind, []).append(each)
    made = [_one(kind, found) for kind, found in scalars.items()]
    return (*made, *others)


def _one(kind: Any, found: Sequence[Alternative]) -> Alternative:  # noqa: ANN401 - a class
    if len(found) == 1:
        return found[0]
    when = any_of(each.when for each in found)
    if isinstance(kind, Null | TypeName):
        return Alternative(when, kind)
    term = found[-1].value.term
    for each in reversed(found[:-1]):
        term = z3.If(each.when, each.value.term, term)
    value = Measure(kind[1], term) if isinstance(kind, tuple) else kind(term)
    return Alternative(when, value)

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


def is_true(term: Any) -> bool:  # noqa: ANN401 - a term of z3
    """Tell whether a condition is the constant that always holds."""
    return bool(term.ast.value == _TRUE)


def is_false(term: Any) -> bool:  # noqa: ANN401 - a term of z3
    """Tell whether a condition is the constant that never holds."""
    return bool(term.ast.value == _FALSE)


# Equal terms of the solver are one and the same, wherever they are made. To compare addresses, and
# to make terms without the checks of z3's operators, takes a tenth of the time.
_CONTEXT: Final = z3.main_ctx()
_TRUE: Final = TRUE.ast.value
_FALSE: Final = FALSE.ast.value


def all_of(terms: Iterable[Any]) -> Any:  # noqa: ANN401 - a term of z3
    """Return the condition that all conditions hold, without constants and repetitions."""
    kept = {}
    for term in terms:
        address = term.ast.value
        if address == _FALSE:
            return FALSE
        if address != _TRUE:
            kept[address] = term
    return _chained(z3.Z3_mk_and, list(kept.values()), TRUE)


def any_of(terms: Iterable[Any]) -> Any:  # noqa: ANN401 - a term of z3
    """Return the condition that one of some conditions holds, without constants and repetitions."""
    kept = {}
    for term in terms:
        address = term.ast.value
        if address == _TRUE:
            return TRUE
        if address != _FALSE:
            kept[address] = term
    return _chained(z3.Z3_mk_or, list(kept.values()), FALSE)


def _chained(make: Any, kept: list[Any], of_none: Any) -> Any:  # noqa: ANN401 - terms of z3
    if len(kept) < 2:
        return kept[0] if kept else of_none
    operands = (z3.Ast * len(kept))(*(term.ast for term in kept))
    return z3.BoolRef(make(_CONTEXT.ref(), len(kept), operands), _CONTEXT)


def negation(term: Any) -> Any:  # noqa: ANN401 - a term of z3
    """Return the condition that a condition does not hold."""
    if is_true(term):
        return FALSE
    if is_false(term):
        return TRUE
    return z3.BoolRef(z3.Z3_mk_not(_CONTEXT.ref(), term.ast), _CONTEXT)


def sure(value: Any) -> Outcome:  # noqa: ANN401 - any value
    """Return the outcome that is one value."""
    return (Alternative(TRUE, value),)


def only_if(condition: Any, outcome: Outcome) -> Outcome:  # noqa: ANN401 - a term of z3
    """Return an outcome under a further condition."""
    if is_true(condition):
        return outcome
    made = (Alternative(all_of([condition, when]), value) for when, value in outcome)
    return tuple(each for each in made if not is_false(each.when))


def succeeds(outcome: Outcome) -> Any:  # noqa: ANN401 - a term of z3
    """Return the condition that an outcome has a value."""
    return any_of(when for when, _ in outcome)


_SCALARS: Final = (Bool, Int, Double, Text)


def joined(alternatives: Iterable[Alternative]) -> Outcome:
    """Return alternatives, with those of one kind of scalars as one."""
    others: list[Alternative] = []
    scalars: dict[Any, list[Alternative]] = {}
    for each in alternatives:
        if is_false(each.when):
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
        if each.value.term.ast.value != term.ast.value:
            term = z3.If(each.when, each.value.term, term)
    value = Measure(kind[1], term) if isinstance(kind, tuple) else kind(term)
    return Alternative(when, value)

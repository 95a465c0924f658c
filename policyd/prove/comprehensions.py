"""The macros of CEL that go over a list or map, as formulas."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import z3

from policyd.cel.syntax import ast
from policyd.prove import values as v
from policyd.prove.outcomes import decided, entries_of, placed, truth
from policyd.prove.values import (
    Outcome,
    UnencodableError,
    all_of,
    any_of,
    is_true,
    negation,
    only_if,
    succeeds,
    sure,
)

Rounds = list[tuple[Any, Any, Any, Outcome, dict[str, Outcome]]]


def rounds_of(
    node: ast.Comprehension,
    value: Any,  # noqa: ANN401
) -> Iterable[tuple[Any, dict[str, Outcome]]]:
    """Yield when there is a round of a macro, and its variables."""
    if isinstance(value, v.Listing):
        two = len(node.variables) > 1
        if two:
            for place, there, outcome in placed(value):
                index = sure(v.Int(place))
                yield there, dict(zip(node.variables, (index, outcome), strict=True))
        else:
            for there, outcome in value.elements:
                yield there, {node.variables[0]: outcome}
        return
    for there, key, outcome in entries_of(value):
        name = sure(v.Text(key))
        yield there, dict(zip(node.variables, (name, outcome), strict=False))


def _every(_node: ast.Comprehension, _value: Any, rounds: Rounds) -> Outcome:  # noqa: ANN401
    truths = [(there, *truth(result)) for there, _, _, result, _ in rounds]
    true = all_of(any_of([negation(there), holds]) for there, holds, _ in truths)
    return decided(true, any_of(all_of([there, fails]) for there, _, fails in truths))


def _some(_node: ast.Comprehension, _value: Any, rounds: Rounds) -> Outcome:  # noqa: ANN401
    truths = [(there, *truth(result)) for there, _, _, result, _ in rounds]
    false = all_of(any_of([negation(there), fails]) for there, _, fails in truths)
    return decided(any_of(all_of([there, holds]) for there, holds, _ in truths), false)


def _one(_node: ast.Comprehension, _value: Any, rounds: Rounds) -> Outcome:  # noqa: ANN401
    truths = [(there, *truth(result)) for there, _, _, result, _ in rounds]
    fine = all_of(any_of([negation(there), holds, fails]) for there, holds, fails in truths)
    count = z3.Sum(
        z3.IntVal(0),
        *(z3.If(all_of([there, holds]), z3.IntVal(1), z3.IntVal(0)) for there, holds, _ in truths),
    )
    return only_if(fine, sure(v.Bool(count == 1)))


def _filter(_node: ast.Comprehension, _value: Any, rounds: Rounds) -> Outcome:  # noqa: ANN401
    fine, kept = [], []
    for there, _, _, result, names in rounds:
        holds, fails = truth(result)
        fine.append(any_of([negation(there), holds, fails]))
        kept.append((all_of([there, holds]), next(iter(names.values()))))
    return only_if(all_of(fine), sure(v.Listing(tuple(kept), dense=False)))


def _map(_node: ast.Comprehension, value: Any, rounds: Rounds) -> Outcome:  # noqa: ANN401
    fine, made = [], []
    whole = isinstance(value, v.Listing) and value.dense
    for there, kept, dropped, result, _ in rounds:
        fine.append(any_of([negation(there), dropped, all_of([kept, succeeds(result)])]))
        made.append((all_of([there, kept]), result))
        whole = whole and is_true(kept)
    return only_if(all_of(fine), sure(v.Listing(tuple(made), dense=whole)))


def _map_of_values(node: ast.Comprehension, _value: Any, rounds: Rounds) -> Outcome:  # noqa: ANN401
    fine, made = [], []
    for there, kept, dropped, result, names in rounds:
        key = names[node.variables[0]]
        if len(key) != 1 or not isinstance(key[0].value, v.Text):
            raise UnencodableError("transformMap() of a list")
        fine.append(any_of([negation(there), dropped, all_of([kept, succeeds(result)])]))
        made.append((all_of([there, kept]), key[0].value.term, result))
    return only_if(all_of(fine), sure(v.Mapping(tuple(made))))


def _entries(_node: ast.Comprehension, _value: Any, _rounds: Rounds) -> Outcome:  # noqa: ANN401
    raise UnencodableError("transformMapEntry()")


FOLDS: Final[dict[str, Callable[[ast.Comprehension, Any, Rounds], Outcome]]] = {
    "all": _every,
    "exists": _some,
    "exists_one": _one,
    "filter": _filter,
    "map": _map,
    "transformList": _map,
    "transformMap": _map_of_values,
    "transformMapEntry": _entries,
}

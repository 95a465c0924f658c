"""Estimate macros, which cost as much as cel-go's expansion."""

from typing import Final

from policyd.cel import cost
from policyd.cel.estimate.estimates import Sized, fixed
from policyd.cel.estimate.estimation import NOTHING_KNOWN, Estimation, KnownValue, Path
from policyd.cel.estimate.spans import ANY, NOTHING, ONE, Span, exactly
from policyd.cel.syntax import ast
from policyd.cel.types import list_of

_LIST: Final = exactly(cost.LIST)
_MAP: Final = exactly(cost.MAP)
# Testing whether to go on: `@not_strictly_false(x)`, and of `!x`.
_TESTS: Final = {"all": exactly(2), "exists": exactly(3)}


def estimate_comprehension(estimation: Estimation, node: ast.Comprehension) -> Span:
    """Charge a loop: before it, each of its rounds, and after it."""
    price = estimation.cost(node.range)
    with estimation.bound(_loop_variables(estimation, node)):
        step, made = _step(estimation, node)
    rounds = estimation.size(node.range)
    begin, end = _frame(node)
    known = KnownValue(size=rounds, element=made) if begin != NOTHING else KnownValue(size=ONE)
    estimation.learn(node, known)
    return price + begin + end + rounds * (step + _TESTS.get(node.kind, NOTHING))


def _frame(node: ast.Comprehension) -> tuple[Span, Span]:
    """Return the cost of a loop before its first round, and after its last."""
    if node.kind in ("transformMap", "transformMapEntry"):
        return _MAP, ONE
    if node.kind in ("filter", "map", "transformList"):
        return _LIST, ONE
    return NOTHING, exactly(2) if node.kind == "exists_one" else ONE


def _step(estimation: Estimation, node: ast.Comprehension) -> tuple[Span, Span | None]:
    """Return the cost of a round, and the size of the element that it adds to a list."""
    condition = estimation.cost(node.condition) if node.condition else None
    result = estimation.cost(node.result)
    if node.kind in ("all", "exists"):
        return Span(1, (ONE + result).most), None
    if node.kind == "exists_one":
        return result + Span(1, 2), None
    if node.kind == "filter":
        variable = estimation.scope[node.variables[0]]
        return result + Span(1, cost.LIST + 3), variable.size
    more = {"transformMap": 3, "transformMapEntry": 2}.get(node.kind, cost.LIST + 2)
    made = result + exactly(more)
    step = made if condition is None else condition + (made | ONE)
    return step, estimation.size(node.result)


def _loop_variables(estimation: Estimation, node: ast.Comprehension) -> dict[str, KnownValue]:
    known = estimation.known_of(node.range)
    is_list = estimation.kind(node.range).name == "list"
    first = KnownValue(_inner(known, "@indices" if is_list else "@keys"), known.key)
    second = KnownValue(_inner(known, "@items" if is_list else "@values"), known.element)
    if len(node.variables) == 1:
        return {node.variables[0]: second if is_list else first}
    return dict(zip(node.variables, (first, second), strict=True))


def _inner(known: KnownValue, step: str) -> Path:
    return (*known.path, step) if known.path else ()


def estimate_bind(estimation: Estimation, node: ast.Bind) -> Span:
    """Charge a binding: cel-go makes it a loop over nothing."""
    price = _LIST + estimation.cost(node.value)
    with estimation.bound({node.name: estimation.known_of(node.value)}):
        price += estimation.cost(node.body)
    estimation.learn(node, estimation.known_of(node.body))
    return price


def estimate_optional_map(estimation: Estimation, node: ast.OptionalMap) -> Span:
    """Charge `x.hasValue() ? optional.of(bind(name, x.value(), body)) : optional.none()`."""
    operand = estimation.cost(node.operand)
    with estimation.bound({node.name: NOTHING_KNOWN}):
        body = estimation.cost(node.body)
    present = _LIST + operand + ONE + body + (NOTHING if node.flat else ONE)
    estimation.learn(node, NOTHING_KNOWN)
    return operand + ONE + (present | ONE)


def estimate_sort_by(estimation: Estimation, node: ast.SortBy) -> Span:
    """Charge `bind(list, list.sortByKeys(list.map(name, key)))`."""
    price = _LIST + estimation.cost(node.operand)
    known = estimation.known_of(node.operand)
    with estimation.bound({node.name: KnownValue(_inner(known, "@items"), known.element)}):
        round_ = estimation.cost(node.key) + exactly(cost.LIST + 2)
    rounds = known.size or ANY
    keys = Sized(list_of(estimation.kind(node.key)), rounds)
    sorting = next(iter(estimation.environment.functions.get("sort", ())), None)
    sorted_ = sorting.charge((keys,)) if sorting else fixed(1)
    estimation.learn(node, KnownValue(size=rounds, element=known.element))
    return price + exactly(2) + _LIST + ONE + rounds * round_ + sorted_.cost

"""Define the names that generated code may use; it has no other builtins."""

from typing import Any, Final, NoReturn

from policyd.cel import arithmetic, comparison, containers, cost, values
from policyd.cel.compile.failures import absorb
from policyd.cel.cost import EXPRESSION_LIMIT, Budget
from policyd.cel.errors import CelError
from policyd.cel.values import NONE, CelMap, Optional, Struct, no_such_overload, with_made

SHORT_LIMIT: Final = 20_000
"""Cost up to which an evaluation is ordinary: giving up must not take long."""
_ORDINARY: Final = frozenset((int, str))
_PLAIN: Final = frozenset(("", b"", 0, 1)).isdisjoint
"""Tells that no value of a set is empty, or equal to a bool in Python."""


class _OutOfOrderError(Exception):
    """Something is out of the ordinary."""


def _give_up() -> NoReturn:
    """Leave it to the function in full.

    Raises:
        _OutOfOrderError: Always.
    """
    raise _OutOfOrderError


def _distinct(values: set[Any], items: list[Any]) -> set[Any]:
    """Return the values of items, if a text or integer is among them that is equal to one by CEL.

    Raises:
        _OutOfOrderError: If a value occurs twice, is empty (cheaper to compare), or is a bool.
    """
    if len(values) != len(items) or "" in values or b"" in values:
        raise _OutOfOrderError
    if (0 in values or 1 in values) and bool in map(type, values):
        raise _OutOfOrderError
    return values


def _tenths(values: set[Any], most: int) -> int:
    """Return the extra cost of comparisons with a string, if one with a longer string costs `most`.

    Raises:
        _OutOfOrderError: If a value is neither a text nor an integer.
    """
    if not _ORDINARY.issuperset(map(type, values)):
        raise _OutOfOrderError
    return sum([min(most, (len(text) - 1) // 10) for text in values if type(text) is str])


def _fail(message: str) -> None:
    raise CelError(message)


def _no_overload(function: str, *arguments: object) -> None:
    raise no_such_overload(function, *arguments)


def _present(value: object) -> tuple[object, ...]:
    optional = containers.need_optional(value)
    return (optional.value,) if optional.present else ()


def _present_pair(key: object, value: object) -> tuple[tuple[object, object], ...]:
    optional = containers.need_optional(value)
    return ((key, optional.value),) if optional.present else ()


def _cost_of_sum(a: object, b: object, budget: Budget) -> int:
    if type(a) is list:
        budget.charge_work(cost.size_of(a) + cost.size_of(b))
        return 0
    return cost.traverse_both(a, b) - 1


def _cost_of_in(element: object, container: list[object], budget: Budget) -> int:
    if type(element) is str:
        budget.charge_work(len(container) * (1 + len(element) // 100))
    elif type(element) not in (int, bool, float):
        budget.charge_work(budget.weigh(container).elements)
    return len(container)


GLOBALS: Final[dict[str, Any]] = {
    "bool": bool,
    "bytes": bytes,
    "dict": dict,
    "float": float,
    "int": int,
    "len": len,
    "list": list,
    "str": str,
    "type": type,
    "ANY": Exception,
    "ERRORS": (CelError, KeyError, TypeError),
    "LIMIT": EXPRESSION_LIMIT,
    "NUMBERS": comparison.NUMBERS,
    "SHORT": SHORT_LIMIT,
    "SIZED": frozenset((str, bytes, list, dict, CelMap)),
    "R_MISSING": values.MISSING,
    "R_NONE": NONE,
    "R_Optional": Optional,
    "R_Struct": Struct,
    "R_with_made": with_made,
    "R_absorb": absorb,
    "R_add": arithmetic.add,
    "R_contains": comparison.contains,
    "R_cost_of_in": _cost_of_in,
    "R_cost_of_sum": _cost_of_sum,
    "R_deep_size": cost.deep_size,
    "R_distinct": _distinct,
    "R_divide": arithmetic.divide,
    "R_elements": containers.elements,
    "R_equal": comparison.equal,
    "R_equal_counted": comparison.equal_counted,
    "R_exceed": cost.exceed,
    "R_fail": _fail,
    "R_finish_map": containers.finish_map,
    "R_give_up": _give_up,
    "R_greater": comparison.greater,
    "R_greater_or_equal": comparison.greater_or_equal,
    "R_has": containers.has,
    "R_held": values.held,
    "R_index": containers.index,
    "R_insert": containers.insert,
    "R_less": comparison.less,
    "R_less_or_equal": comparison.less_or_equal,
    "R_make_map": containers.make_map,
    "R_merge": containers.merge,
    "R_modulo": arithmetic.modulo,
    "R_multiply": arithmetic.multiply,
    "R_need_bool": comparison.need_bool,
    "R_need_optional": containers.need_optional,
    "R_negate": arithmetic.negate,
    "R_no_overload": _no_overload,
    "R_optional_index": values.optional_index,
    "R_pairs": containers.pairs,
    "R_plain": _PLAIN,
    "R_present": _present,
    "R_present_pair": _present_pair,
    "R_size_of": cost.size_of,
    "R_strict_held": values.strict_held,
    "R_strict_optional_index": values.strict_optional_index,
    "R_sort_pairs": comparison.sort_pairs,
    "R_subtract": arithmetic.subtract,
    "R_tenths": _tenths,
    "R_traverse_least": cost.traverse_least,
}

"""Estimate the cost of calls from the sizes of their arguments, by the API server's formulas.

The cost of a call when it is evaluated is a function of its arguments; here each of those functions
has its counterpart over spans of sizes. Some of them differ in more than that, as they do there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from policyd.cel import cost
from policyd.cel.cost import Cost
from policyd.cel.estimate.spans import ANY, ONE, UNBOUNDED, Span, exactly
from policyd.cel.types import Type

_LISTED: Final = exactly(1 + cost.LIST)
_ADDRESS: Final = Span(4, 16)
# The API server takes the longest pattern of a named format for each of them: 128 characters.
_FORMAT_PATTERN: Final = exactly(32)


@dataclass(frozen=True, slots=True)
class Sized:
    """An argument as far as it is known before it is evaluated.

    Attributes:
        kind: Its type.
        size: Its size.
        element: The size of a list's elements.
        literal: Its value, in a tuple, if it is a constant.
    """

    kind: Type
    size: Span = ANY
    element: Span = ANY
    literal: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Charge:
    """The cost of a call, and the size of its result if that is known."""

    cost: Span
    size: Span | None = None


Estimator = Callable[[tuple[Sized, ...]], Charge]
"""Computes the charge of a call from its arguments; the receiver of a method comes first."""


def fixed(price: int) -> Charge:
    """Return a charge that does not depend on the arguments."""
    return Charge(exactly(price))


def traverse(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate reading the first argument once; the result is as large."""
    size = arguments[0].size
    return Charge(size.over(10), size)


def traverse_part(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate comparing with the second argument."""
    return Charge(arguments[1].size.over(10))


def traverse_twice(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate reading the first argument twice."""
    return Charge(arguments[0].size.over(5))


def encode(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate turning characters into bytes, up to four each."""
    size = arguments[0].size
    return Charge(size.over(10), size * Span(1, 4))


def decode(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate turning bytes into characters."""
    size = arguments[0].size
    return Charge(size.over(10), Span(size.least // 4, size.most))


def quote(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate quoting a string: each character may be escaped."""
    size = arguments[0].size
    return Charge(size.over(10), size * Span(1, 2) + exactly(2))


def template(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate formatting: nothing bounds the result."""
    return Charge(arguments[0].size.over(10))


def search(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate looking for one string in another."""
    return Charge(arguments[0].size.over(10) * arguments[1].size.over(10))


def search_pattern(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate looking for a regular expression."""
    return Charge((arguments[0].size + ONE).over(10) * arguments[1].size.over(4))


def find(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate finding matches: at most the whole text."""
    return Charge(search_pattern(arguments).cost, Span(0, arguments[0].size.most))


def each(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate looking at each element of a list, and at each character of a string."""
    first = arguments[0]
    if not first.kind.parameters:
        return Charge(first.size.over(10))
    price = ONE
    if first.kind.parameters[0].name in ("string", "bytes"):
        price += first.element.over(10)
    return Charge(first.size * price)


def look(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate looking at each element of a list."""
    return Charge(arguments[0].size)


def replace(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate replacing one string by another."""
    text, old, new = (argument.size for argument in arguments[:3])
    most = _most_replaced(text, old, new)
    return Charge(text.over(5), Span(_least_replaced(text, old, new), min(most, UNBOUNDED)))


def _most_replaced(text: Span, old: Span, new: Span) -> int:
    if old.least == 0:  # the new string goes around each character
        return (text.most + 1) * new.most + text.most
    if new.most <= old.least:
        return text.most
    return -(-text.most // old.least) * new.most


def _least_replaced(text: Span, old: Span, new: Span) -> int:
    if old.most == 0:
        return (text.least + 1) * new.least + text.least
    if old.most <= new.least:
        return text.least
    return -(-text.least // old.most) * new.least


def split(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate splitting a string: at most into its characters."""
    most = arguments[0].size.most
    if len(arguments) > 2 and arguments[2].literal:
        limit = arguments[2].literal[0]
        most = limit if isinstance(limit, int) and limit >= 0 else most
    return Charge(arguments[0].size.over(5), Span(0, most))


def join(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate joining strings."""
    first = arguments[0]
    size = first.size * first.element
    if len(arguments) > 1:
        between = Span(max(first.size.least - 1, 0), max(first.size.most - 1, 0))
        size += arguments[1].size * between
    return Charge(size.over(10), size)


def contains_address(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate looking for an address in a network."""
    price = (_ADDRESS + _ADDRESS).over(10)
    return Charge(price + _parsed(arguments[1]))


def contains_network(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate looking for a network in another."""
    price = (_ADDRESS + _ADDRESS).over(10) + _ADDRESS.over(10) + ONE
    return Charge(price + _parsed(arguments[1]))


def _parsed(argument: Sized) -> Span:
    return argument.size.over(10) if argument.kind.name == "string" else exactly(0)


def validate(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate validating a string by a named format."""
    return Charge(arguments[1].size.over(10) * _FORMAT_PATTERN)


def selector(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate parsing a selector: a requirement may be as short as two characters."""
    size = arguments[1].size
    requirements = size.over(2) * exactly(cost.LIST + cost.STRUCT)
    return Charge(exactly(cost.LIST) + size.over(10) + requirements)


def product(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate looking at each pair of elements."""
    return Charge(ONE + arguments[0].size * arguments[1].size)


def product_twice(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate looking at each pair of elements from both sides."""
    return Charge(ONE + arguments[0].size * arguments[1].size * exactly(2))


def _listed(size: Span, factor: int = 1) -> Charge:
    return Charge(_LISTED + size * exactly(factor), size)


def reverse(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate copying a list."""
    return _listed(arguments[0].size)


def take(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate taking a part of a list."""
    start = _constant(arguments[1], 0)
    end = _constant(arguments[2], arguments[0].size.most)
    return _listed(exactly(max(end - start, 0)))


def count_up(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate making a list of numbers."""
    return _listed(exactly(_constant(arguments[0], UNBOUNDED)))


def flatten(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate flattening a list."""
    depth = _constant(arguments[1], UNBOUNDED) if len(arguments) > 1 else 1
    return _listed(arguments[0].size, depth)


def compare_all(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate comparing each element of a list with each other, as sorting may do."""
    first = arguments[0]
    pairs = first.size * first.size
    tenths = 21 if first.kind.parameters[:1] and _is_text(first.kind.parameters[0]) else 20
    return Charge(_LISTED + (pairs * exactly(tenths)).over(10), pairs)


def distinct(arguments: tuple[Sized, ...]) -> Charge:
    """Estimate comparing each element of a list with each other."""
    pairs = arguments[0].size * arguments[0].size
    return Charge(_LISTED + pairs * exactly(2), pairs)


def _is_text(kind: Type) -> bool:
    return kind.name in ("string", "bytes")


def _constant(argument: Sized, otherwise: int) -> int:
    value = argument.literal[0] if argument.literal else None
    return value if isinstance(value, int) and value >= 0 else otherwise


COUNTERPARTS: Final[dict[Cost, Estimator]] = {
    cost.traverse: traverse,
    cost.traverse_twice: traverse_twice,
    cost.search: search,
    cost.search_pattern: search_pattern,
    cost.visit: each,
    cost.visit_each: each,
    cost.visit_list: each,
    cost.elements: look,
    cost.product: product,
    cost.product_twice: product_twice,
}
"""The estimate of each cost function, unless a declaration has another."""

"""What evaluating an expression may cost, in the API server's units.

Every step has a cost, known when the expression is compiled or computed from the sizes of what it
works on before it works. Besides, what the API server's units do not see (deep comparison, copies
of lists) is counted as work, so that no expression gets at more time or memory than its cost says.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from policyd.cel.errors import CelCostError

EXPRESSION_LIMIT: Final = 1_000_000
"""Cost one expression may have."""
POLICY_LIMIT: Final = 10_000_000
"""Cost all expressions of a policy may have together."""
MATCH_CONDITIONS_LIMIT: Final = 2_500_000
"""Cost all match conditions of a policy may have together."""
WORK_LIMIT: Final = 500_000
"""Elements one expression may compare or copy beyond what its cost covers."""
# Comparing or copying so many characters takes about as long as an element.
_CHARACTERS: Final = 100

IDENTIFIER: Final = 1
SELECT: Final = 1
LIST: Final = 10
MAP: Final = 30
STRUCT: Final = 40

_SIZED: Final = frozenset((str, bytes, list, dict))
_PLAIN: Final = frozenset((int, float, bool, type(None)))
# Scalars that are equal to themselves; a double may be no number.
_CERTAIN: Final = frozenset((int, bool, type(None)))
# Lists whose weights are remembered at a time.
_REMEMBERED: Final = 64

Cost = Callable[..., int]
"""Computes the cost of a call from its arguments."""


class Weight(NamedTuple):
    """What was found by looking at a value deep down.

    Attributes:
        cost: A tenth of each string's bytes, and 1 for each scalar.
        elements: How many values are in it, as far as the work limit; long texts count more.
        certain: Whether it is equal to itself, as what holds a NaN is not.
    """

    cost: int
    elements: int
    certain: bool


class Budget:
    """What the expressions of one policy may still cost together.

    Attributes:
        limit: What they may cost.
        spent: What they cost so far.
        work: Elements looked at by the expression that is being evaluated.
        weights: Lists that expression has looked at, by their identity; they are kept, so that no
            others get the same. Values stay as they are only while an expression is evaluated.
    """

    __slots__ = ("limit", "spent", "weights", "work")

    def __init__(self, limit: int = POLICY_LIMIT) -> None:
        self.limit = limit
        self.spent = 0
        self.work = 0
        self.weights: dict[int, tuple[object, Weight]] = {}

    @property
    def remaining(self) -> int:
        """What is left; below 0 if the last expression went over."""
        return self.limit - self.spent

    def charge_work(self, elements: int) -> None:
        """Count elements about to be copied or compared.

        Raises:
            CelCostError: If the expression has done more work than allowed.
        """
        self.work += elements
        if self.work > WORK_LIMIT:
            exceed()

    def weigh(self, values: object) -> Weight:
        """Return the weight of a value, which is looked at once in an evaluation."""
        known = self.weights.get(id(values))
        if known is None:
            if len(self.weights) >= _REMEMBERED:
                self.weights = {}
            known = self.weights[id(values)] = values, weigh(values)
        return known[1]


def exceed() -> NoReturn:
    """Stop an expression that reached its limit.

    Raises:
        CelCostError: Always.
    """
    raise CelCostError("operation cancelled: actual cost limit exceeded")


def size_of(value: object) -> int:
    """Return the size the API server takes for a value: its length, or 1 for a scalar."""
    if type(value) in _SIZED or hasattr(value, "__len__"):
        return len(value)  # type: ignore[arg-type]
    return 1


def deep_size(value: object) -> int:
    """Return how many elements are in a value, deep down, as far as the work limit.

    A part that is in the value several times counts several times: it will be looked at so often.
    """
    if type(value) is list and set(map(type, value)) <= _PLAIN:
        return 1 + len(value)
    count = 1
    pending = [value]
    while pending and count <= WORK_LIMIT:
        part = pending.pop()
        if isinstance(part, str | bytes):
            count += len(part) // _CHARACTERS
            continue
        if isinstance(part, dict):
            part = list(part.values())
        elif not isinstance(part, list):
            part = [getattr(part, "value", None)]
        count += len(part)
        kinds = set(map(type, part))
        if not kinds <= _PLAIN:
            pending.extend(part)
    return count


def traversal(size: int) -> int:
    """Return the cost of reading so many characters or bytes."""
    return (size + 9) // 10


def traverse(value: object, *_rest: object) -> int:
    """Cost of reading the first argument once."""
    return (size_of(value) + 9) // 10


def traverse_twice(value: object, *_rest: object) -> int:
    """Cost of reading the first argument and writing as much."""
    return (2 * size_of(value) + 9) // 10


def traverse_least(a: object, b: object) -> int:
    """Cost of comparing two values."""
    return (min(size_of(a), size_of(b)) + 9) // 10


def traverse_both(a: object, b: object) -> int:
    """Cost of joining two strings."""
    return (size_of(a) + size_of(b) + 9) // 10


def search(text: object, part: object, *_rest: object) -> int:
    """Cost of looking for one string in another."""
    return traversal(size_of(text)) * traversal(size_of(part))


def search_pattern(text: object, pattern: object, *_rest: object) -> int:
    """Cost of looking for a regular expression in a string."""
    return traversal(1 + size_of(text)) * ((size_of(pattern) + 3) // 4)


def elements(value: object, *_rest: object) -> int:
    """Cost of looking at each element of the first argument."""
    return size_of(value)


def visit(value: object, *_rest: object) -> int:
    """Cost of looking at a value deep down: a tenth of a string's bytes, and 1 for each scalar."""
    if type(value) is str:
        return _tenths([value])
    if type(value) is list and set(map(type, value)) <= _PLAIN:
        return len(value)
    return weigh(value).cost


def visit_list(values: object, _wanted: object, budget: Budget | None = None) -> int:
    """Cost of looking at a list, or any value, deep down; the work it is gets charged.

    Raises:
        CelCostError: If the expression has done more work than allowed.
    """
    if budget is None or type(values) is str:
        return visit(values)
    weight = budget.weigh(values)
    budget.charge_work(weight.elements)
    return weight.cost


def weigh(value: object) -> Weight:
    """Look at a value deep down, as far as the work limit.

    A part that is in the value several times counts several times: it will be looked at so often.
    """
    texts: list[str] = []
    scalars: list[Any] = []
    pending: list[Any] = [value]
    for part in pending:
        kind = type(part)
        if kind is dict:
            texts += part
            for inner in part.values():
                (texts if type(inner) is str else pending).append(inner)
        elif kind is list:
            pending += part if len(pending) <= WORK_LIMIT else ()
        elif kind is str:
            texts.append(part)
        elif isinstance(part, dict):
            pending += (*dict.keys(part), *dict.values(part))
        else:
            scalars.append(part)
        if len(texts) > WORK_LIMIT:
            break
    kinds = set(map(type, scalars))
    certain = kinds <= _CERTAIN or all(type(s) in _CERTAIN or _is_number(s) for s in scalars)
    each = len(scalars) if kinds <= _PLAIN else sum(map(_cost_of_scalar, scalars))
    cost = _tenths(texts) + each
    return Weight(cost, len(pending) + len(texts) + cost // 10, certain)


def _is_number(value: object) -> bool:
    return type(value) is float and value == value  # noqa: PLR0124 - a NaN is not


def _cost_of_scalar(value: object) -> int:
    return len(value) // 10 if isinstance(value, bytes) else 1


def _tenths(texts: list[str]) -> int:
    """Return the sum of a tenth of each text's bytes."""
    if all(map(str.isascii, texts)):
        return sum([size // 10 for size in map(len, texts) if size > 9])
    return sum([len(text.encode()) // 10 for text in texts])


def pairs(values: object, *_rest: object) -> int:
    """Work of comparing each element of a list with each other."""
    return size_of(values) * deep_size(values)


def pairs_of(a: object, b: object) -> int:
    """Work of comparing each element of one list with each of another."""
    return size_of(a) * deep_size(b)


def ordered(values: object, *_rest: object) -> int:
    """Work of comparing each element of a list with its neighbour."""
    return deep_size(values)


def product(a: object, b: object) -> int:
    """Cost of looking at each pair of elements."""
    return 1 + size_of(a) * size_of(b)


def product_twice(a: object, b: object) -> int:
    """Cost of looking at each pair of elements from both sides."""
    return 1 + 2 * size_of(a) * size_of(b)

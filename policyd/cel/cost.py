"""What evaluating an expression may cost, in the API server's units.

Every step has a cost, known when the expression is compiled or computed from the sizes of what it
works on before it works. Besides, what the API server's units do not see (deep comparison, copies
of lists) is counted as work, so that no expression gets at more time or memory than its cost says.
"""

from collections.abc import Callable
from typing import Final, NoReturn

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

Cost = Callable[..., int]
"""Computes the cost of a call from its arguments."""


class Budget:
    """What the expressions of one policy may still cost together."""

    __slots__ = ("limit", "spent", "work")

    def __init__(self, limit: int = POLICY_LIMIT) -> None:
        self.limit = limit
        self.spent = 0
        self.work = 0

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


def steps(number: int) -> Cost:
    """Return the constant work of a function that takes longer than an operator."""
    return lambda *_arguments: number


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
    total = 0
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            total += (len(part) if part.isascii() else len(part.encode())) // 10
        elif isinstance(part, bytes):
            total += len(part) // 10
        elif isinstance(part, list):
            if set(map(type, part)) <= _PLAIN:
                total += len(part)
            else:
                pending += part
        elif isinstance(part, dict):
            pending += (*part.keys(), *part.values())
        else:
            total += 1
    return total


def pairs(values: object, *_rest: object) -> int:
    """Work of comparing each element of a list with each other."""
    return size_of(values) * deep_size(values)


def pairs_of(a: object, b: object) -> int:
    """Work of comparing each element of one list with each of another."""
    return size_of(a) * deep_size(b)


def ordered(values: object, *_rest: object) -> int:
    """Work of comparing each element of a list with its neighbour."""
    return deep_size(values)


def search_list(values: object, wanted: object) -> int:
    """Work of comparing each element of a list with a value."""
    return size_of(values) * deep_size(wanted)


def product(a: object, b: object) -> int:
    """Cost of looking at each pair of elements."""
    return 1 + size_of(a) * size_of(b)


def product_twice(a: object, b: object) -> int:
    """Cost of looking at each pair of elements from both sides."""
    return 1 + 2 * size_of(a) * size_of(b)

"""What the functions of nested loops use, which give up on what is out of the ordinary."""

from typing import Any, Final, NoReturn

SHORT_LIMIT: Final = 20_000
"""Cost up to which an evaluation is ordinary: giving up must not take long."""
_ORDINARY: Final = frozenset((int, str))
PLAIN: Final = frozenset(("", b"", 0, 1)).isdisjoint
"""Tells that no value of a set is empty, or equal to a bool in Python."""


class OddError(Exception):
    """Something is out of the ordinary."""


def give_up() -> NoReturn:
    """Leave it to the function in full.

    Raises:
        OddError: Always.
    """
    raise OddError


def distinct(values: set[Any], items: list[Any]) -> set[Any]:
    """Return the values of items, if a text or integer is among them that is equal to one by CEL.

    Raises:
        OddError: If one is there twice, or is empty, which is cheaper to compare, or is a bool.
    """
    if len(values) != len(items) or "" in values or b"" in values:
        raise OddError
    if (0 in values or 1 in values) and bool in map(type, values):
        raise OddError
    return values


def tenths(values: set[Any], most: int) -> int:
    """Return what comparisons with a text cost besides 1, if they cost `most` with a longer one.

    Raises:
        OddError: If a value is neither a text nor an integer.
    """
    if not _ORDINARY.issuperset(map(type, values)):
        raise OddError
    return sum([min(most, (len(text) - 1) // 10) for text in values if type(text) is str])

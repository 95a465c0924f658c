"""Raise Python's recursion limit for expressions as deep as cel-go allows."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# 250 expressions, with their additions to the tree, and the frames each node takes; Python's own
# frames do not use the C stack.
_FRAMES: Final = 10_000
_users: Final[list[int]] = []


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise Python's recursion limit while an expression is compiled; evaluation needs no more.

    Several threads may compile: the last one to end puts the limit back.
    """
    _users.append(sys.getrecursionlimit())
    sys.setrecursionlimit(max(*_users, _FRAMES))
    try:
        yield
    finally:
        before = _users.pop()
        if not _users:
            sys.setrecursionlimit(before)

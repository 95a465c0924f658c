"""Room on Python's stack for expressions as deep as cel-go allows."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# 250 levels, with at most 12 frames each; Python's own frames do not use the C stack.
_FRAMES: Final = 4_000


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise Python's recursion limit while an expression is compiled; evaluation needs no more."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)

"""Cache the results of parsing strings, for short strings only, so that memory stays bounded."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, TypeVar

T = TypeVar("T")

_LONGEST: Final = 256


def cache_short(size: int) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """Remember the results of a function for as many of the short texts it was given last."""

    def decorate(read: Callable[[str], T]) -> Callable[[str], T]:
        remembered = lru_cache(maxsize=size)(read)

        @wraps(read)
        def cached(text: str) -> T:
            return remembered(text) if len(text) <= _LONGEST else read(text)

        return cached

    return decorate

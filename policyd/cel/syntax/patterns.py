"""Compile Python's regular expressions when they are first used."""

import re
from typing import Any, cast


class _LazyPattern:
    """Stands for a pattern, and gets its methods from it once one is asked for."""

    def __init__(self, text: str, flags: int) -> None:
        self._source = text, flags

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as many types as a pattern has methods
        compiled = re.compile(*self._source)
        for method in ("match", "fullmatch", "search", "sub", "finditer", "pattern"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that is compiled when it is first used: many never are."""
    return cast("re.Pattern[str]", _LazyPattern(text, flags))

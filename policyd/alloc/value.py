"""The base of the allocation core's arguments and results."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Immutable, compared by content, and out of the garbage collector's way.

    A queue holds a hundred thousand of these for days. `gc=False` is safe because values only ever
    contain values made before them: there are no cycles.
    """


class _NoEntries(dict[str, Any]):
    """Unlike a plain empty dict, msgspec does not copy this for each value."""

    __slots__ = ()


NO_ENTRIES: Final[Mapping[str, Any]] = _NoEntries()
"""The empty mapping that values share, as one for each takes 64 bytes."""

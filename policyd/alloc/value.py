"""The base of the allocation core's arguments and results."""

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Immutable, compared by content, and out of the garbage collector's way.

    A queue holds a hundred thousand of these for days. `gc=False` is safe because values only ever
    contain values made before them: there are no cycles.
    """

"""Changes of objects, as passed to listeners.

A listener matches all three. Where events are many, it matches without captures, which takes less
than half of the time, and the most frequent case, Modified, comes first.
"""

from typing import Generic, TypeVar

from msgspec import Struct

T_co = TypeVar("T_co", covariant=True)


class Added(Struct, Generic[T_co], frozen=True, gc=False):
    """An object that was not known before."""

    object: T_co


class Modified(Struct, Generic[T_co], frozen=True, gc=False):
    """Another version of an object: the same uid, before and after."""

    old: T_co
    object: T_co


class Deleted(Struct, Generic[T_co], frozen=True, gc=False):
    """An object that is gone, as it was last known."""

    object: T_co


Change = Added[T_co] | Modified[T_co] | Deleted[T_co]
"""The event for a listener. `object` is the newest known version, or the last one."""

"""Limits of memory for each namespace, whichever user writes objects there.

Each namespace has the same limits, so that no namespace can take the room of another. An object
beyond the limits is not kept, and is named where it is missing.
"""

from typing import Final

MOST_PARAMS: Final = 5_000
MOST_PARAM_BYTES: Final = 16 * 1024 * 1024
"""Params of one kind in one namespace, and their length as JSON: an API server takes objects of up
to 1.5 MiB, and policies' params have some hundred bytes."""

MOST_POLICIES: Final = 2_000
MOST_POLICY_BYTES: Final = 16 * 1024 * 1024
"""Policies and bindings of the cluster, or of one namespace. Compiled they take some fifty times as
much."""

POLICIES_AT_A_TIME: Final = 20
"""Policies in a page that is read: each may have 1.5 MiB."""


class NamespaceLimits:
    """Counts the objects that are kept of each namespace.

    Args of the constructor:
        most: Objects of a namespace.
        most_bytes: Their length together, as JSON.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: dict[str, dict[object, int]] = {}
        self._bytes: dict[str, int] = {}
        self._left_out: dict[str, dict[object, None]] = {}

    def put(self, namespace: str, key: object, size: int) -> bool:
        """Count an object that is new, or changed; tell whether it is within the limits."""
        self.drop(namespace, key)
        if not self.has_room(namespace, key, size):
            self._left_out.setdefault(namespace, {})[key] = None
            return False
        self._kept.setdefault(namespace, {})[key] = size
        self._bytes[namespace] = self._bytes.get(namespace, 0) + size
        return True

    def has_room(self, namespace: str, key: object, size: int) -> bool:
        """Tell whether an object would be within the limits."""
        kept = self._kept.get(namespace, {})
        total = self._bytes.get(namespace, 0) - kept.get(key, 0) + size
        return len(kept) - (key in kept) < self._most and total <= self._most_bytes

    def drop(self, namespace: str, key: object) -> None:
        """Count an object no longer."""
        kept, left_out = self._kept.get(namespace, {}), self._left_out.get(namespace, {})
        self._bytes[namespace] = self._bytes.get(namespace, 0) - kept.pop(key, 0)
        left_out.pop(key, None)
        if not kept:
            self._kept.pop(namespace, None)
            self._bytes.pop(namespace, None)
        if not left_out:
            self._left_out.pop(namespace, None)

    def left_out(self, namespace: str, key: object = None) -> object | None:
        """Return an object beyond the limits: that one or, where none is named, any."""
        left_out = self._left_out.get(namespace, {})
        if key is not None:
            return key if key in left_out else None
        return next(iter(left_out), None)

    def too_many(self, namespace: str) -> str:
        """Say that a policy of a namespace, or of the cluster if that is empty, is beyond them."""
        there = f"namespace `{namespace}` has" if namespace else "there are"
        return f"{there} more policies than are kept ({self.bounds}): have fewer"

    @property
    def bounds(self) -> str:
        """Return the limits in words."""
        return f"{self._most} objects or {self._most_bytes // 1024 // 1024} MiB"

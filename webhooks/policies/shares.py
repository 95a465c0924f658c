"""How much the objects of a namespace may take in memory, whoever writes them there.

Each namespace has as much as any other, so that nobody is left without what another one fills. What
there is no room for is not kept, and named where it is missed.
"""

from typing import Final

import msgspec

from policyd.api.meta import Json

MOST_PARAMS: Final = 5_000
MOST_PARAM_BYTES: Final = 16 * 1024 * 1024
"""Params of one kind in one namespace, and how long they are as JSON: an API server takes objects
of up to 1.5 MiB, and policies' params have some hundred bytes."""

MOST_POLICIES: Final = 2_000
MOST_POLICY_BYTES: Final = 16 * 1024 * 1024
"""Policies and bindings of the cluster, or of one namespace. In force they take some fifty times as
much."""

_encode = msgspec.json.Encoder().encode


class Shares:
    """What is kept of each namespace.

    Args of the constructor:
        most: How many objects.
        most_bytes: How long they are together, as JSON.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: dict[str, dict[object, int]] = {}
        self._bytes: dict[str, int] = {}
        self._left_out: dict[str, dict[object, None]] = {}

    def put(self, namespace: str, key: object, value: Json) -> bool:
        """Take note of an object that is new, or changed; tell whether it is to be kept."""
        self.drop(namespace, key)
        if not self.has_room(namespace, key, value):
            self._left_out.setdefault(namespace, {})[key] = None
            return False
        size = len(_encode(value))
        self._kept.setdefault(namespace, {})[key] = size
        self._bytes[namespace] = self._bytes.get(namespace, 0) + size
        return True

    def has_room(self, namespace: str, key: object, value: Json) -> bool:
        """Tell whether an object would be kept."""
        kept = self._kept.get(namespace, {})
        total = self._bytes.get(namespace, 0) - kept.get(key, 0) + len(_encode(value))
        return len(kept) - (key in kept) < self._most and total <= self._most_bytes

    def drop(self, namespace: str, key: object) -> None:
        """Take note of an object that is gone."""
        kept, left_out = self._kept.get(namespace, {}), self._left_out.get(namespace, {})
        self._bytes[namespace] = self._bytes.get(namespace, 0) - kept.pop(key, 0)
        left_out.pop(key, None)
        if not kept:
            self._kept.pop(namespace, None)
            self._bytes.pop(namespace, None)
        if not left_out:
            self._left_out.pop(namespace, None)

    def left_out(self, namespace: str, key: object = None) -> object | None:
        """Return an object that is not kept: that one or, where none is named, any."""
        left_out = self._left_out.get(namespace, {})
        if key is not None:
            return key if key in left_out else None
        return next(iter(left_out), None)

    @property
    def bounds(self) -> str:
        """Say what there is room for."""
        return f"{self._most} objects or {self._most_bytes // 1024 // 1024} MiB"

"""What passes of `policyd background` may do, and how much of it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from policyd.api.meta import Json
from policyd.kube.resources import Resource

MOST_WRITES: Final = 200
"""Objects that one pass creates, updates and deletes for policies that generate, and as many that
it mutates: the rest is left to the next."""

MOST_WANTED: Final = 10_000
"""Objects that one policy may have generated in all; of those that mutate, triggers."""

MOST_OF_NAMESPACE: Final = 1_000
"""Objects that one policy may have generated for triggers of one namespace."""

MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of these objects, as JSON."""

MOST_BYTES_OF_NAMESPACE: Final = 4 * 1024 * 1024
"""Bytes of those for triggers of one namespace."""

SHARE: Final = 5
"""One namespace has at most this part of the deletions and of the mutations of a pass."""

FEW: Final = 50
"""Objects of a resource that are read one by one; of more, the resource is listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOptions:
    """What passes may do.

    Attributes:
        generates: The resources whose objects they may create, update and delete for policies.
        mutates: The resources whose objects they may mutate for policies.
        deletes: The resources whose objects they may delete on a schedule.
        reads: The resources that expressions may read.
        place: The ConfigMap of the record, as `namespace/name`.
        act: Whether they write anything.
        most_deletes: Objects that one pass deletes on schedules.
        leading: Tells whether this process may write.
    """

    generates: tuple[Resource, ...] = ()
    mutates: tuple[Resource, ...] = ()
    deletes: tuple[Resource, ...] = ()
    reads: tuple[Resource, ...] = ()
    place: str
    act: bool = False
    most_deletes: int = 50
    leading: Callable[[], bool] = lambda: True

    def generated(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind that may be generated; None if it may not."""
        return _of_kind(self.generates, api_version, kind)

    def mutated(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind that may be mutated; None if it may not."""
        return _of_kind(self.mutates, api_version, kind)


def _of_kind(resources: Sequence[Resource], api_version: str, kind: str) -> Resource | None:
    return next((e for e in resources if (e.api_version, e.kind) == (api_version, kind)), None)


class WriteBudget:
    """Counts the objects that a pass writes, in all and of each namespace."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._number = 0
        self._of_namespace: Counter[str] = Counter()

    def take(self, namespace: str) -> bool:
        """Count one more object; return whether there is room for it."""
        share = max(1, self._most // SHARE) if namespace else self._most
        if self._number >= self._most or self._of_namespace[namespace] >= share:
            return False
        self._number += 1
        self._of_namespace[namespace] += 1
        return True


class LeftOutError(Exception):
    """A policy is not acted on."""


class Room:
    """Counts the objects of one policy, in all and for each namespace of its triggers."""

    def __init__(self, does: str, what: str) -> None:
        """Count objects, called as in "generates more than 10,000 objects"."""
        self._does, self._what = does, what
        self._number: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def hold(self, namespace: str) -> None:
        """Count one object that stays without its trigger; it takes room, but is not at fault."""
        for place in (namespace, "") if namespace else ("",):
            self._number[place] += 1

    def fault(self, namespace: str, objects: Sequence[Json]) -> str:
        """Count the objects of one trigger; return why there is no room for them, if so.

        Raises:
            LeftOutError: If there are too many in all.
        """
        size = sum(len(msgspec.json.encode(each)) for each in objects)
        places = (namespace, "") if namespace else ("",)
        for place in places:
            self._number[place] += len(objects)
            self._bytes[place] += size
        if self._number[""] > MOST_WANTED or self._bytes[""] > MOST_BYTES:
            raise LeftOutError(
                f"{self._does} more than {MOST_WANTED:,} {self._what}, or {MOST_BYTES:,} bytes,"
                " in all"
            )
        full = (
            self._number[namespace] > MOST_OF_NAMESPACE
            or self._bytes[namespace] > MOST_BYTES_OF_NAMESPACE
        )
        if not namespace or not full:
            return ""
        for place in places:  # the rest of the namespace takes no room from others
            self._number[place] -= len(objects)
            self._bytes[place] -= size
        return (
            f"more than {MOST_OF_NAMESPACE:,} {self._what}, or {MOST_BYTES_OF_NAMESPACE:,} bytes,"
            " for one namespace"
        )

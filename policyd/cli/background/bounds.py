"""What passes of `policyd background` may do, and how much of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from policyd.kube.resources import Resource

MOST_WRITES: Final = 200
"""Objects that one pass creates, updates and deletes for policies that generate: the rest is left
to the next."""

MOST_WANTED: Final = 10_000
"""Objects that one policy may have generated in all."""

MOST_OF_NAMESPACE: Final = 1_000
"""Objects that one policy may have generated for triggers of one namespace."""

MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the objects that one policy may have generated in all, as JSON."""

MOST_BYTES_OF_NAMESPACE: Final = 4 * 1024 * 1024
"""Bytes of those for triggers of one namespace."""

SHARE: Final = 5
"""One namespace has at most this part of the deletions of a pass."""

FEW: Final = 50
"""Objects of a resource that are read one by one; of more, the resource is listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOptions:
    """What passes may do.

    Attributes:
        generates: The resources whose objects they may create, update and delete for policies.
        deletes: The resources whose objects they may delete on a schedule.
        reads: The resources that expressions may read.
        place: The ConfigMap of the record, as `namespace/name`.
        act: Whether they write anything.
        most_deletes: Objects that one pass deletes on schedules.
        leading: Tells whether this process may write.
    """

    generates: tuple[Resource, ...] = ()
    deletes: tuple[Resource, ...] = ()
    reads: tuple[Resource, ...] = ()
    place: str
    act: bool = False
    most_deletes: int = 50
    leading: Callable[[], bool] = lambda: True

    def generated(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind that may be generated; None if it may not."""
        for each in self.generates:
            if (each.api_version, each.kind) == (api_version, kind):
                return each
        return None

"""What counts at the door beside the object that is created or changed."""

from dataclasses import dataclass

from policyd.api.meta import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What counts beside the object.

    Attributes:
        default_queue: Whether the namespace has a LocalQueue named `default`.
        manages_all: Whether jobs that name no queue are held, too.
        off: Feature gates of checks that are off.
        basis: What the object is made from, if it says so; None if that is not at hand.
    """

    default_queue: bool = False
    manages_all: bool = False
    off: frozenset[str] = frozenset()
    basis: Json = None


NOWHERE = Surroundings()
"""Where only the queue counts that an object names itself."""

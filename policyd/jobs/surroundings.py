"""What counts at the door beside the object that is created or changed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What counts beside the object.

    Attributes:
        default_queue: Whether the namespace has a LocalQueue named `default`.
        manages_all: Whether jobs that name no queue are held, too.
        off: Feature gates of checks that are off.
    """

    default_queue: bool = False
    manages_all: bool = False
    off: frozenset[str] = frozenset()


NOWHERE = Surroundings()
"""Where only the queue counts that an object names itself."""

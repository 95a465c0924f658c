"""Copy on write: change a tree of decoded JSON without touching the tree that was given."""

from typing import Any

from policyd.api.meta import Json


class Copying:
    """A tree whose containers are copied the first time they are opened, and only then.

    Who writes opens the container to write to; every container on the way is then this tree's own.
    All others stay shared with the tree that was given.
    """

    __slots__ = ("_own", "root")

    def __init__(self, root: Json) -> None:
        self.root = root
        # Holding the containers themselves keeps their ids from being given to others.
        self._own: dict[int, Json] = {}

    def open_root(self) -> Json:
        """Return the root, safe to write to."""
        if id(self.root) not in self._own and isinstance(self.root, dict | list):
            self.root = self._copied(self.root)
        return self.root

    def open_child(self, parent: Json, step: str | int) -> Json:
        """Return the child of an open `parent`, safe to write to if it is a container."""
        child = parent[step]
        if id(child) not in self._own and isinstance(child, dict | list):
            child = parent[step] = self._copied(child)
        return child

    def share(self) -> Json:
        """Return the tree for others to keep: later writes copy again."""
        self._own.clear()
        return self.root

    def _copied(self, value: dict[str, Any] | list[Any]) -> Json:
        mine = value.copy()
        self._own[id(mine)] = mine
        return mine


def same_json(one: Json, other: Json) -> bool:
    """Tell whether two values are the same JSON: 1, 1.0 and true all differ."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            key in other and same_json(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)

"""Change an object, and record the operations as a JSON patch.

The object that was given is never touched. Each change is recorded as the smallest RFC 6902
operation that says it, and a change inside something the draft itself added is folded into the
operation that added it. Applying the operations to the object gives the draft's object.
`CopyOnWrite` is the copy beneath it.
"""

import msgspec

from policyd.api.meta import Json
from policyd.patch.operations import APPEND, Operation, PatchError, Path, Verb, pointer, same_json

_CONTAINERS = (dict, list)
"""A tuple, as a union of types would be made anew for each test."""


class CopyOnWrite:
    """A tree whose containers are copied the first time they are opened, and only then.

    A write opens the container to write to; every container on the path is then this tree's own.
    All others stay shared with the original tree.
    """

    __slots__ = ("_own", "root")

    def __init__(self, root: Json) -> None:
        self.root = root
        # Holding the containers themselves keeps their ids from being given to others.
        self._own: dict[int, Json] = {}

    def open_root(self) -> Json:
        """Return the root, safe to write to."""
        root = self.root
        if id(root) not in self._own and isinstance(root, _CONTAINERS):
            root = self.root = root.copy()
            self._own[id(root)] = root
        return root

    def open_child(self, parent: Json, step: str | int) -> Json:
        """Return the child of an open `parent`, safe to write to if it is a container."""
        child = parent[step]
        if id(child) not in self._own and isinstance(child, _CONTAINERS):
            child = parent[step] = child.copy()
            self._own[id(child)] = child
        return child

    def share(self) -> Json:
        """Return the tree for others to keep: later writes copy again."""
        self._own.clear()
        return self.root


class _Record(msgspec.Struct):
    """An operation that may still grow."""

    op: Verb
    path: Path
    value: Json


class Draft(CopyOnWrite):
    """A copy-on-write view of one object."""

    __slots__ = ("_records", "_written")

    def __init__(self, obj: Json) -> None:
        super().__init__(obj)
        self._records: list[_Record | None] = []
        # INVARIANT: each path here still denotes the value its record added or replaced.
        self._written: dict[Path, int] = {}

    @property
    def object(self) -> Json:
        """The object as it is now. The result does not change with later writes."""
        self._own.clear()
        return self.root

    @property
    def operations(self) -> list[Operation]:
        """The recorded operations, in order, for the object that was given."""
        self._own.clear()
        return [
            Operation(record.op, pointer(record.path))
            if record.op == "remove"
            else Operation(record.op, pointer(record.path), value=record.value)
            for record in self._records
            if record is not None
        ]

    @property
    def changed(self) -> bool:
        """Whether there are any operations."""
        return any(record is not None for record in self._records)

    def get(self, path: Path, default: Json = None) -> Json:
        """Return the value at `path`, or `default` if there is none. Do not write to it."""
        node = self.root
        for step in path:
            if isinstance(node, dict):
                if step not in node:
                    return default
            elif not (isinstance(node, list) and isinstance(step, int) and 0 <= step < len(node)):
                return default
            node = node[step]
        return node

    def set(self, path: Path, value: Json) -> None:
        """Put `value` at `path`, making the parents that are missing or null.

        Writing an equal value changes nothing and records nothing.

        Raises:
            PatchError: If a parent is neither an object nor a list, or an index is not in its list.
        """
        if not path:
            raise PatchError("the whole object cannot be replaced")
        present = self.get(path, _NOTHING)
        if present is not _NOTHING and same_json(present, value):
            return
        node = self.open_root()
        for depth, step in enumerate(path[:-1]):
            if type(node) is not dict or type(step) is not str:
                _check_step(node, path, depth)
            if isinstance(node, dict) and node.get(step) is None:
                self._write(node, path[: depth + 1], value=_nested(path, depth + 1, value))
                return
            node = self.open_child(node, step)
        if type(node) is not dict or type(path[-1]) is not str:
            _check_step(node, path, len(path) - 1)
        self._write(node, path, value=value)

    def remove(self, path: Path) -> None:
        """Remove the value at `path`, if there is one.

        Raises:
            PatchError: If `path` is empty.
        """
        if not path:
            raise PatchError("the whole object cannot be removed")
        if self.get(path, _NOTHING) is _NOTHING:
            return
        node = self._open(path[:-1])
        del node[path[-1]]
        self._record_removal(path, from_list=isinstance(node, list))

    def append(self, path: Path, value: Json) -> None:
        """Put `value` at the end of the list at `path`, which is made if missing or null.

        Raises:
            PatchError: If there is something else than a list.
        """
        present = self.get(path)
        if present is None:
            self.set(path, [value])
            return
        if not isinstance(present, list):
            raise _not_a("a list", path, present)
        self._open(path).append(value)
        if not self._fold(path):
            self._written[*path, len(present)] = len(self._records)
            self._records.append(_Record("add", (*path, APPEND), value))

    def insert(self, path: Path, value: Json) -> None:
        """Put `value` before the item at `path`, whose last step is an index of a list.

        Raises:
            PatchError: If the list does not exist, or the index is beyond its end.
        """
        *_, index = path
        parent = self.get(path[:-1])
        if not isinstance(parent, list):
            raise _not_a("a list", path[:-1], parent)
        if not isinstance(index, int) or not 0 <= index <= len(parent):
            raise _no_such_index(path, len(parent))
        self._open(path[:-1]).insert(index, value)
        if not self._fold(path[:-1]):
            self._forget_below(path[:-1])
            self._written[path] = len(self._records)
            self._records.append(_Record("add", path, value))

    def _open(self, path: Path) -> Json:
        """Return the existing container at `path`, safe to write to."""
        node = self.open_root()
        for step in path:
            node = self.open_child(node, step)
        return node

    def _write(self, node: Json, path: Path, *, value: Json) -> None:
        """Put `value` into `node`, which is the container of the last step of `path`."""
        step = path[-1]
        present = isinstance(node, list) or step in node
        node[step] = value
        if self._written:
            self._forget_below(path)
            if self._fold(path):
                return
        self._written[path] = len(self._records)
        self._records.append(_Record("replace" if present else "add", path, value))

    def _fold(self, path: Path) -> bool:
        """Let the operation that wrote `path` or a parent of it tell the new value too."""
        for length in range(1, len(path) + 1):
            index = self._written.get(path[:length])
            if index is not None:
                record = self._records[index]
                assert record is not None, "a dropped record is not among the written"
                record.value = self.get(path[:length])
                return True
        return False

    def _record_removal(self, path: Path, *, from_list: bool) -> None:
        self._forget_below(path)
        if self._fold(path[:-1]):
            return
        if from_list:
            self._forget_below(path[:-1])
        elif path in self._written:
            self._undo(path)
            return
        self._records.append(_Record("remove", path, None))

    def _undo(self, path: Path) -> None:
        """Turn the operation that wrote a field into its removal; drop it if it added the field."""
        index = self._written.pop(path)
        record = self._records[index]
        assert record is not None, "a dropped record is not among the written"
        self._records[index] = None if record.op == "add" else _Record("remove", path, None)

    def _forget_below(self, path: Path) -> None:
        """Stop folding writes below `path`: the value is removed or moved."""
        depth = len(path)
        for at in tuple(self._written):
            if len(at) > depth and at[:depth] == path:
                del self._written[at]


_NOTHING = object()
"""Stands for a value that is not there, which null is not."""


def _nested(path: Path, depth: int, value: Json) -> Json:
    """Wrap `value` in the parents that `path` names from `depth` on."""
    for step in reversed(path[depth:]):
        if isinstance(step, str):
            value = {step: value}
        elif step == 0:
            value = [value]
        else:
            raise _no_such_index(path, 0)
    return value


def _check_step(node: Json, path: Path, depth: int) -> None:
    step = path[depth]
    if isinstance(node, dict):
        if not isinstance(step, str):
            raise _not_a("a list", path[:depth], node)
    elif isinstance(node, list):
        if not isinstance(step, int):
            raise _not_a("an object", path[:depth], node)
        if not 0 <= step < len(node):
            raise _no_such_index(path[: depth + 1], len(node))
    else:
        raise _not_a("an object" if isinstance(step, str) else "a list", path[:depth], node)


def _not_a(wanted: str, path: Path, found: Json) -> PatchError:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    kind = "null" if found is None else kinds.get(type(found), "a number")
    place = pointer(path) or "/"
    return PatchError(f"`{place}` is {kind} where the change needs {wanted}", path=place)


def _no_such_index(path: Path, size: int) -> PatchError:
    place = pointer(path)
    return PatchError(
        f"`{place}` is not in its list, which has {size} items",
        path=place,
        hint="append to the list to make it longer",
    )

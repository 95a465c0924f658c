"""Apply a JSON patch (RFC 6902) as the API server does.

The API server is laxer than the RFC: `replace` of a missing field adds it, indices count from the
end when negative, `copy` of a missing field gives null, and null equals a missing field in `test`.
Its errors are errors here in the same words, so that offline and online answers are equal.
"""

import json
import re
from collections.abc import Callable, Sequence

import msgspec

from policyd.api.meta import Json
from policyd.patch.draft import CopyOnWrite
from policyd.patch.operations import APPEND, Operation, PatchError, PatchTestError, same_json, steps

MAX_OPERATIONS = 10_000
"""Operations in one patch that the API server accepts."""

MAX_COPIED_BYTES = 3 * 1024 * 1024
"""Bytes of JSON that the `copy` operations of one patch may add, as in the API server."""

_NUMBER = re.compile(r"[+-]?[0-9]+")
_INDEX = re.compile(r"[+-]?[0-9]{1,18}")


def apply_json_patch(obj: Json, operations: Sequence[Operation]) -> Json:
    """Apply a JSON patch, all of it or nothing. `obj` stays as it is.

    Raises:
        PatchTestError: If a `test` operation found another value. A policy's mutation then changes
            nothing; a request to patch is refused.
        PatchError: If an operation does not fit the object, or the patch exceeds a limit.
    """
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, "
            f"got {len(operations)}",
            hint="send the changes in several patches",
        )
    document = _Document(obj)
    for operation in operations:
        _VERBS[operation.op](document, operation)
    return document.tree.root


class _Document:
    """An object that a patch is being applied to."""

    __slots__ = ("copied_bytes", "tree")

    def __init__(self, obj: Json) -> None:
        self.tree = CopyOnWrite(obj)
        self.copied_bytes = 0

    def open_parent(self, operation: Operation, path: str) -> tuple[Json, str]:
        """Return the container that `path` ends in, safe to write to, and the last step."""
        *parents, name = steps(path) or [""]
        node = self.tree.open_root() if "/" in path else None
        for step in parents:
            key = _key(node, step)
            node = self.tree.open_child(node, key) if key is not None else None
        if not isinstance(node, dict | list):
            raise _missing_path(operation, path)
        return node, name

    def find(self, operation: Operation, path: str) -> Json:
        """Return the value at `path`; null if its parent is an object without it."""
        *parents, name = steps(path) or [""]
        if "/" not in path:
            raise _missing_path(operation, path)
        node = self.tree.root
        for step in parents:
            key = _key(node, step)
            if key is None:
                raise _missing_path(operation, path)
            node = node[key]
        if isinstance(node, dict):
            return node.get(name)
        if not isinstance(node, list):
            raise _missing_path(operation, path)
        return node[_index(node, name, operation, path)]


def _key(node: Json, step: str) -> str | int | None:
    """Turn a written step into the key of an existing child; None if it does not exist."""
    if isinstance(node, dict):
        return step if step in node else None
    if isinstance(node, list) and _INDEX.fullmatch(step):
        index = int(step)
        return index if -len(node) <= index < len(node) else None
    return None


def _index(node: list[Json], name: str, operation: Operation, path: str, *, room: int = 0) -> int:
    """Read an index of a list. With `room` 1, the place after the last item counts too."""
    lead = _lead(operation, path)
    if not _INDEX.fullmatch(name):
        wrong = "value out of range" if _NUMBER.fullmatch(name) else "invalid syntax"
        what = f"value was not a proper array index: '{name}': " if room else ""
        raise PatchError(
            f"{lead}: {what}strconv.Atoi: parsing {json.dumps(name)}: {wrong}",
            path=path,
            hint="a list takes an index, or `-` for its end",
        )
    index, size = int(name), len(node) + room
    if not -size <= index < size:
        raise PatchError(
            f"{lead}: Unable to access invalid index: {index}: invalid index referenced",
            path=path,
            hint=f"the list has {len(node)} items",
        )
    return index + size if index < 0 else index


def _lead(operation: Operation, path: str) -> str:
    """Begin an error in the API server's words, which differ by operation and end."""
    copied, source = operation.op == "copy", path == operation.from_
    if copied and not source:
        return "error while adding value during copy"
    shown = steps(path)[-1] if source and not copied else path
    return f"error in {operation.op} for {'from' if copied else 'path'}: '{shown}'"


def _add(document: _Document, operation: Operation) -> None:
    _insert(document, operation, _value(operation))


def _insert(document: _Document, operation: Operation, value: Json) -> None:
    node, name = document.open_parent(operation, operation.path)
    if isinstance(node, dict):
        node[name] = value
    elif name == APPEND:
        node.append(value)
    else:
        node.insert(_index(node, name, operation, operation.path, room=1), value)


def _remove(document: _Document, operation: Operation) -> None:
    _take(document, operation, operation.path)


def _take(document: _Document, operation: Operation, path: str) -> Json:
    node, name = document.open_parent(operation, path)
    if isinstance(node, list):
        return node.pop(_index(node, name, operation, path))
    if name not in node:
        raise PatchError(
            f"{_lead(operation, path)}: Unable to remove nonexistent key: {name}: missing value",
            path=path,
            hint="remove only what is there: test for it in a condition first",
        )
    return node.pop(name)


def _replace(document: _Document, operation: Operation) -> None:
    if not operation.path:
        _replace_root(document, operation)
        return
    node, name = document.open_parent(operation, operation.path)
    if isinstance(node, list):
        try:
            node[_index(node, name, operation, operation.path)] = _value(operation)
        except PatchError as error:
            raise PatchError(
                f"replace operation does not apply: doc is missing key: {operation.path}: "
                "missing value",
                path=operation.path,
                hint=error.hint,
            ) from None
    else:
        node[name] = _value(operation)


def _replace_root(document: _Document, operation: Operation) -> None:
    value = _value(operation)
    if not isinstance(value, dict | list):
        raise PatchError("replace operation value must be object or array: %!w(<nil>)")
    document.tree.root = value


def _move(document: _Document, operation: Operation) -> None:
    _insert(document, operation, _take(document, operation, _source(operation)))


def _copy(document: _Document, operation: Operation) -> None:
    value = document.find(operation, _source(operation))
    encoded = msgspec.json.encode(value)
    document.copied_bytes += len(encoded)
    if document.copied_bytes > MAX_COPIED_BYTES:
        raise PatchError(
            "Unable to complete the copy, the accumulated size increase of copy is "
            f"{document.copied_bytes}, exceeding the limit {MAX_COPIED_BYTES}",
            path=operation.path,
        )
    # A deep copy, as the value may be this document's own, to be written to in one place only.
    _insert(document, operation, msgspec.json.decode(encoded))


def _test(document: _Document, operation: Operation) -> None:
    found = document.find(operation, operation.path) if operation.path else document.tree.root
    if not same_json(found, _value(operation)):
        raise PatchTestError(
            f"testing value {operation.path} failed: test failed", path=operation.path
        )


_VERBS: dict[str, Callable[[_Document, Operation], None]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _value(operation: Operation) -> Json:
    """Return the value to write: one left out is null."""
    return None if operation.value is msgspec.UNSET else operation.value


def _source(operation: Operation) -> str:
    if operation.from_ is msgspec.UNSET:
        raise PatchError(
            f"{operation.op} operation failed to decode from: operation, missing from field: "
            "missing value",
            path=operation.path,
            hint="`from` names the place to take the value from",
        )
    return operation.from_


def _missing_path(operation: Operation, path: str) -> PatchError:
    """Say in the API server's words, which differ by operation, that a parent is missing."""
    what = "is missing path" if operation.op == "test" else "doc is missing path"
    if operation.op in {"move", "copy"}:
        end = "destination" if path == operation.path else "from"
        what = f"doc is missing {end} path"
    quoted = f'"{path}"' if operation.op in {"add", "remove"} else path
    return PatchError(
        f"{operation.op} operation does not apply: {what}: {quoted}: missing value",
        path=path,
        hint="add the parents first, each as an empty object",
    )

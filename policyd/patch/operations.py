"""Represent RFC 6902 operations and JSON pointers."""

from typing import Literal

import msgspec

from policyd.api.meta import Json
from policyd.errors import PolicydError

Path = tuple[str | int, ...]
"""The position of a value in an object: field names, and indices of lists."""

Verb = Literal["add", "remove", "replace", "move", "copy", "test"]

APPEND = "-"
"""The last step of a pointer that stands for the end of a list."""


class PatchError(PolicydError):
    """A patch cannot be applied to this object.

    `path` is the JSON pointer of the place at fault, as the patch wrote it; empty if the patch as
    a whole is.
    """

    def __init__(self, message: str, *, path: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path


class PatchTestError(PatchError):
    """A `test` operation found another value than it expected: the patch must not be applied."""


class Operation(
    msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename={"from_": "from"}
):
    """One step of a JSON patch. `value` left out is not the same as null."""

    op: Verb
    path: str
    from_: str | msgspec.UnsetType = msgspec.UNSET
    value: Json | msgspec.UnsetType = msgspec.UNSET


def pointer(path: Path) -> str:
    """Write `path` as a JSON pointer."""
    written = "/".join(("", *map(str, path)))
    if "~" not in written and written.count("/") == len(path):
        return written
    names = [str(step).replace("~", "~0").replace("/", "~1") for step in path]
    return "/".join(("", *names))


def steps(written: str) -> list[str]:
    """Read a JSON pointer as field names and written indices.

    What stands before the first slash is skipped, as the API server does.
    """
    names = written.split("/")[1:]
    if "~" not in written:
        return names
    return [name.replace("~1", "/").replace("~0", "~") for name in names]


def parse_operations(patch: Json) -> tuple[Operation, ...]:
    """Read a decoded JSON patch.

    Raises:
        PatchError: If it is not a list of operations, each with a known `op` and a `path`.
    """
    try:
        return msgspec.convert(patch, tuple[Operation, ...])
    except msgspec.ValidationError as error:
        raise PatchError(
            f"not a JSON patch: {error}",
            hint='a JSON patch is a list such as [{"op": "add", "path": "/a", "value": 1}]',
        ) from error


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

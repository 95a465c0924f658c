"""Fields that a JSON document gives twice: only a reader of its own sees them."""

import json
from collections.abc import Iterator
from typing import Any


class _Given(dict[str, Any]):
    """An object as it is read, with the names that stand in it more than once."""

    __slots__ = ("repeated",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: list[str] = []
        if len(self) < len(pairs):
            seen: set[str] = set()
            for name, _ in pairs:
                if name in seen and name not in self.repeated:
                    self.repeated.append(name)
                seen.add(name)


def duplicate_fields(body: bytes) -> list[str]:
    """Return the paths of fields that a JSON document gives more than once."""
    try:
        value = json.loads(body, object_pairs_hook=_Given)
    except (ValueError, RecursionError):
        return []  # who reads it says what is wrong with it
    return list(_paths(value, ""))


def _paths(value: object, path: str) -> Iterator[str]:
    if isinstance(value, _Given):
        for name, part in value.items():
            at = f"{path}.{name}" if path else name
            if name in value.repeated:
                yield at
            yield from _paths(part, at)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _paths(item, f"{path}[{index}]")

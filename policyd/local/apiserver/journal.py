"""Keeping the objects in a file: a line for each change, and a fresh snapshot at every start."""

import os
from pathlib import Path
from typing import TextIO

import msgspec

from policyd.errors import ConfigurationError
from policyd.local.apiserver.status import Object
from policyd.local.apiserver.store import Store, StoreEvent, key_of

LINES_LIMIT = 50_000
"""Changes after which the file is written anew, with the objects alone."""


class _Line(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """An object as it was stored, or the key of a deleted one."""

    resource: str = ""
    object: Object | None = None
    gone: tuple[str, str] | None = None
    version: int = 0


class Journal:
    """The file of one store. A line cut short by a crash is dropped, and so are all after it."""

    def __init__(self, path: Path, store: Store) -> None:
        """Load the objects of the file into the store, and record its changes from now on.

        Raises:
            ConfigurationError: If the file cannot be read or written, or is something else's.
        """
        self._path = path
        self._store = store
        try:
            self._load()
            self._file = self._rewritten()
        except OSError as error:
            raise ConfigurationError(
                f"cannot keep state in `{path}`: {error.strerror}", hint="choose another file"
            ) from error
        store.listen(self._append)

    def _load(self) -> None:
        if not self._path.exists():
            return
        decoder = msgspec.json.Decoder(_Line)
        objects: dict[tuple[str, str, str], Object] = {}
        version = 0
        for number, text in enumerate(self._path.read_bytes().splitlines()):
            try:
                line = decoder.decode(text)
            except msgspec.DecodeError as error:
                if number == 0:  # written at once with the rest: no crash cuts it short
                    raise _not_ours(self._path) from error
                break
            version = max(version, line.version)
            if line.object is not None:
                objects[line.resource, *key_of(line.object)] = line.object
            elif line.gone is not None:
                objects.pop((line.resource, *line.gone), None)
        for (resource, _, _), value in objects.items():
            self._store.load(resource, value)
        self._store.continue_from(version)

    def _rewritten(self) -> TextIO:
        """Write the file anew beside the old one, and put it in its place."""
        fresh = self._path.with_name(f"{self._path.name}.new")
        # For its owner's eyes only: there are Secrets in it.
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(_encoded(_Line(version=self._store.version)))
            for resource, value in self._store:
                file.write(_encoded(_Line(resource=resource, object=value)))
        fresh.replace(self._path)
        self._lines = 0
        return self._path.open("a", buffering=1)

    def _append(self, event: StoreEvent) -> None:
        if event.type == "DELETED":
            gone = key_of(event.object)
            line = _Line(resource=event.resource, gone=gone, version=event.version)
        else:
            line = _Line(resource=event.resource, object=event.object, version=event.version)
        self._file.write(_encoded(line))
        self._lines += 1
        if self._lines > LINES_LIMIT:
            self._file.close()
            self._file = self._rewritten()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _not_ours(path: Path) -> ConfigurationError:
    return ConfigurationError(
        f"`{path}` is not a state file of policyd",
        hint="it would be overwritten: name a new file, or one that `policyd up` wrote",
    )


def _encoded(line: _Line) -> str:
    return msgspec.json.encode(line).decode() + "\n"

"""Passwords of registries, from a file as Docker keeps them: a Secret's `.dockerconfigjson`.

Errors quote nothing of it but the names of registries.
"""

from base64 import b64decode, b64encode
from pathlib import Path
from typing import Final

import msgspec

from policyd.errors import ConfigurationError
from webhooks.certificate.files import read_file

_DOCKER: Final = "index.docker.io"
_DOCKERS: Final = ("docker.io", "registry-1.docker.io")
"""Other names of Docker's registry."""


class _Entry(msgspec.Struct, frozen=True):
    auth: str = ""
    username: str = ""
    password: str = ""


class _File(msgspec.Struct, frozen=True):
    auths: dict[str, _Entry]


class Passwords:
    """The passwords of registries.

    Args of the constructor:
        path: The file; None for no passwords.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._given: dict[str, str] = {}

    def read(self) -> None:
        """Read the file anew.

        Raises:
            ConfigurationError: If it cannot be read. The earlier passwords stay in use.
        """
        if self._path is None:
            return
        try:
            entries = msgspec.json.decode(read_file(self._path), type=_File).auths
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise ConfigurationError(
                f"`{self._path}` has no registry passwords",
                hint="create it with `docker login` or `kubectl create secret docker-registry`",
            ) from None
        given = {_place(name): _encoded(name, entry) for name, entry in entries.items()}
        self._given = {place: text for place, text in given.items() if text}

    def of(self, place: str) -> str:
        """Return the `Authorization` for a repository, `ghcr.io/team/app`; empty if there is none.

        An entry counts for all below it, and the nearest one alone.
        """
        while place and place not in self._given:
            place = place.rpartition("/")[0]
        return self._given.get(place, "")


def _place(name: str) -> str:
    """Return a registry, or a path below one, as references to images name it."""
    host, _, below = name.rpartition("://")[2].strip("/").partition("/")
    host = _DOCKER if host in _DOCKERS else host
    return f"{host}/{below}" if below not in ("", "v1", "v2") else host


def _encoded(name: str, entry: _Entry) -> str:
    """Return the header; empty if the entry has no password, as one of a helper."""
    if not entry.auth and not entry.password:
        return ""
    try:
        pair = b64decode(entry.auth, validate=True) or f"{entry.username}:{entry.password}".encode()
    except ValueError:
        pair = b""
    if b":" not in pair:
        raise ConfigurationError(
            f"`auth` of `{name}` is not a valid password", hint="write `user:password` in base64"
        )
    return f"Basic {b64encode(pair).decode()}"

"""Kubeconfig files: read, merged as kubectl merges them, and narrowed down to one context.

Of several files the first that names something decides, the current context included. A relative
path is relative to the file that names it.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import yaml

from policyd.api.yaml_texts import plain_yaml
from policyd.errors import ConfigurationError, did_you_mean, system_reason


class _Section(msgspec.Struct, frozen=True, rename="kebab"):
    pass


class KubeconfigCluster(_Section, frozen=True):
    """An API server."""

    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: tuple[dict[str, Any], ...] | None = None


class KubeconfigUser(_Section, frozen=True):
    """The credentials of the user."""

    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    username: str | None = None
    password: str | None = None
    exec: dict[str, Any] | None = None
    auth_provider: dict[str, Any] | None = None
    as_user: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}


class Context(_Section, frozen=True):
    """A cluster and a user together."""

    cluster: str = ""
    user: str = ""
    namespace: str = "default"


class _Named(Protocol):
    @property
    def name(self) -> str: ...


E = TypeVar("E")
N = TypeVar("N", bound=_Named)


class _NamedCluster(_Section, frozen=True):
    name: str
    cluster: KubeconfigCluster = KubeconfigCluster()


class _NamedUser(_Section, frozen=True):
    name: str
    user: KubeconfigUser | None = None


class _NamedContext(_Section, frozen=True):
    name: str
    context: Context = Context()


class _File(_Section, frozen=True):
    clusters: tuple[_NamedCluster, ...] | None = None
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] | None = None
    current_context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedContext:
    """One context, with the cluster and user that it names, and the folders of their files."""

    files: tuple[Path, ...]
    context: str
    namespace: str
    cluster: KubeconfigCluster
    cluster_folder: Path
    user: KubeconfigUser
    user_folder: Path


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """Files that have been read, in the order of their precedence."""

    files: tuple[tuple[Path, _File], ...]

    @property
    def name(self) -> str:
        """The files' names, for messages."""
        return "`" + ":".join(str(path) for path, _ in self.files) + "`"

    def choose(self, context: str = "") -> SelectedContext:
        """Choose a context, by default the current one.

        Raises:
            ConfigurationError: If something that is named is not there.
        """
        context = context or self._current_context()
        contexts = self._merged(lambda file: file.contexts)
        if not context:
            raise ConfigurationError(
                f"kubeconfig {self.name} has no current context", hint=_listed(contexts)
            )
        chosen = self._find("context", context, contexts)[1].context
        clusters = self._merged(lambda file: file.clusters)
        cluster_path, cluster = self._find("cluster", chosen.cluster, clusters)
        users = self._merged(lambda file: file.users)
        user_path, user = self._find("user", chosen.user, users) if chosen.user else (Path(), None)
        return SelectedContext(
            files=tuple(path for path, _ in self.files),
            context=context,
            namespace=chosen.namespace or "default",
            cluster=cluster.cluster,
            cluster_folder=cluster_path.parent,
            user=(user.user if user else None) or KubeconfigUser(),
            user_folder=user_path.parent,
        )

    def _current_context(self) -> str:
        return next((file.current_context for _, file in self.files if file.current_context), "")

    def _merged(self, pick: Callable[[_File], Iterable[N] | None]) -> dict[str, tuple[Path, N]]:
        merged: dict[str, tuple[Path, N]] = {}
        for path, file in self.files:
            for entry in pick(file) or ():
                merged.setdefault(entry.name, (path, entry))
        return merged

    def _find(self, what: str, name: str, entries: Mapping[str, E]) -> E:
        if name not in entries:
            raise ConfigurationError(
                f"kubeconfig {self.name} has no {what} `{name}`",
                hint=did_you_mean(name, entries) or _listed(entries),
            )
        return entries[name]


def read_kubeconfig(paths: Sequence[Path]) -> Kubeconfig:
    """Read kubeconfig files; of several, those that do not exist are left out.

    Raises:
        ConfigurationError: If none exists, or one is not a kubeconfig.
    """
    found = [path for path in paths if path.is_file()]
    if not found:
        names = ":".join(str(path) for path in paths)
        raise ConfigurationError(
            f"kubeconfig `{names}` does not exist", hint="is the path right, and KUBECONFIG?"
        )
    return Kubeconfig(tuple((path, _read(path)) for path in found))


def content(data: str | None, file: str | None, folder: Path, *, what: str) -> bytes | None:
    """Return data that is given as base64 or in a file; base64 has priority, as with kubectl.

    Raises:
        ConfigurationError: If it cannot be read.
    """
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise ConfigurationError(f"`{what}-data` of the kubeconfig is not base64") from error
    return read_file(folder / file, what=what) if file else None


def read_file(path: Path, *, what: str) -> bytes:
    """Return the content of a file that the kubeconfig names.

    Raises:
        ConfigurationError: If it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"{what} `{path}` cannot be read: {system_reason(error)}"
        raise ConfigurationError(message) from error


def _read(path: Path) -> _File:
    try:
        plain = plain_yaml(read_file(path, what="kubeconfig"))
        return msgspec.convert(plain or {}, _File)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ConfigurationError(f"kubeconfig `{where}` is not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"kubeconfig `{path}` is not YAML: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"`{path}` is not a kubeconfig: {error}") from error


def _listed(entries: Iterable[str]) -> str:
    names = ", ".join(sorted(entries))
    return f"it has: {names}" if names else "it has none at all"

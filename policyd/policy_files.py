"""The files in which policies are kept: those that are named, and those of the folders named.

Users other than the caller may write to a folder. A link that leads out of it is not one of its
files; a link that stays inside is followed, as in a mounted ConfigMap.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from policyd.errors import ConfigurationError, system_reason

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
"""Suffixes of policy files in a folder; a file that is named itself may have any."""

CASES = "cases.yaml"
"""The cases beside a policy: no policies themselves."""

KYVERNO_TEST = "kyverno-test.yaml"
"""The name of a file of Kyverno's tests."""

KUSTOMIZATION = "kustomization.yaml"
"""Names the files of a folder that are used, and is not a policy itself."""

MOST_FILES: Final = 10_000
"""Policy files of a folder."""

MOST_BYTES: Final = 64 * 1024 * 1024
"""How long a file may be."""

_TRIES: Final = 3
"""How often a file is read that changes meanwhile."""

LeftOut = Callable[[Path, str], None]
"""Called with a file that looks like a policy, and the reason why it is not read."""


class FileError(ConfigurationError):
    """A file is not one that is read."""


def policy_files(paths: Iterable[Path], left_out: LeftOut = lambda _file, _why: None) -> list[Path]:
    """Return the files, and the YAML and JSON files of the folders.

    Each file is named once, in the order of `paths`, a folder's files in the order of their names.
    Hidden files, tests, a kustomization, and links that lead out of a folder are left out.

    Raises:
        FileError: If a folder has too many, or a folder in it cannot be read.
    """
    files = (file for path in paths for file in _files(path, left_out))
    return list(dict.fromkeys(files))


def default_files(library: Path) -> list[Path]:
    """Return the files of a library's policies that are installed unless others are chosen."""
    chosen = yaml.safe_load((library / KUSTOMIZATION).read_text())["resources"]
    return [library / name for name in chosen]


def read_file(file: Path, *, pipes: bool = False) -> bytes:
    """Read a file as it was at one time.

    Args:
        file: The file; if it is a link, its target is read.
        pipes: Whether it may be a pipe, as a shell makes one.

    Raises:
        FileError: If it is not a file, too long, or changes at each read.
        OSError: If it cannot be read.
    """
    for _ in range(_TRIES):
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | (0 if pipes else os.O_NONBLOCK))
        with open(descriptor, "rb") as opened:  # noqa: PTH123 - a Path cannot be opened once only
            before = os.fstat(descriptor)
            if not (stat.S_ISREG(before.st_mode) or (pipes and stat.S_ISFIFO(before.st_mode))):
                raise FileError(f"`{file}` is not a file", hint="name a file, or a folder of files")
            content = opened.read(MOST_BYTES + 1)
            after = os.fstat(descriptor)
        if len(content) > MOST_BYTES:
            raise FileError(
                f"`{file}` has more than {MOST_BYTES:,} bytes",
                hint="split it into several files",
            )
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            return content
    raise FileError(
        f"`{file}` changes while it is read", hint="write it to a new file, and rename that"
    )


def _files(path: Path, left_out: LeftOut) -> list[Path]:
    if not path.is_dir():
        return [path]
    found: list[Path] = []
    for file in _Folder(path, left_out).files():
        if len(found) >= MOST_FILES:
            raise FileError(
                f"`{path}` has more than {MOST_FILES:,} policy files",
                hint="name the folders in it that are meant",
            )
        found.append(file)
    return sorted(found)


class _Folder:
    """One folder, with its subfolders."""

    def __init__(self, root: Path, left_out: LeftOut) -> None:
        self._root = root
        self._real = root.resolve()
        self._left_out = left_out
        self._seen: set[Path] = set()

    def files(self) -> Iterator[Path]:
        """Yield the policy files, in no order."""
        folders = [self._root]
        while folders:
            folder = folders.pop()
            real = folder.resolve()
            if real in self._seen:
                continue  # it was reached by another link
            self._seen.add(real)
            for entry in _entries(folder):
                if entry.name.startswith("."):
                    continue
                if _is_folder(entry):
                    folders += [entry] if self._is_inside(entry) else []
                elif _is_named_as_policy(entry) and self._is_inside(entry) and self._is_file(entry):
                    yield entry

    def _is_inside(self, entry: Path) -> bool:
        """Tell whether the target of an entry is in the folder."""
        try:
            if entry.resolve(strict=True).is_relative_to(self._real):
                return True
            why = "it leads out of the folder"
        except (OSError, RuntimeError) as error:
            why = system_reason(error) if isinstance(error, OSError) else "its links go round"
        self._left_out(entry, why)
        return False

    def _is_file(self, entry: Path) -> bool:
        if entry.is_file():
            return True
        self._left_out(entry, "it is not a file")
        return False


@contextmanager
def _unless_gone(path: Path) -> Iterator[None]:
    """Pass over what is gone since it was listed; what cannot be read may be what matters."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise FileError(
            f"cannot read `{path}`: {system_reason(error)}",
            hint="allow that it is read, or name the files and folders that are meant",
        ) from error


def _entries(folder: Path) -> list[Path]:
    with _unless_gone(folder):
        return sorted(folder.iterdir())
    return []


def _is_folder(entry: Path) -> bool:
    with _unless_gone(entry):
        return entry.is_dir()
    return False


def _is_named_as_policy(file: Path) -> bool:
    return file.suffix in SUFFIXES and file.name not in (CASES, KYVERNO_TEST, KUSTOMIZATION)

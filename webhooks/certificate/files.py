"""Files that may change while the process runs.

They are looked at every few seconds, which works on every kind of volume: a Secret mounted into a
pod is swapped through a symbolic link, without a notice.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import structlog

from policyd import policy_files
from policyd.errors import ConfigurationError, PolicydError, system_reason

Fingerprint = frozenset[tuple[str, int, int, int]]
"""Path, inode, size and time of the last change (ns) of each file."""

log = structlog.get_logger(__name__)


def fingerprint(paths: Iterable[Path]) -> Fingerprint:
    """Describe the files, and those in the folders, so that any change shows."""
    return frozenset(entry for path in paths for entry in _entries(path))


async def follow(
    paths: Iterable[Path], *, since: Fingerprint, changed: Callable[[], None], every: float
) -> NoReturn:
    """Call `changed` after each change of the files, for as long as the task lives.

    A PolicydError of `changed` is logged, and the earlier files stay in use.

    Args:
        paths: Files and folders.
        since: Their fingerprint from before they were read, so that no change is missed.
        changed: Reads them anew.
        every: Seconds between two looks.
    """
    paths, seen = tuple(paths), since
    while True:
        await asyncio.sleep(every)
        current = await asyncio.to_thread(fingerprint, paths)
        if current == seen:
            continue
        seen = current
        try:
            changed()
        except PolicydError as error:
            log.warning("change_refused", reason=str(error), hint=error.hint)


def read_file(path: Path) -> bytes:
    """Read a file that settings name, or one of a folder that they name.

    Raises:
        ConfigurationError: If it cannot be read.
    """
    try:
        return policy_files.read_file(path)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read `{path}`: {system_reason(error)}",
            hint="check the paths and their permissions",
        ) from error


def _entries(path: Path) -> Iterator[tuple[str, int, int, int]]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in files:
        try:
            stat = file.stat()
        except OSError:
            continue  # gone since it was listed: its absence is the change
        yield str(file), stat.st_ino, stat.st_size, stat.st_mtime_ns

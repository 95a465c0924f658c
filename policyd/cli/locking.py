"""Files that a process keeps to itself: a second one would take them from the first, unseen."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from policyd.errors import ConfigurationError, system_reason


@contextmanager
def kept_to_itself(path: Path) -> Iterator[None]:
    """Keep other processes from using a file in this way while the block runs.

    The lock is a file beside it, since the file itself is replaced when it is written. It ends with
    the process, however that ends.

    Raises:
        ConfigurationError: If another process keeps it, or no file can be made there.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write next to `{path}`: {system_reason(error)}", hint="name another file"
        ) from error
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _taken(path, file.read().strip()) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _taken(path: Path, process: str) -> ConfigurationError:
    by = f"process {process}" if process else "another process"
    return ConfigurationError(
        f"`{path}` is in use by {by}, another `policyd up`",
        hint="stop that one, or name another file: `--kubeconfig`, and `--state` if there is one",
    )

"""The files that commands are given: paths, folders, standard input."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import click

from policyd.errors import system_reason
from policyd.policy_files import FileError, policy_files, read_file
from policyd.standard_input import STANDARD_INPUT, STANDARD_INPUT_NAME, standard_input


def texts(paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file that `paths` mean, cases left out of folders.

    Raises:
        click.UsageError: If one cannot be read.
    """
    for path in paths:
        if path == STANDARD_INPUT:
            yield STANDARD_INPUT_NAME, standard_input()
            continue
        for file in policy_files([Path(path)], _note_left_out):
            yield str(file), content(file)


def text_of(path: str) -> tuple[str, bytes]:
    """Return the name and content of a file, or of standard input.

    Raises:
        click.UsageError: If it cannot be read.
    """
    if path == STANDARD_INPUT:
        return STANDARD_INPUT_NAME, standard_input()
    return path, content(Path(path))


def _note_left_out(file: Path, why: str) -> None:
    click.echo(f"warning: {file} is not read: {why}", err=True)


def content(file: Path) -> bytes:
    """Read a file.

    Raises:
        click.UsageError: If it cannot be read.
    """
    try:
        return read_file(file, pipes=True)
    except FileError as error:
        raise click.UsageError(f"{error}: {error.hint}") from error
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {system_reason(error)}") from error


def cannot_read(error: OSError) -> NoReturn:
    """Say that a folder in a folder cannot be read: what is in it may be what matters.

    Raises:
        click.UsageError: Always.
    """
    raise click.UsageError(f"cannot read {error.filename}: {system_reason(error)}") from error

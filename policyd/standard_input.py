"""Standard input where a file is asked for, by `-`."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final

import click

from policyd.policy_files import MOST_BYTES

STANDARD_INPUT: Final = "-"
STANDARD_INPUT_NAME: Final = "stdin"
"""The name of standard input in findings."""

_READ: Final = "policyd.standard_input"


def open_standard_input() -> BinaryIO:
    """Return standard input, which a command can read once.

    Raises:
        click.UsageError: If the command has read it before.
    """
    command = click.get_current_context(silent=True)
    if command is not None:
        if _READ in command.meta:
            raise click.UsageError("standard input can be read only once")
        command.meta[_READ] = True
    return sys.stdin.buffer


def standard_input() -> bytes:
    """Read standard input.

    Raises:
        click.UsageError: If it was read before, or is too long.
    """
    text = open_standard_input().read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise click.UsageError(f"standard input has more than {MOST_BYTES:,} bytes")
    return text


class StoredFile(click.ParamType[str]):
    """A file or folder that a process reads again and again: standard input is stored as one.

    It exists until the command ends, readable for its user only.
    """

    name = "file"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click has it
        param: click.Parameter | None,  # noqa: ARG002
        ctx: click.Context | None,
    ) -> str:
        """Return a path; for `-`, the path of a file with standard input.

        Raises:
            click.UsageError: If standard input was read before, or is too long.
        """
        if value != STANDARD_INPUT or ctx is None:
            return str(value)
        with ctx.scope(cleanup=False):
            text = standard_input()
        folder = ctx.find_root().with_resource(TemporaryDirectory(prefix="policyd-"))
        file = Path(folder) / STANDARD_INPUT_NAME
        file.write_bytes(text)
        return str(file)


STORED_FILE: Final = StoredFile()
"""Any file; the reader of it checks that it exists."""

PATH: Final = click.Path(exists=True, allow_dash=True)
"""A file, a folder, or `-`."""

FILE: Final = click.Path(exists=True, allow_dash=True, dir_okay=False)
"""A file, or `-`."""

"""Options that several commands have, so that they are said the same way."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from policyd.cli.formats.files import PATH

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Option = Callable[[_Command], _Command]

POLICIES = click.option(
    "-p", "--policies", multiple=True, required=True, type=PATH, help="Policies: file, folder or -."
)
OBJECTS = click.option(
    "-f",
    "--filename",
    "objects",
    multiple=True,
    required=True,
    type=PATH,
    help="Objects: file, folder or -.",
)
TEXT_OR_JSON = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="For people, or for programs.",
)
USER = click.option("--user", default="someone", help="User that sends the request.")
GROUPS = click.option(
    "--group", "groups", multiple=True, help="Group of that user; may be repeated."
)


def together(*options: _Option[Any]) -> _Option[Any]:
    """Return a decorator that gives a command several options, in the order of its help."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate

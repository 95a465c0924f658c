"""Options that several commands have, so that they are the same in all."""

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

import click

from policyd.standard_input import FILE, PATH, STORED_FILE

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
OBJECTS_IF_ANY = click.option(
    "-f", "--filename", "objects", multiple=True, type=PATH, help="Objects: file, folder or -."
)
KUBECONFIG = click.option(
    "--kubeconfig",
    default="",
    type=STORED_FILE,
    metavar="FILE",
    help="How to reach the API server.",
)
CONTEXT = click.option(
    "--context", default="", help="A context of the kubeconfig; its current one if not."
)
SNAPSHOT = click.option(
    "--snapshot",
    type=FILE,
    metavar="FILE",
    help="The queues that policies read: a queue snapshot.",
)
TEXT_OR_JSON = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="For people, or for programs.",
)
AS_WRITTEN = click.option(
    "--as-written",
    is_flag=True,
    help="Show Kyverno's policies objects without defaults, as its CLI does.",
)
"""The option for the objects that Kyverno's policies see."""
USER = click.option("--user", default="someone", help="User that sends the request.")
GROUPS = click.option(
    "--group", "groups", multiple=True, help="Group of that user; may be repeated."
)


class ContextOptions(TypedDict):
    """The options for the cluster that a command asks."""

    kubeconfig: str
    context: str


class ClusterOptions(ContextOptions):
    """The options of commands that can read a cluster."""

    cluster: bool


def from_cluster(what: str) -> _Option[Any]:
    """Return the options of a command that can read a cluster.

    Args:
        what: What it reads from there, for its help.
    """
    return together(
        click.option("--cluster", is_flag=True, help=f"Read {what} from the cluster."),
        KUBECONFIG,
        CONTEXT,
    )


def check_cluster(given: ClusterOptions) -> None:
    """Check that a cluster is named only where one is read.

    Raises:
        click.UsageError: If that is not so.
    """
    for name in ("kubeconfig", "context"):
        if given[name] and not given["cluster"]:
            raise click.UsageError(f"--{name} needs --cluster")


def one_source(given: ClusterOptions, file: object, name: str, *, others: str = "") -> None:
    """Check that a command reads either a file or a cluster.

    Args:
        given: The options.
        file: The file, if one is given.
        name: How the command's help calls it.
        others: Other sources, which the caller has looked at.

    Raises:
        click.UsageError: If both are given, or none.
    """
    check_cluster(given)
    if given["cluster"] and file:
        raise click.UsageError(f"{name} and --cluster cannot be used together")
    if not given["cluster"] and not file:
        raise click.UsageError(f"{name}{others and f', {others}'} or --cluster is required")


def watch_option(description: str) -> _Option[Any]:
    """Return the option `--watch` of a command."""
    return click.option("-w", "--watch", is_flag=True, help=description)


def together(*options: _Option[Any]) -> _Option[Any]:
    """Return a decorator that gives a command several options, in the order of its help."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


IMPACT_OPTIONS = together(
    click.option(
        "--team",
        default="namespace",
        show_default=True,
        metavar="KEY",
        help="A summary's team: a label of namespaces, `namespace`, or `queue`.",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=1, max=1024),
        help="Processes that judge for a summary.  [one for each core]",
    ),
)
"""The options of the commands that sum up what policies would refuse and change."""

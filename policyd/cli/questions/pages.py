"""Answers on standard output: once, or again whenever they have changed."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar, get_args

import click
import msgspec
from rich.live import Live
from rich.text import Text

from policyd.cli.formats.tables import console
from policyd.cli.formats.yaml_lines import yaml_text
from policyd.kube.errors import ApiError, UnreachableError
from policyd.terminal import without_controls

Output = Literal["table", "wide", "json", "yaml"]
OUTPUT: Final = click.option(
    "-o",
    "--output",
    type=click.Choice(get_args(Output)),
    default="table",
    show_default=True,
    help="For people, with more columns, or for programs.",
)

WATCH_SECONDS: Final = 2.0
"""Between two questions: the controller makes no newer snapshot before."""
READING_SECONDS: Final = 10.0
"""The same where each reads all workloads of a cluster."""
_PASSING: Final = frozenset({429, 500, 502, 503, 504})
"""Answers of an API server that may be another in a moment."""

T = TypeVar("T")


def same(answer: object) -> object:
    """Return an answer itself: whatever changes in it, it is printed again."""
    return answer


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """How answers are printed: for people by `lines`, for programs as they are.

    Attributes:
        output: The format.
        lines: Writes an answer for people; without lines, `empty` is printed.
        version: Returns what of an answer is another when it is to be printed again.
    """

    output: Output
    lines: Callable[[T], Iterable[str]]
    empty: str = ""
    version: Callable[[T], object] = same

    @property
    def for_people(self) -> bool:
        """Whether people read it."""
        return self.output in {"table", "wide"}

    def show(self, answer: T) -> None:
        """Print an answer."""
        if not self.for_people:
            show_values(answer, self.output)
        elif text := self.text(answer):
            click.echo(text)
        else:
            click.echo(self.empty, err=True)

    def text(self, answer: T) -> str:
        """Return an answer as people read it; "" if it has nothing."""
        return "\n".join(self.lines(answer))


async def watch(
    page: Page[T], ask: Callable[[], Awaitable[T]], *, seconds: float = WATCH_SECONDS
) -> None:
    """Print an answer each time it has changed, until cancelled.

    On a terminal, it stays where it is, and ages grow.

    Args:
        page: How it is printed.
        ask: Asks once.
        seconds: Between two questions.

    Raises:
        ApiError: If the API server refuses; if it does not answer, only for the first time.
    """
    out = console(moves=True)
    shown: T | None = None
    with ExitStack() as stack:
        live: Live | None = None
        if page.for_people and out.is_terminal:
            live = stack.enter_context(Live(console=out, auto_refresh=False))
        while True:
            try:
                answer = await ask()
            except ApiError as error:
                if shown is None or not _passes(error):
                    raise
                click.secho(f"warning: {error}; asking again", fg="yellow", err=True)
            else:
                if live is not None:
                    text = without_controls(page.text(answer) or page.empty)
                    live.update(Text.from_ansi(text), refresh=True)
                elif shown is None or page.version(answer) != page.version(shown):
                    _show_next(page, answer, first=shown is None)
                shown = answer
            await asyncio.sleep(seconds)


def _passes(error: ApiError) -> bool:
    return isinstance(error, UnreachableError) or error.code in _PASSING


def _show_next(page: Page[T], answer: T, *, first: bool) -> None:
    """Print an answer after others: apart from them by an empty line, or as a document."""
    if not first and page.output != "json":
        click.echo("---" if page.output == "yaml" else "")
    page.show(answer)


async def unless_stopped(work: asyncio.Task[Any], stop: asyncio.Event) -> None:
    """Wait for work; if the process is interrupted before, cancel it.

    Raises:
        click.Abort: If it was interrupted: exit code 130.
    """
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.wait({work})
            raise click.Abort
        await work
    finally:
        stopped.cancel()


def show_values(found: object, output: Output) -> None:
    """Print values for programs."""
    plain = msgspec.to_builtins(found)
    if output == "json":
        click.echo(json.dumps(plain, indent=2))
    else:
        click.echo(yaml_text(plain), nl=False)

"""The parts that commands share which ask the queues of a cluster: options, snapshot, output."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, NotRequired, TypeVar

import click

from policyd.cli.clusters import connection_for
from policyd.cli.formats.files import text_of
from policyd.cli.options import CONTEXT, KUBECONFIG, ContextOptions, together, watch_option
from policyd.cli.questions.pages import OUTPUT, Output, Page, same, unless_stopped, watch
from policyd.clock import SystemClock
from policyd.errors import did_you_mean
from policyd.kube.client import Reader
from policyd.kube.http_client import HttpClient
from policyd.process import run
from policyd.questions import snapshots
from policyd.questions.known_names import NameFilter, check_names, unknown_names
from policyd.snapshot.reading import OLD_SECONDS, read
from policyd.snapshot.values import QueueSnapshot
from policyd.standard_input import FILE
from policyd.status.ages import duration

T = TypeVar("T")


class QuestionOptions(ContextOptions):
    """The options that these commands share."""

    namespace: str
    snapshot: NotRequired[str | None]
    output: Output
    watch: bool


_FIRST: Final = (
    KUBECONFIG,
    CONTEXT,
    click.option("-n", "--namespace", default="", help="Namespace to ask for.  [the context's]"),
)
_LAST: Final = (
    OUTPUT,
    watch_option("Ask every two seconds, and print the answer again when it has changed."),
)
OF_CLUSTER = together(*_FIRST, *_LAST)
"""The options of questions that only a cluster can answer."""

SHARED = together(
    *_FIRST,
    click.option(
        "--snapshot",
        type=FILE,
        metavar="FILE",
        help="Read a queue snapshot from a file, or -, instead of asking a cluster.",
    ),
    *_LAST,
)
ALL_NAMESPACES = click.option(
    "-A",
    "--all-namespaces",
    "everywhere",
    is_flag=True,
    help="All queues of the cluster, not only those that the namespace shares quota with.",
)


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """What a command asks, and how it prints the answer.

    Attributes:
        of_cluster: Asks a cluster, for a namespace.
        of_file: Asks a snapshot that was kept; None if the command has no
            `--snapshot`.
        lines: Writes an answer for people; without lines, `empty` is printed.
        empty: What to say of an answer that has nothing.
        version: Returns what of an answer is another when it is to be printed again.
        hint: What to say after `empty` if a cluster was asked.
    """

    of_cluster: Callable[[Reader, str], Awaitable[T]]
    of_file: Callable[[QueueSnapshot], T] | None
    lines: Callable[[T], Iterable[str]]
    empty: str = ""
    version: Callable[[T], object] = same
    hint: str = ""


_ONLY_HERE: Final = " in the queues that the namespace submits to; -A asks for the whole cluster"


def of_snapshot(
    answer: Callable[[QueueSnapshot], T],
    lines: Callable[[T], Iterable[str]],
    *,
    everywhere: bool,
    empty: str = "",
    filters: Callable[[QueueSnapshot], Iterable[NameFilter]] = lambda _: (),
) -> Question[T]:
    """Return a question that a snapshot answers alone.

    Args:
        answer: Answers it.
        lines: Writes the answer for people.
        everywhere: Whether to ask for the whole cluster.
        empty: What to say of an answer that has nothing.
        filters: The names by which the answer is filtered: there has to be something of each.
    """

    async def of_cluster(reader: Reader, namespace: str) -> T:
        where = "" if everywhere else namespace
        snapshot = await ask(reader, where)
        warn_of(await check_names(reader, where, filters(snapshot)))
        return answer(snapshot)

    def of_file(snapshot: QueueSnapshot) -> T:
        warn_of(unknown_names(filters(snapshot)))
        return answer(snapshot)

    return Question(of_cluster, of_file, lines, empty, hint="" if everywhere else _ONLY_HERE)


def warn_of(unknown: Iterable[NameFilter]) -> None:
    """Warn of names of which it is not known whether there is something of them."""
    for each in unknown:
        text = f"warning: it is not known whether a {each.what} is named `{each.word}`"
        click.secho(text, fg="yellow", err=True)
        if near := did_you_mean(each.word, each.known):
            click.secho(f"hint: {near}", fg="cyan", err=True)


def show(given: QuestionOptions, question: Question[T]) -> None:
    """Ask what a command asks, a file or a cluster, and print the answer; with --watch, go on."""
    file = given.get("snapshot")
    empty = question.empty + ("" if file else question.hint)
    page = Page(given["output"], question.lines, empty, question.version)
    if not file or question.of_file is None:
        run(partial(_asked, given, question, page))
        return
    if given["watch"]:
        raise click.UsageError("--watch asks a cluster, and --snapshot a file: use one of both")
    page.show(question.of_file(read_file(file)))


async def _asked(
    given: QuestionOptions, question: Question[T], page: Page[T], stop: asyncio.Event
) -> None:
    connection = connection_for(given)
    namespace = given["namespace"] or connection.namespace
    async with HttpClient(connection) as client:
        work = asyncio.create_task(
            watch(page, partial(question.of_cluster, client, namespace))
            if given["watch"]
            else _once(page, question.of_cluster(client, namespace))
        )
        await unless_stopped(work, stop)


async def _once(page: Page[T], answer: Awaitable[T]) -> None:
    page.show(await answer)


async def ask(reader: Reader, namespace: str) -> QueueSnapshot:
    """Return the snapshot for a namespace, "" for the whole cluster, after a warning if it is old.

    Raises:
        NoSnapshotsError: If the cluster serves none.
        ApiError: If the API server refuses, or does not answer.
        SnapshotError: If the answer is of another version of policyd.
    """
    return aged(await snapshots.ask(reader, namespace))


def read_file(path: str) -> QueueSnapshot:
    """Return the snapshot of a file.

    Raises:
        SnapshotError: If it is none.
    """
    name, body = text_of(path)
    return aged(read(body, name))


def aged(snapshot: QueueSnapshot) -> QueueSnapshot:
    """Return a snapshot, after a warning if it is old."""
    age = SystemClock().now() - snapshot.taken_at
    if age > OLD_SECONDS:
        click.secho(
            f"warning: the snapshot is {duration(age)} old; the queues may have changed since",
            fg="yellow",
            err=True,
        )
    return snapshot

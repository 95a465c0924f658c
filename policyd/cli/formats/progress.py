"""Progress bars on a terminal, for commands that take longer than a second."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from policyd.clock import SystemClock
from policyd.program import has_color
from policyd.terminal import unfiltered

PATIENCE_SECONDS: Final = 1.0
"""How long nothing is shown."""

T = TypeVar("T")


def progress(
    items: Iterable[T],
    what: str,
    total: int | None = None,
    done: Callable[[], int] | None = None,
) -> Iterator[T]:
    """Yield items, and show how many there were so far if it takes long.

    Args:
        items: The items.
        what: The activity, such as `reading`.
        total: How many there are, if that is known.
        done: Returns how much of the total is done, if items are not what is counted.
    """
    if not sys.stderr.isatty():
        yield from items
        return
    clock, bar, task = SystemClock(), _bar(), None
    shows_from = clock.monotonic() + PATIENCE_SECONDS
    try:
        for number, item in enumerate(items, start=1):
            yield item
            completed = number if done is None else done()
            if task is not None:
                bar.update(task, completed=completed)
            elif clock.monotonic() > shows_from:
                task = bar.add_task(what, total=total, completed=completed)
                bar.start()
    finally:
        if task is not None:
            bar.stop()


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,}"),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(file=unfiltered(sys.stderr), no_color=not has_color(sys.stderr)),
        transient=True,
    )

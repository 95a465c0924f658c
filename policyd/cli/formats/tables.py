"""Tables on standard output, aligned by rich."""

import sys
from collections.abc import Iterable, Sequence, Set
from typing import Final

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from policyd.program import has_color
from policyd.terminal import unfiltered

_WIDEST: Final = 100_000
"""The width if the output is no terminal: no line is folded."""

_GAP: Final = "  "

_MOST_FOLDED: Final = 1_000
"""Rows that are folded at most; of more rows, long lines are left to the terminal."""


def console(*, moves: bool = False) -> Console:
    """Return standard output as rich writes to it.

    Args:
        moves: Whether the cursor is moved. Texts must not come from others then.
    """
    color = has_color(sys.stdout)
    return Console(
        file=unfiltered(sys.stdout) if moves else None,
        width=None if sys.stdout.isatty() else _WIDEST,
        force_terminal=color,
        no_color=not color,
        highlight=False,
        legacy_windows=False,
    )


def show_table(
    names: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[str] = ()
) -> None:
    """Print a table; the arguments are those of `table_lines`."""
    click.echo("\n".join(table_lines(names, rows, numbers=numbers)))


def table_lines(
    names: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[str] = ()
) -> list[str]:
    """Return the lines of a table.

    Args:
        names: The names of the columns.
        rows: A text for each column.
        numbers: Names of the columns whose texts are numbers.
    """
    cells, right, out = [*map(tuple, rows)], set(numbers), console()
    columns = [*zip(names, *cells, strict=True)]
    widths = [*map(_width, columns)]
    fits = sum(widths) + len(_GAP) * (len(widths) - 1) <= out.width or len(cells) > _MOST_FOLDED
    if not (fits and all("".join(column).isprintable() for column in columns)):
        return _folded(names, cells, right, out)
    # As rich would: it takes half a second for each thousand rows.
    sides = [str.rjust if name in right else str.ljust for name in names]
    plain = _GAP.join(
        f"%{width}s" if name in right else f"%-{width}s"
        for name, width in zip(names, widths, strict=True)
    )
    head = (side(name, width) for name, side, width in zip(names, sides, widths, strict=True))
    bold = [click.style(text, bold=True) if out.is_terminal else text for text in head]
    lines = [_GAP.join(bold)]
    for row in cells:
        if all(map(str.isascii, row)):
            lines.append(plain % row)
            continue
        padded = (
            side(text, width - cell_len(text) + len(text))
            for text, side, width in zip(row, sides, widths, strict=True)
        )
        lines.append(_GAP.join(padded))
    return [line.rstrip() for line in lines]


def _width(column: Sequence[str]) -> int:
    """Return how many cells the widest text of a column takes: most have one for each letter."""
    return max(map(len if "".join(column).isascii() else cell_len, column))


def _folded(
    names: Sequence[str], rows: Iterable[Sequence[str]], right: Set[str], out: Console
) -> list[str]:
    """Return a table whose texts are folded where the terminal is too narrow for them."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    with out.capture() as shown:
        out.print(table)
    return [line.rstrip() for line in shown.get().splitlines()]


class StreamedTable:
    """A table of which each row is printed as it comes; its columns are as wide as is known before.

    The last column has the remaining width of the terminal; longer texts continue below.
    """

    def __init__(self, columns: Sequence[tuple[str, int]], last: str) -> None:
        """Take the names of the columns, with the widths of their texts."""
        self._widths = [max(width, cell_len(name)) for name, width in columns]
        self._console = console()
        self.head = self.row([name for name, _ in columns], last)
        """The line that names the columns."""

    @property
    def indent(self) -> str:
        """The text before the last column in a line whose other columns are empty."""
        return "".join(" " * width + _GAP for width in self._widths)

    def row(self, texts: Sequence[str], last: str) -> str:
        """Return a row: one line, or several."""
        pairs = zip(texts, self._widths, strict=True)
        before = "".join(set_cell_size(text, width) + _GAP for text, width in pairs)
        room = self._console.width - cell_len(before)
        if cell_len(last) <= room or room < 1:
            return f"{before}{last}"
        lines = Text(last).wrap(self._console, room)
        return f"\n{self.indent}".join(
            [f"{before}{lines[0].plain}", *(f"{each.plain}" for each in lines[1:])]
        )

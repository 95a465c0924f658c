"""Which code runs which files of cases. A new adapter is one line in adapters.tsv.

A suite is a file of cases; its name is `group/stem`. The group is the folder, but for Kueue's
tables: there `suites.tsv`, beside them, says it, and an adapter that spells a table's name out.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path

from tests.conformance.outcome import Outcome, SuiteResult

Runner = Callable[[Path], Iterable[Outcome]]


@dataclass(frozen=True)
class Adapter:
    """Code that runs the cases of the files it names.

    Attributes:
        group: What `SUITE=` calls them together.
        stem: Pattern of the files' names, without their suffix.
        code: `module:function` below `tests.conformance`; the function takes the file's path. It
            is imported when a file is run, so that an adapter in the making stops nobody else.
        folder: The folder of the files.
    """

    group: str
    stem: str
    code: str
    folder: str = "kueue"

    def takes(self, path: Path) -> bool:
        return path.parent.name == self.folder and fnmatchcase(path.stem, self.stem)

    def runner(self) -> Runner:
        module, _, function = self.code.partition(":")
        return getattr(import_module(f"tests.conformance.{module}"), function)


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table with tabs, by the names in its first line."""
    with path.open(newline="") as file:
        return [*csv.DictReader(file, delimiter="\t")]


ADAPTERS = tuple(Adapter(**row) for row in read_table(Path(__file__).with_name("adapters.tsv")))
"""The first adapter that takes a file runs it. Kueue's tables: one line for each table or more."""


@dataclass(frozen=True)
class Suite:
    """A file of cases, and the adapter that runs it; None if there is none yet."""

    group: str
    path: Path
    adapter: Adapter | None

    @property
    def name(self) -> str:
        return f"{self.group}/{self.path.stem}"

    def run(self) -> SuiteResult:
        if self.adapter is None:
            return SuiteResult(self.name, cases=_count(self.path), no_adapter=True)
        return SuiteResult.of(self.name, self.adapter.runner()(self.path))


def find_suites(cases: Path, wanted: str) -> Iterator[Suite]:
    """Yield the suites `wanted`: all, a group's, a folder's, or one file's."""
    groups = _groups(cases / "kueue" / "suites.tsv")
    for path in sorted(cases.glob("*/*.json")):
        adapter = next((adapter for adapter in ADAPTERS if adapter.takes(path)), None)
        folder = path.parent.name
        group = groups.get(path.stem, "") if folder == "kueue" else folder
        if adapter and (not groups or adapter.stem == path.stem):
            group = adapter.group
        suite = Suite(group, path, adapter)
        # Tables of Kueue that nobody names test the Go code's own machinery.
        if group and (not wanted or wanted in (group, folder, path.stem, suite.name)):
            yield suite


def _groups(index: Path) -> dict[str, str]:
    """Return the groups of Kueue's tables."""
    if not index.is_file():
        return {}
    return {row["table"]: row["suite"] for row in read_table(index)}


def _count(path: Path) -> int:
    content = json.loads(path.read_text())
    return len(content["cases"] if isinstance(content, dict) else content)

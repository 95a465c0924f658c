"""Which code runs which files of cases. A new runner is one line in RUNNERS."""

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from tests.conformance.cel_spec import run_cel_spec
from tests.conformance.kubernetes_cel import run_conditions, run_cost, run_library
from tests.conformance.outcome import Outcome, SuiteResult

Runner = Callable[[Path], Iterable[Outcome]]

RUNNERS: dict[str, Runner] = {
    "cel/*": run_cel_spec,
    "policy/k8s-cel-library": run_library,
    "policy/k8s-cel-conditions": run_conditions,
    "policy/k8s-cel-cost": run_cost,
}
"""Patterns of suites' names, a name being the file's path without its suffix."""


def find_suites(cases: Path, wanted: str) -> Iterator[tuple[str, Path, Runner]]:
    """Yield name, file and runner of the suites `wanted`: all, a folder's, or one file's."""
    for path in sorted(cases.glob("*/*.json")):
        name = f"{path.parent.name}/{path.stem}"
        if wanted and wanted not in (path.parent.name, path.stem, name):
            continue
        for pattern, runner in RUNNERS.items():
            if fnmatch(name, pattern):
                yield name, path, runner


def run_suites(cases: Path, wanted: str) -> Iterator[SuiteResult]:
    """Run the suites that are wanted, one after the other."""
    for name, path, runner in find_suites(cases, wanted):
        yield SuiteResult.of(name, runner(path))

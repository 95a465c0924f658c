"""The files of tests beside policies, in each of the layouts there are: found, and run.

policyd's own are `cases.yaml`. Kyverno's `kyverno-test.yaml`, Gatekeeper's suites and the folders
of kat are read too.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from policyd.cli import gatekeeper_suites, kat_suites, kyverno_suites
from policyd.cli.files import content, load
from policyd.engine.cases import Outcome, load_cases, run_case, uncovered
from policyd.engine.findings import Finding
from policyd.engine.kat.layout import FOLDER as TESTS
from policyd.engine.kyverno.suites import NAME as KYVERNO_TEST
from policyd.engine.load import Loaded
from policyd.policy_files import CASES, SUFFIXES, policy_files

_WORTH_A_PROCESS = 40
"""Files from which on they are run in several processes."""


@dataclass(frozen=True, slots=True)
class Tested:
    """A file of tests: how each went, or why none was run."""

    path: Path
    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...]
    uncovered: tuple[tuple[str, str], ...] = ()
    """The validations that no case violates: policy, and where the validation stands."""

    @property
    def passed(self) -> bool:
        """Whether all could be run, and went as they say."""
        return not self.findings and all(outcome.passed for outcome in self.outcomes)


def case_files(path: Path) -> list[Path]:
    """Return the files of tests that a path means, and the folders of kat's."""
    if not path.is_dir():
        return [path]
    if kat_suites.is_folder(path):
        return [path]
    named = {file for name in (CASES, KYVERNO_TEST) for file in path.rglob(name)}
    named |= {folder for folder in path.rglob(TESTS) if kat_suites.is_folder(folder)}
    others = (file for suffix in (".yaml", ".yml") for file in path.rglob(f"*{suffix}"))
    suites = {file for file in others if file.is_file() and gatekeeper_suites.is_file(file)}
    return sorted(named | suites)


def untested(paths: Sequence[Path], tests: Iterable[Path]) -> list[Path]:
    """Return the policy files in folders that have no tests; those of suites are further down."""
    tests = tuple(tests)
    tested = {file.parent for file in tests}
    suites = {file.parent for file in tests if file.name not in (CASES, KYVERNO_TEST)}
    files = policy_files(path for path in paths if path.is_dir())
    return [f for f in files if f.parent not in tested and suites.isdisjoint(f.parents)]


def run_files(files: Sequence[Path], keyword: str) -> Iterator[Tested]:
    """Run files of tests, many of them in several processes; what comes keeps their order."""
    run = partial(run_file, keyword=keyword)
    workers = min(os.cpu_count() or 1, len(files))
    if len(files) < _WORTH_A_PROCESS or workers < 2 or not _may_fork():
        yield from map(run, files)
        return
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(run, files, chunksize=8)


def _may_fork() -> bool:
    return "fork" in multiprocessing.get_all_start_methods()


def run_file(path: Path, keyword: str) -> Tested:
    """Run the tests of one file whose name has the keyword in it.

    Raises:
        click.UsageError: If a file cannot be read.
    """
    if path.is_dir():
        outcomes, findings, loaded = kat_suites.run_folder(path, keyword)
        return Tested(path, outcomes, findings, tuple(uncovered(loaded, outcomes)))
    run = _other_layout(path)
    return _run_own(path, keyword) if run is None else Tested(path, *run(path, keyword))


_Run = Callable[[Path, str], tuple[tuple[Outcome, ...], tuple[Finding, ...]]]


def _other_layout(path: Path) -> _Run | None:
    if path.name == KYVERNO_TEST:
        return kyverno_suites.run_file
    if path.name != CASES and gatekeeper_suites.is_file(path):
        return gatekeeper_suites.run_file
    return None


def _run_own(path: Path, keyword: str) -> Tested:
    """Run the cases of one file against the policies beside it."""
    cases, findings = load_cases(content(path), str(path))
    loaded = _beside(path)
    findings = [*(f for f in loaded.findings if f.severity == "error"), *findings]
    if not loaded.policies and not findings:
        message = "there is no policy beside these cases"
        findings.append(Finding(source=str(path), message=message, hint="put it into policy.yaml"))
    if cases is None or findings:
        return Tested(path, (), tuple(findings))
    chosen = [case for case in cases.cases if keyword in case.name]
    outcomes = tuple(run_case(case, cases, loaded) for case in chosen)
    return Tested(path, outcomes, (), tuple(uncovered(loaded, outcomes)))


def _beside(path: Path) -> Loaded:
    files = sorted(path.parent.iterdir())
    return load([str(f) for f in files if f.suffix in SUFFIXES and f.name != path.name])

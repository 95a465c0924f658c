"""The files of tests beside policies, in each of the layouts there are: found, and run.

policyd's own are `cases.yaml`. Kyverno's `kyverno-test.yaml`, Gatekeeper's suites and the folders
of kat are read too.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import click

from policyd.cli.formats.documents import DIALECT, load, load_documents
from policyd.cli.formats.files import cannot_read, content, text_of
from policyd.cli.formats.snapshots import facts_beside
from policyd.cli.formats.suites import (
    Outcomes,
    is_gatekeeper_suite,
    is_kat_folder,
    is_kyverno_test,
    run_gatekeeper_suite,
    run_kat_folder,
    run_kyverno_test,
)
from policyd.dialects.kyverno.declared import declared_values
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import read_documents
from policyd.engine.lint.coverage import Branch, BranchCoverage
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.cases import (
    NO_SURROUNDINGS,
    Case,
    CaseOutcome,
    Cases,
    CaseSurroundings,
    ask_case,
    cases_of,
    load_cases,
    run_case,
    run_together,
    uncovered,
)
from policyd.engine.offline.requests import ObjectError
from policyd.policy_files import CASES, KYVERNO_TEST, SUFFIXES, policy_files
from policyd.snapshot.reading import SnapshotError
from policyd.standard_input import STANDARD_INPUT

_WORTH_A_PROCESS = 40
"""Files from which on they are run in several processes."""


@dataclass(frozen=True, slots=True)
class Tested:
    """A file of tests: the outcomes, and the findings that prevent tests from running."""

    path: Path
    outcomes: tuple[CaseOutcome, ...]
    findings: tuple[Finding, ...]
    uncovered: tuple[tuple[str, str], ...] = ()
    """The validations that no case violates: policy, and where the validation stands."""
    branches: tuple[Branch, ...] = ()
    """The branches of expressions that no case takes, if that was asked."""

    @property
    def passed(self) -> bool:
        """Whether all could be run, and went as they say."""
        wrong = any(finding.severity == "error" for finding in self.findings)
        return not wrong and all(outcome.passed for outcome in self.outcomes)


def case_files(path: Path) -> list[Path]:
    """Return the files of tests that a path means, and the folders of kat's.

    Hidden files and folders below a folder are skipped, and so is node_modules.
    """
    if not path.is_dir() or is_kat_folder(path):
        return [path]
    found: list[Path] = []
    for place, folders, files in os.walk(path, onerror=cannot_read):
        folders[:] = [name for name in folders if not _is_left_out(name)]
        found += (Path(place) / name for name in folders if is_kat_folder(Path(place) / name))
        visible = (Path(place) / name for name in files if not _is_left_out(name))
        found += filter(_is_test, visible)
    return sorted(found)


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or name == "node_modules"


def _is_test(file: Path) -> bool:
    if file.name in (CASES, KYVERNO_TEST):
        return True
    return file.suffix in (".yaml", ".yml") and file.is_file() and is_gatekeeper_suite(file)


def untested(paths: Sequence[Path], tests: Iterable[Path]) -> list[Path]:
    """Return the policy files in folders that have no tests; those of suites are further down."""
    tests = tuple(tests)
    tested = {file.parent for file in tests}
    suites = {file.parent for file in tests if file.name not in (CASES, KYVERNO_TEST)}
    return [
        file
        for folder in paths
        if folder.is_dir()
        for file in policy_files([folder])
        if not any(map(_is_left_out, file.relative_to(folder).parts))
        and file.parent not in tested
        and suites.isdisjoint(file.parents)
    ]


def run_files(
    files: Sequence[Path],
    keyword: str,
    *,
    branches: bool = False,
    surroundings: CaseSurroundings = NO_SURROUNDINGS,
) -> Iterator[Tested]:
    """Run files of tests, many of them in several processes; results keep the order of files.

    Args:
        files: The files, and folders of kat's.
        keyword: A part of the names of the tests to run.
        branches: Whether to look which branches of expressions policyd's own cases take.
        surroundings: What policyd's own cases leave out.
    """
    run = partial(run_file, keyword=keyword, branches=branches, surroundings=surroundings)
    workers = min(os.cpu_count() or 1, len(files))
    few = len(files) < _WORTH_A_PROCESS or surroundings is not NO_SURROUNDINGS
    if few or workers < 2 or not _may_fork():
        yield from map(run, files)
        return
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_interrupts)
    try:
        yield from pool.map(run, files, chunksize=8)
    finally:
        pool.shutdown(cancel_futures=True)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C, which a terminal tells all processes, to the one that they work for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _may_fork() -> bool:
    return "fork" in multiprocessing.get_all_start_methods()


def run_file(
    path: Path,
    keyword: str,
    *,
    branches: bool = False,
    surroundings: CaseSurroundings = NO_SURROUNDINGS,
) -> Tested:
    """Run the tests of one file whose name has the keyword in it.

    If a file that it names cannot be read, that is its finding.
    """
    try:
        run = None if str(path) == STANDARD_INPUT else _other_layout(path)
        if run is None:
            return _run_own(path, keyword, _beside_file(surroundings, path), branches=branches)
        outcomes, findings, loaded = run(path, keyword)
    except click.UsageError as error:
        return Tested(path, (), (Finding(source=str(path), message=error.message),))
    except SnapshotError as error:
        return Tested(path, (), (Finding(source=str(path), message=str(error), hint=error.hint),))
    return Tested(path, outcomes, findings, tuple(uncovered(loaded, outcomes)))


def _other_layout(path: Path) -> Callable[[Path, str], Outcomes] | None:
    if path.is_dir():
        return run_kat_folder
    if path.name != CASES and is_kyverno_test(path):
        return run_kyverno_test
    if path.name != CASES and is_gatekeeper_suite(path):
        return run_gatekeeper_suite
    return None


def _beside_file(surroundings: CaseSurroundings, path: Path) -> CaseSurroundings:
    """Return the surroundings of cases whose files are in the folder of theirs."""
    queues = cache(partial(facts_beside, path.parent))
    return replace(surroundings, queues_in=queues, external=declared_values)


def _run_own(path: Path, keyword: str, surroundings: CaseSurroundings, *, branches: bool) -> Tested:
    """Run the cases of one file, against the policies in it or else those beside it."""
    name, text = text_of(str(path))
    source = Path(name)
    documents, unreadable = read_documents(text, name)
    kinds = [value_at(each.value, ("kind",)) for each in documents]
    policies = [each for each, kind in zip(documents, kinds, strict=True) if kind is not None]
    others = [each for each, kind in zip(documents, kinds, strict=True) if kind is None]
    cases, findings = cases_of(others or documents, name)
    if unreadable or cases is None:
        return Tested(source, (), tuple(unreadable or findings))
    loaded = load_documents(policies, (), DIALECT) if policies else _beside(path)
    findings = [f for f in loaded.findings if f.severity == "error"]
    if not loaded.all_policies and not findings:
        message = "no policy found next to these cases"
        findings.append(Finding(source=name, message=message, hint="put it into policy.yaml"))
    if findings:
        return Tested(source, (), tuple(findings))
    chosen = [case for case in cases.cases if keyword in case.name]
    outcomes = tuple(run_case(case, cases, loaded, surroundings) for case in chosen)
    missing = _branches_missing(chosen, cases, loaded, surroundings) if branches else ()
    return Tested(source, outcomes, (), tuple(uncovered(loaded, outcomes)), missing)


def _branches_missing(
    chosen: Iterable[Case], cases: Cases, loaded: Loaded, surroundings: CaseSurroundings
) -> tuple[Branch, ...]:
    coverage = BranchCoverage(loaded.policies)
    for case in chosen:
        with suppress(ObjectError):  # the case has failed
            coverage.note(ask_case(case, cases, loaded, surroundings))
    return coverage.missing


def _beside(path: Path) -> Loaded:
    files = sorted(path.parent.iterdir())
    return load(
        [
            str(file)
            for file in files
            if file.suffix in SUFFIXES
            and file.name not in (path.name, CASES)
            and not _is_left_out(file.name)
        ]
    )


def run_all_together(
    paths: Sequence[Path], files: Sequence[Path], surroundings: CaseSurroundings = NO_SURROUNDINGS
) -> Iterator[Tested]:
    """Send the requests of all cases through all policies, and tell of pairs whose order matters.

    Cases of other layouts are left out, as those that find no pair are.
    """
    loaded = load([str(path) for path in paths])
    reported: set[str] = set()
    for file in (file for file in files if file.name == CASES):
        cases, _ = load_cases(content(file), str(file))
        here = _beside_file(surroundings, file)
        outcomes = (
            [run_together(case, cases, loaded, here) for case in cases.cases] if cases else []
        )
        new = tuple(each for each in outcomes if not reported.issuperset(each.problems))
        reported.update(problem for outcome in new for problem in outcome.problems)
        if new:
            yield Tested(file, new, ())

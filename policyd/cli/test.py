"""`policyd test`: run the cases beside policies."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from policyd.cli.files import content, load
from policyd.cli.kyverno_suites import run_file
from policyd.cli.report import as_json, count, show_all
from policyd.cli.reports import TEXT_JSON_OR_REPORT, Entry, Format, entries_of, report
from policyd.engine.cases import Outcome, load_cases, run_case, uncovered
from policyd.engine.findings import Finding
from policyd.engine.kyverno.suites import NAME as KYVERNO_TEST
from policyd.policy_files import CASES, SUFFIXES, policy_files

_MANY = 100
"""Cases from which on a bar shows how far they are."""


@dataclass(frozen=True, slots=True)
class _Tested:
    """A file of cases: how each went, or why none was run."""

    path: Path
    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...]
    uncovered: tuple[tuple[str, str], ...] = ()
    """The validations that no case violates: policy, and where the validation stands."""


@click.command("test")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@TEXT_JSON_OR_REPORT
@click.option("-k", "--keyword", default="", help="Run only the cases whose name has this in it.")
@click.option("--coverage", is_flag=True, help="Fail if no case violates a validation.")
@click.option("-v", "--verbose", is_flag=True, help="Name the cases that pass, too.")
def command(
    paths: tuple[Path, ...],
    output: Literal["text", "json"] | Format,
    keyword: str,
    *,
    verbose: bool,
    coverage: bool,
) -> None:
    r"""Run the cases beside the policies in PATHS.

    The cases of a folder are in its cases.yaml and concern the policies beside it; Kyverno's tests
    (kyverno-test.yaml) name theirs. A case gives an object, and what must come of it; an
    expectation about a request that no policy concerned itself with fails, and whatever is changed
    is sent a second time and must stay as it is.

    A validation that no case violates may refuse nothing at all: --coverage names those.

    Exits with 0 if all pass, 1 if any does not.

    \b
    Examples:
      policyd test policies/
      policyd test --coverage policies/
      policyd test policies/gpu/cap-gpus/cases.yaml -k "eight"
      policyd test -o json policies/ | jq '.failed'
      policyd test -o junit policies/ > policyd.xml

    \b
    A case:
      cases:
      - name: a pod gets its team's queue
        namespaceLabels: {policyd.io/queue: team-a}
        object: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}
        expect:
          mutated: {metadata: {labels: {kueue.x-k8s.io/queue-name: team-a}}}
    """
    files = [file for path in paths for file in _case_files(path)]
    if not files:
        raise click.UsageError(f"no {CASES} under {', '.join(map(str, paths))}")
    for policy in _untested(paths, files):
        click.secho(f"{policy}: no {CASES} beside it", fg="yellow", err=True)
    tested = list(_test_all(files, keyword))
    if keyword and not any(one.outcomes or one.findings for one in tested):
        raise click.UsageError(f"no case has `{keyword}` in its name")
    if output == "json":
        click.echo(json.dumps(_as_json(tested), indent=2))
    elif output != "text":
        click.echo(report(output, "test", list(_entries(tested, coverage=coverage))))
    else:
        _show(tested, verbose=verbose)
        for one in tested if coverage else ():
            _show_uncovered(one)
    failed = any(one.findings or not all(o.passed for o in one.outcomes) for one in tested)
    lacking = coverage and any(one.uncovered for one in tested)
    sys.exit(1 if failed or lacking else 0)


def _case_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for name in (CASES, KYVERNO_TEST) for file in path.rglob(name))


def _untested(paths: Sequence[Path], cases: Sequence[Path]) -> list[Path]:
    """Return the policy files in folders that have no cases."""
    tested = {file.parent for file in cases}
    folders = [path for path in paths if path.is_dir()]
    return [file for file in policy_files(folders) if file.parent not in tested]


def _test_all(files: Sequence[Path], keyword: str) -> Iterator[_Tested]:
    if len(files) < _MANY or not sys.stderr.isatty():
        for file in files:
            yield _test(file, keyword)
        return
    with click.progressbar(files, label="testing", file=sys.stderr) as shown:
        for file in shown:
            yield _test(file, keyword)


def _test(path: Path, keyword: str) -> _Tested:
    """Run the cases of one file against the policies beside it, or those that it names."""
    if path.name == KYVERNO_TEST:
        return _Tested(path, *run_file(path, keyword))
    cases, findings = load_cases(content(path), str(path))
    policies = [
        file
        for file in sorted(path.parent.iterdir())
        if file.suffix in SUFFIXES and file.name != path.name
    ]
    loaded = load([str(file) for file in policies])
    findings = [*(f for f in loaded.findings if f.severity == "error"), *findings]
    if not loaded.policies and not findings:
        message = "there is no policy beside these cases"
        findings.append(Finding(source=str(path), message=message, hint="put it into policy.yaml"))
    if cases is None or findings:
        return _Tested(path, (), tuple(findings))
    chosen = [case for case in cases.cases if keyword in case.name]
    outcomes = tuple(run_case(case, cases, loaded) for case in chosen)
    return _Tested(path, outcomes, (), tuple(uncovered(loaded, outcomes)))


def _show(tested: Sequence[_Tested], *, verbose: bool) -> None:
    for one in tested:
        show_all(one.findings)
        for outcome in one.outcomes:
            if not outcome.passed:
                _show_failure(one.path, outcome)
            elif verbose:
                click.echo(f"ok: {one.path}: {outcome.case.name}")
    outcomes = [outcome for one in tested for outcome in one.outcomes]
    failed = sum(not outcome.passed for outcome in outcomes)
    broken = sum(bool(one.findings) for one in tested)
    passed = f"{count(len(outcomes) - failed, 'case')} passed"
    parts = [passed, *([f"{failed} failed"] if failed else [])]
    parts += [f"{count(broken, 'folder')} could not be tested"] if broken else []
    click.secho(", ".join(parts), fg="red" if failed or broken else "green")


def _show_uncovered(tested: _Tested) -> None:
    for policy, validation in tested.uncovered:
        message = f"{tested.path}: no case violates `{validation}` of `{policy}`"
        click.secho(message, fg="yellow", err=True)


def _show_failure(path: Path, outcome: Outcome) -> None:
    click.secho(f"FAILED {path}: {outcome.case.name}", fg="red", bold=True)
    for problem in outcome.problems:
        click.echo(f"  {problem}")
    colours = {"+": "green", "-": "red"}
    for line in outcome.difference:
        click.secho(f"    {line}", fg=colours.get(line[0]))


def _as_json(tested: Sequence[_Tested]) -> dict[str, Any]:
    cases = [
        {
            "file": str(one.path),
            "case": outcome.case.name,
            "passed": outcome.passed,
            "problems": outcome.problems,
            "difference": outcome.difference,
        }
        for one in tested
        for outcome in one.outcomes
    ]
    findings = [as_json(finding) for one in tested for finding in one.findings]
    failed = sum(not case["passed"] for case in cases)
    lacking = [
        {"file": str(one.path), "policy": policy, "validation": validation}
        for one in tested
        for policy, validation in one.uncovered
    ]
    return {
        "passed": len(cases) - failed,
        "failed": failed,
        "findings": findings,
        "cases": cases,
        "uncovered": lacking,
    }


def _entries(tested: Sequence[_Tested], *, coverage: bool) -> Iterator[Entry]:
    """Yield each case, each file that could not be tested, and what is not covered if it must."""
    for one in tested:
        yield from entries_of(one.findings)
        for outcome in one.outcomes:
            yield Entry(
                name=outcome.case.name,
                group=str(one.path),
                findings=tuple(_problems(one.path, outcome)),
            )
        for policy, validation in one.uncovered if coverage else ():
            name = f"a case violates `{validation}` of `{policy}`"
            message = f"no case violates `{validation}` of `{policy}`"
            finding = Finding(source=str(one.path), message=message, rule="coverage")
            yield Entry(name=name, group=str(one.path), findings=(finding,))


def _problems(path: Path, outcome: Outcome) -> Iterator[Finding]:
    for problem in outcome.problems:
        yield Finding(source=str(path), message=f"{outcome.case.name}: {problem}", rule="case")
    if outcome.difference:
        message = "\n".join((f"{outcome.case.name}:", *outcome.difference))
        yield Finding(source=str(path), message=message, rule="case")

"""`policyd test`: run the cases beside policies."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Unpack

import click

from policyd.cli.formats.case_files import Tested, case_files, run_all_together, run_files, untested
from policyd.cli.formats.documents import load
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import as_json, count, exit_code, show_all
from policyd.cli.formats.reports import TEXT_JSON_OR_REPORT, Format, ReportEntry, entries_of, report
from policyd.cli.options import AS_WRITTEN, ClusterOptions, check_cluster, from_cluster
from policyd.engine.documents.findings import Finding
from policyd.engine.offline.cases import NO_SURROUNDINGS, CaseOutcome, CaseSurroundings
from policyd.policy_files import CASES, KYVERNO_TEST


class _Asked(ClusterOptions):
    """The additional checks, and the cluster."""

    coverage: bool
    branches: bool
    together: bool
    as_written: bool


@click.command("test")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(exists=True, allow_dash=True, path_type=Path)
)
@TEXT_JSON_OR_REPORT
@click.option("-k", "--keyword", default="", help="Run only the cases whose name contains this.")
@click.option("--coverage", is_flag=True, help="Fail if no case violates a validation.")
@click.option(
    "--branches",
    is_flag=True,
    help="Fail if a part of an expression is never true, or never false.",
)
@click.option(
    "--together", is_flag=True, help="Fail if the order between policies of all folders matters."
)
@AS_WRITTEN
@click.option("-v", "--verbose", is_flag=True, help="Name the cases that pass, too.")
@from_cluster("what cases leave out")
def command(
    paths: tuple[Path, ...],
    output: Literal["text", "json"] | Format,
    keyword: str,
    *,
    verbose: bool,
    **asked: Unpack[_Asked],
) -> None:
    r"""Run the cases next to the policies in PATHS.

    The cases of a folder are in its cases.yaml and concern the policies beside it. Cases and their
    policies can also be documents of one file, or of standard input (-); cases alone that come
    from there concern the policies in the current folder. Below a folder, hidden files and
    node_modules are skipped. Tests in other layouts are run too: Kyverno's (kyverno-test.yaml),
    Gatekeeper's suites (kind Suite, for templates in CEL), and those of kat (a folder tests/
    beside the policies). A case gives an object and the expected result. An expectation fails if
    no policy matches the request; a changed object is sent a second time and must not change
    again.

    A validation that no case violates may never refuse anything: --coverage names those, and
    --branches names the parts of && and || and of conditionals that never take one of their
    values. If two policies of a folder change the same object, their order must not matter
    unless their priorities differ; --together checks that for all policies in PATHS, as in a
    cluster.

    With --cluster, a case that gives no labels of its namespace, no params or no queues has those
    of the cluster.

    Exits with 0 if all cases pass, 1 if one fails, 2 if a file has no cases or the cluster
    cannot be read.

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
    files = [file for path in paths for file in case_files(path)]
    if not files:
        under = ", ".join(map(str, paths))
        raise click.UsageError(f"no {CASES}, {KYVERNO_TEST}, suite or tests/ under {under}")
    for policy in untested(paths, files):
        click.secho(f"{policy}: no {CASES} beside it", fg="yellow", err=True)
    surroundings = _surroundings(paths, asked)
    tested = list(_run_all(files, keyword, surroundings, branches=asked["branches"]))
    tested += run_all_together(paths, files, surroundings) if asked["together"] else ()
    if keyword and not any(one.outcomes or one.findings for one in tested):
        raise click.UsageError(f"no case has `{keyword}` in its name")
    if output == "json":
        click.echo(json.dumps(_as_json(tested), indent=2))
    elif output != "text":
        click.echo(report(output, "test", list(_entries(tested, coverage=asked["coverage"]))))
    else:
        _show(tested, verbose=verbose)
        for one in tested:
            _show_uncovered(one, coverage=asked["coverage"])
    failed = not all(one.passed for one in tested)
    uncovered = any(one.branches or (asked["coverage"] and one.uncovered) for one in tested)
    findings = [finding for one in tested for finding in one.findings]
    sys.exit(exit_code(findings, failed=failed or uncovered))


def _surroundings(paths: Sequence[Path], asked: _Asked) -> CaseSurroundings:
    """Return what cases leave out."""
    check_cluster(asked)
    if not asked["cluster"]:
        return replace(NO_SURROUNDINGS, as_written=asked["as_written"])
    # Imported only where a cluster is read: it takes as long as a small command.
    from policyd.cli.clusters import read_cluster  # noqa: PLC0415
    from policyd.cli.policies.surroundings import read_case_surroundings  # noqa: PLC0415

    # Of cases in a file, the policies are beside it; of those on standard input, in this folder.
    folders = dict.fromkeys(str(path if path.is_dir() else path.parent) for path in paths)
    policies = load(list(folders)).policies
    read = read_cluster(asked, lambda reader, _: read_case_surroundings(reader, policies))
    return replace(read, as_written=asked["as_written"])


def _run_all(
    files: Sequence[Path], keyword: str, surroundings: CaseSurroundings, *, branches: bool
) -> Iterator[Tested]:
    """Run the files, with a progress bar on a terminal."""
    running = run_files(files, keyword, branches=branches, surroundings=surroundings)
    yield from progress(running, "testing", len(files))


def _show(tested: Sequence[Tested], *, verbose: bool) -> None:
    for one in tested:
        show_all(one.findings)
        for outcome in one.outcomes:
            if not outcome.passed:
                _show_failure(one.path, outcome)
            elif verbose:
                click.echo(f"ok: {one.path}: {outcome.case.name}")
    outcomes = [outcome for one in tested for outcome in one.outcomes]
    failed = sum(not outcome.passed for outcome in outcomes)
    broken = sum(any(f.severity == "error" for f in one.findings) for one in tested)
    passed = f"{count(len(outcomes) - failed, 'case')} passed"
    parts = [passed, *([f"{failed} failed"] if failed else [])]
    parts += [f"{count(broken, 'folder')} could not be tested"] if broken else []
    click.secho(", ".join(parts), fg="red" if failed or broken else "green")


def _show_uncovered(tested: Tested, *, coverage: bool) -> None:
    for _, message in _uncovered(tested, coverage=coverage):
        click.secho(f"{tested.path}: {message}", fg="yellow", err=True)


def _uncovered(tested: Tested, *, coverage: bool) -> Iterator[tuple[str, str]]:
    """Yield each item that is not covered, with a message."""
    for policy, validation in tested.uncovered if coverage else ():
        what = f"violates `{validation}` of `{policy}`"
        yield f"a case {what}", f"no case {what}"
    for branch in tested.branches:
        yield f"{branch}: not so", str(branch)


def _show_failure(path: Path, outcome: CaseOutcome) -> None:
    click.secho(f"FAILED {path}: {outcome.case.name}", fg="red", bold=True)
    for problem in outcome.problems:
        click.echo(f"  {problem}")
    colours = {"+": "green", "-": "red"}
    for line in outcome.difference:
        click.secho(f"    {line}", fg=colours.get(line[0]))


def _as_json(tested: Sequence[Tested]) -> dict[str, Any]:
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
    uncovered = [
        {"file": str(one.path), "policy": policy, "validation": validation}
        for one in tested
        for policy, validation in one.uncovered
    ]
    return {
        "passed": len(cases) - failed,
        "failed": failed,
        "findings": findings,
        "cases": cases,
        "uncovered": uncovered,
        "branches": [
            {"file": str(one.path), **branch._asdict()} for one in tested for branch in one.branches
        ],
    }


def _entries(tested: Sequence[Tested], *, coverage: bool) -> Iterator[ReportEntry]:
    """Yield each case, each file that could not be tested, and each item that is not covered."""
    for one in tested:
        yield from entries_of(one.findings)
        for outcome in one.outcomes:
            yield ReportEntry(
                name=outcome.case.name,
                group=str(one.path),
                findings=tuple(_problems(one.path, outcome)),
            )
        for name, message in _uncovered(one, coverage=coverage):
            finding = Finding(source=str(one.path), message=message, rule="coverage")
            yield ReportEntry(name=name, group=str(one.path), findings=(finding,))


def _problems(path: Path, outcome: CaseOutcome) -> Iterator[Finding]:
    for problem in outcome.problems:
        yield Finding(source=str(path), message=f"{outcome.case.name}: {problem}", rule="case")
    if outcome.difference:
        message = "\n".join((f"{outcome.case.name}:", *outcome.difference))
        yield Finding(source=str(path), message=message, rule="case")

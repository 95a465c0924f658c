"""How findings look: for people on stderr, for machines as JSON on stdout."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import click

from policyd.engine.documents.findings import Finding, caret_lines
from policyd.engine.documents.reading import Document
from policyd.program import FINDINGS, USAGE


def show(finding: Finding) -> None:
    """Show a finding, its line, and its hint."""
    severity = click.style(f"{finding.severity}:", fg="red" if _is_error(finding) else "yellow")
    click.echo(f"{click.style(finding.place, bold=True)}: {severity} {finding.message}", err=True)
    for line in caret_lines(finding):
        click.secho(line, dim=True, err=True)
    if finding.hint:
        click.secho(f"  hint: {finding.hint}", fg="cyan", err=True)


def as_json(finding: Finding) -> Mapping[str, Any]:
    """Return a finding for machines."""
    return {
        "source": finding.source,
        "line": finding.line,
        "column": finding.column,
        "field": finding.field,
        "severity": finding.severity,
        "message": finding.message,
        "hint": finding.hint,
    }


def show_all(findings: Iterable[Finding]) -> None:
    """Show findings one after the other."""
    for finding in findings:
        show(finding)


def unusable(document: Document, why: Exception) -> Finding:
    """Return the finding that a command cannot use a document."""
    return replace(document.finding(str(why)), rule="unreadable")


def exit_code(findings: Iterable[Finding], *, failed: bool = False) -> int:
    """Return the exit code of a command.

    Args:
        findings: The findings; unreadable input takes precedence over errors.
        failed: Whether the command failed for another reason.
    """
    rules = {finding.rule for finding in findings if _is_error(finding)}
    if "unreadable" in rules:
        return USAGE
    return FINDINGS if rules or failed else 0


def count(number: int, noun: str) -> str:
    """Write a number with its noun: `1 policy`, `2 policies`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def _is_error(finding: Finding) -> bool:
    return finding.severity == "error"

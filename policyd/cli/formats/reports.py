"""Reports for CI: SARIF 2.1.0 as code scanning reads it, and JUnit XML as test reports are.

GitHub shows SARIF results that have a rule, a place, and a fingerprint that stays the same when
lines move. GitLab shows JUnit test cases by `classname` and `name`, which must differ; of their
content it reads `failure` and `system-out`.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import click

from policyd import __version__
from policyd.engine.documents.findings import RULES, Finding

Format = Literal["sarif", "junit"]

FORMATS: Final[tuple[Format, ...]] = ("sarif", "junit")
"""The formats for CI, as options name them."""

TEXT_JSON_OR_REPORT = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", *FORMATS]),
    default="text",
    help="Output format: for people, for programs, or for CI.",
)

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_PLACE: Final = re.compile(r"(?P<source>.*):(?P<line>\d+):(?P<column>\d+)", re.DOTALL)
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportEntry:
    """One thing that was looked at: a policy, a case, an object.

    Attributes:
        name: Its name within the group.
        group: The file that contains it.
        findings: Its errors and warnings.
    """

    name: str
    group: str
    findings: tuple[Finding, ...] = ()


def report(form: Format, command: str, entries: Sequence[ReportEntry]) -> str:
    """Write the entries of a command in one of the formats for CI."""
    if form == "sarif":
        return json.dumps(
            _sarif(finding for entry in entries for finding in entry.findings), indent=2
        )
    return _junit(command, entries)


def entries_of(findings: Iterable[Finding]) -> list[ReportEntry]:
    """Return an entry for each file that has findings."""
    by_file: dict[str, list[Finding]] = {}
    for finding in map(_placed, findings):
        by_file.setdefault(finding.source, []).append(finding)
    return [
        ReportEntry(name=source, group=source, findings=tuple(found))
        for source, found in by_file.items()
    ]


def _placed(finding: Finding) -> Finding:
    """Take a place that was written out apart."""
    written = None if finding.line else _PLACE.fullmatch(finding.source)
    if written is None:
        return finding
    return Finding(
        source=written["source"],
        message=finding.message,
        line=int(written["line"]),
        column=int(written["column"]),
        field=finding.field,
        hint=finding.hint,
        severity=finding.severity,
        rule=finding.rule,
    )


def _sarif(findings: Iterable[Finding]) -> dict[str, Any]:
    placed = [_placed(finding) for finding in findings]
    rules = {finding.rule: index for index, finding in enumerate(_first_of_each_rule(placed))}
    driver = {
        "name": "policyd",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(rule) for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": list(_results(placed, rules)),
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _first_of_each_rule(findings: Iterable[Finding]) -> Iterable[Finding]:
    return {finding.rule: finding for finding in findings}.values()


def _rule(rule: str) -> dict[str, Any]:
    text = {"text": RULES.get(rule, f"what policy `{rule}` demands")}
    return {"id": rule, "shortDescription": text, "fullDescription": text, "help": text}


def _results(findings: Iterable[Finding], rules: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    seen: Counter[str] = Counter()
    for finding in findings:
        identity = "\n".join((finding.rule, finding.source, finding.field, finding.message))
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        seen[digest] += 1
        region = {"startLine": max(finding.line, 1), "startColumn": max(finding.column, 1)}
        place = {"artifactLocation": {"uri": _uri(finding.source)}, "region": region}
        yield {
            "ruleId": finding.rule,
            "ruleIndex": rules[finding.rule],
            "level": finding.severity,
            "message": {"text": _sentence(finding)},
            "locations": [{"physicalLocation": place}],
            "partialFingerprints": {"primaryLocationLineHash": f"{digest}:{seen[digest]}"},
        }


def _uri(source: str) -> str:
    path = Path(source)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def _sentence(finding: Finding) -> str:
    return f"{finding.message}; {finding.hint}" if finding.hint else finding.message


def _junit(command: str, entries: Sequence[ReportEntry]) -> str:
    groups: dict[str, list[ReportEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append(entry)
    counted = {name: number for name, number in _counts(entries).items() if name != "skipped"}
    root = Element("testsuites", {"name": f"policyd {command}", **counted})
    for group, members in groups.items():
        suite = SubElement(root, "testsuite", {"name": _text(group), **_counts(members)})
        for name, entry in _with_unique_names(members):
            _add_case(suite, name, entry)
    indent(root)
    written: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return written.decode()


def _with_unique_names(entries: Iterable[ReportEntry]) -> Iterator[tuple[str, ReportEntry]]:
    """Yield entries with names of which no two are the same."""
    seen: Counter[str] = Counter()
    for entry in entries:
        seen[entry.name] += 1
        again = f" ({seen[entry.name]})" if seen[entry.name] > 1 else ""
        yield entry.name + again, entry


def _counts(entries: Iterable[ReportEntry]) -> dict[str, str]:
    failed = [bool(_errors(entry)) for entry in entries]
    return {"tests": str(len(failed)), "failures": str(sum(failed)), "errors": "0", "skipped": "0"}


def _errors(entry: ReportEntry) -> list[Finding]:
    return [finding for finding in entry.findings if finding.severity == "error"]


def _add_case(suite: Element, name: str, entry: ReportEntry) -> None:
    group = _text(entry.group)
    case = SubElement(suite, "testcase", name=_text(name), classname=group, file=group, time="0")
    errors = _errors(entry)
    if errors:
        failure = SubElement(case, "failure", message=_text(errors[0].message), type=errors[0].rule)
        failure.text = _lines(errors)
    warnings = [finding for finding in entry.findings if finding.severity != "error"]
    if warnings:
        SubElement(case, "system-out").text = _lines(warnings)


def _lines(findings: Iterable[Finding]) -> str:
    return _text("\n".join(f"{finding.place}: {_sentence(finding)}" for finding in findings))


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)

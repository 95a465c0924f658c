"""Write the impact of a roll-out: tables, JSON, SARIF, reports, and Markdown for a pull request."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal

import click
import msgspec
import yaml

from policyd.cli.formats.report import count
from policyd.cli.formats.reports import entries_of, report
from policyd.cli.formats.tables import show_table
from policyd.cli.options import ClusterOptions
from policyd.cli.policies.audit_files import LogProblems
from policyd.cli.policies.request_options import NamespaceOptions
from policyd.clock import SystemClock
from policyd.engine.documents.findings import Finding
from policyd.engine.evaluate.why_not import why_unnamed
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.offline.audit_log import UNJUDGED, LogCounts
from policyd.engine.offline.impact import Impact
from policyd.engine.offline.impact_summary import (
    ImpactGroup,
    ImpactSummary,
    summarize,
)
from policyd.engine.offline.report import (
    APIS,
    ReportBook,
    ReportSubject,
    Result,
    ResultKey,
    scanned,
)

Output = Literal["text", "json", "sarif", "policyreport", "markdown"]
OUTPUTS: Final[tuple[Output, ...]] = ("text", "json", "sarif", "policyreport", "markdown")
"""The formats of the impact, as options name them."""


class ReplayOptions(NamespaceOptions, ClusterOptions):
    """The arguments of `policyd replay`."""

    recorded: tuple[str, ...]
    policies: tuple[str, ...]
    against: tuple[str, ...]
    objects: tuple[str, ...]
    queue: bool
    summary: bool
    team: str
    workers: int | None
    output: Output


MOST_ROWS: Final = 20
"""Rows of a table; JSON has all."""

_LONGEST_CELL: Final = 200
_MOST_REASONS: Final = 3
"""Policies of which it is shown why they do not concern a request."""
_REPORT_API: Final = next(api for api in APIS if api.kind == "PolicyReport")
_MARKED: Final = re.compile(r"([\\`*_\[\]|~#])")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpactAnswer:
    """What was found out.

    Attributes:
        impact: The verdicts.
        policies: The policies, for their places.
        counts: The events of the log, if there was one.
        problems: What of the log could not be read.
    """

    impact: Impact
    policies: Sequence[CompiledPolicy]
    counts: LogCounts = field(default_factory=LogCounts)
    problems: LogProblems = field(default_factory=LogProblems)


def show_impact(answer: ImpactAnswer, output: Output, command: str) -> None:
    """Write what was found out to standard output.

    Args:
        answer: What was found out.
        output: The format.
        command: The command's name, for reports.
    """
    summary = summarize(answer.impact)
    if output == "json":
        click.echo(json.dumps(_as_json(summary, answer), indent=2))
    elif output == "sarif":
        click.echo(report("sarif", command, entries_of(_as_findings(summary, answer))))
    elif output == "policyreport":
        reports = list(_as_reports(answer.impact))
        if reports:
            click.echo(yaml.safe_dump_all(reports, sort_keys=False), nl=False)
    elif output == "markdown":
        click.echo("\n".join(_markdown(summary, answer)))
    else:
        _print(summary, answer)


def unnamed(impact: Impact) -> Iterator[Finding]:
    """Yield a warning if it is not known of refused objects whether they exist."""
    number = sum(each.unknown for each in impact.refused.values())
    if number:
        yield Finding(
            source="audit log",
            message=f"the log does not have the names of {count(number, 'refused object')}:"
            " whether they exist now is unknown",
            hint="log these resources at level RequestResponse in the audit policy",
            rule="audit-log",
            severity="warning",
        )


def unjudged(answer: ImpactAnswer) -> Iterator[Finding]:
    """Yield a warning for each reason why requests could not be judged.

    If none could be judged, it is an error: nothing is known of the impact then.
    """
    judged = answer.impact.judged
    for reason, number in answer.counts.unjudged.most_common():
        what, hint = UNJUDGED[reason]
        yield Finding(
            source=f"audit log: {plain(answer.counts.first[reason])}",
            message=f"{count(number, 'request')} cannot be judged, this one first: {what}",
            hint=hint or None,
            rule="audit-log" if judged else "unreadable",
            severity="warning" if judged else "error",
        )
    for message, number in answer.impact.errors.most_common():
        yield Finding(
            source="requests",
            message=f"{count(number, 'request')} cannot be judged: {plain(message)}",
            rule="audit-log" if judged else "unreadable",
            severity="warning" if judged else "error",
        )


def unconcerned(answer: ImpactAnswer) -> Iterator[Finding]:
    """Yield a warning with the reason if no policy concerns anything that is in the log."""
    counts, impact = answer.counts, answer.impact
    if not counts.events or impact.judged or impact.errors or counts.unjudged:
        return
    source, hint = "audit log", "policies decide on writes: add files of the log that have some"
    message = f"none of {count(counts.events, 'event')} is a write that is answered"
    first = counts.first_unconcerned
    if first is not None:
        resource = "/".join(filter(None, (first.resource.resource, first.sub_resource)))
        name = "/".join(filter(None, (first.namespace, first.name)))
        source = f"audit log: {plain(f'{first.operation} {resource} {name}'.strip())}"
        message = f"no policy concerns any of {count(counts.unconcerned, 'write')}, this one first"
        reasons = (f"{each.id}: {why_unnamed(each, first)}" for each in answer.policies)
        hint = "; ".join(map(plain, islice(reasons, _MOST_REASONS)))
    yield Finding(
        source=source, message=message, hint=hint or None, rule="audit-log", severity="warning"
    )


def plain(text: str) -> str:
    """Return a text on one line that no terminal acts upon; logs and objects may have any."""
    kept = "".join(each if each.isprintable() else "\ufffd" for each in text)
    return kept if len(kept) <= _LONGEST_CELL else f"{kept[: _LONGEST_CELL - 1]}…"


def _as_json(summary: ImpactSummary, answer: ImpactAnswer) -> dict[str, Any]:
    counts = answer.counts
    log = {
        "events": counts.events,
        "others": counts.others,
        "repeated": counts.repeated,
        "unconcerned": counts.unconcerned,
        "unjudged": dict(counts.unjudged),
        "problems": dict(answer.problems.counts),
    }
    written: dict[str, Any] = msgspec.to_builtins(summary)
    return {**written, "errors": dict(answer.impact.errors), "log": log}


def _print(summary: ImpactSummary, answer: ImpactAnswer) -> None:
    affected = bool(summary.refused or summary.changed)
    click.secho(plain_sentence(summary), bold=True, fg="yellow" if affected else "green")
    for title, groups in _groups(summary):
        _table(_head(title), [_row(each) for each in groups], numbers=_HEAD[1:])
    rules = [
        (
            plain(each.policy),
            plain(each.rule) or "-",
            each.enforcement,
            f"{each.objects:,}",
            plain(each.first[0]) if each.first else "-",
            plain(each.message),
        )
        for each in summary.rules
    ]
    names = ("POLICY", "RULE", "ENFORCEMENT", "OBJECTS", "FIRST OF THEM", "MESSAGE")
    _table(names, rules, numbers=["OBJECTS"])
    fields = [(plain(each.kind), plain(each.field), f"{each.objects:,}") for each in summary.fields]
    _table(("KIND", "CHANGED FIELD", "OBJECTS"), fields, numbers=["OBJECTS"])
    click.echo(f"\n{_counted(summary, answer)}")


def plain_sentence(summary: ImpactSummary) -> str:
    """Return the sentence of a summary, safe for a terminal."""
    return "".join(each if each.isprintable() else "\ufffd" for each in summary.sentence)


_HEAD: Final = ("", "REFUSED", "RUNNING", "RETRYING", "WARNED", "CHANGED")


def _head(title: str) -> tuple[str, ...]:
    return (title, *_HEAD[1:])


def _groups(summary: ImpactSummary) -> Iterator[tuple[str, Sequence[ImpactGroup]]]:
    yield "TEAM", summary.teams
    yield "OWNER", summary.owners
    yield "POLICY", summary.policies


def _row(each: ImpactGroup) -> tuple[str, ...]:
    numbers = (each.refused, each.running, each.retrying, each.warned, each.changed)
    return (plain(each.name) or "-", *(f"{number:,}" if number else "-" for number in numbers))


def _table(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Iterable[str] = ()
) -> None:
    if rows:
        click.echo()
        show_table(names, rows[:MOST_ROWS], numbers=numbers)
        if len(rows) > MOST_ROWS:
            click.echo(f"… and {len(rows) - MOST_ROWS:,} more; -o json has all")


def _counted(summary: ImpactSummary, answer: ImpactAnswer) -> str:
    """Say how many requests the counts are of."""
    counts = answer.counts
    parts = [f"{count(summary.judged, 'request')} judged"]
    if counts.events:
        parts[0] += f" of {count(counts.events, 'event')}"
    missing = counts.unjudged.total() + answer.impact.errors.total()
    for number, words in (
        (missing, "that cannot be judged"),
        (summary.refused_then, f"refused then ({summary.refused_again:,} would be again)"),
        (summary.dry_runs, "dry runs" if summary.dry_runs > 1 else "dry run"),
        (counts.repeated, "repeated"),
        (summary.left_out, "for more objects than are listed"),
    ):
        if number:
            parts.append(f"{number:,} {words}")
    return ", ".join(parts)


def _as_findings(summary: ImpactSummary, answer: ImpactAnswer) -> Iterator[Finding]:
    """Yield a finding for each rule, and for each policy that changes objects, at its place."""
    places = {policy.name: policy.place for policy in answer.policies}
    for rule in summary.rules:
        verb = "refuse" if rule.enforcement == "Deny" else f"object ({rule.enforcement}) to"
        running = f", {rule.running:,} that exist now" if rule.running else ""
        first = plain(", ".join(rule.first[:3]))
        name = f"{rule.policy}: {rule.rule}" if rule.rule else rule.policy
        message = f"{plain(name)} would {verb} {count(rule.objects, 'object')}{running}, such as"
        yield Finding(
            source=places.get(rule.policy, "policies"),
            message=f"{message} {first}: {plain(rule.message)}",
            severity="error" if rule.enforcement == "Deny" else "warning",
            rule=rule.policy,
        )
    for group in summary.policies:
        if group.changed:
            fields = ", ".join(_fields_of(answer.impact, group.name))
            yield Finding(
                source=places.get(group.name, "policies"),
                message=f"{plain(group.name)} would change {count(group.changed, 'object')}:"
                f" {plain(fields)}",
                severity="warning",
                rule=group.name,
            )


def _fields_of(impact: Impact, policy: str) -> Iterable[str]:
    found: dict[str, None] = {}
    for each in impact.changed.values():
        if policy in each.policies:
            found |= each.fields
            if len(found) >= MOST_ROWS:
                break
    return list(found)[:MOST_ROWS]


def _as_reports(impact: Impact) -> Iterator[Any]:
    """Yield a report for each namespace."""
    book = ReportBook()
    for objects in (impact.refused, impact.warned):
        for key, found in objects.items():
            subject = found.subject
            group = f"{key.group}/{found.version}" if key.group else found.version
            named = ReportSubject(group, subject.kind, subject.namespace, subject.name)
            for rule, message in found.messages.items():
                result: Result = "fail" if rule.rule else "error"
                result_key = ResultKey(rule.policy, rule.rule, result, rule.enforcement)
                book.note(subject.namespace, result_key, message=message, subject=named)
    now = SystemClock().now()
    for namespace, rows in sorted(book.namespaces.items()):
        yield scanned(_REPORT_API, namespace, rows, None, now=now)


def _markdown(summary: ImpactSummary, answer: ImpactAnswer) -> Iterator[str]:
    """Yield the lines of a comment on a pull request."""
    yield "### Impact of these policies"
    yield ""
    yield f"**{_marked(summary.sentence)}**"
    for title, groups in _groups(summary):
        numbers = _HEAD[1:]
        heads = [title.capitalize(), *(name.capitalize() for name in numbers)]
        yield from _marked_table(heads, [_row(each) for each in groups], len(numbers))
    rules = [
        (f"{each.objects:,}", each.policy, each.rule or "-", each.enforcement, each.message)
        for each in summary.rules
    ]
    yield from _marked_table(["Objects", "Policy", "Rule", "Enforcement", "Message"], rules, 0)
    fields = [(f"{each.objects:,}", each.kind, each.field) for each in summary.fields]
    yield from _marked_table(["Objects", "Kind", "Changed field"], fields, 0)
    yield ""
    yield f"{_counted(summary, answer)}."


def _marked_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], numbers: int
) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield _marked_row(names)
    left = len(names) - numbers
    yield "|" + "---|" * left + "---:|" * numbers
    for row in rows[:MOST_ROWS]:
        yield _marked_row([_marked(plain(cell)) for cell in row])
    if len(rows) > MOST_ROWS:
        yield ""
        yield f"… and {len(rows) - MOST_ROWS:,} more."


def _marked_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _marked(text: str) -> str:
    """Return a text without a meaning in Markdown or HTML, and without mentions."""
    kept = "".join(each if each.isprintable() else "\ufffd" for each in text)
    kept = kept.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKED.sub(r"\\\1", kept).replace("@", "&#64;").replace("://", ":&#8203;//")


def has_impact(impact: Impact) -> bool:
    """Tell whether something would be refused or changed."""
    return bool(impact.refused or impact.changed)

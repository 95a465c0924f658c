"""`policyd apply`: show the effect of the admission webhooks on objects."""

import difflib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Unpack

import click
import msgspec
import yaml

from policyd.admission.decisions import combined
from policyd.admission.in_turn import decided_in_turn
from policyd.api.admission import AdmissionRequest
from policyd.api.meta import Json
from policyd.cli.formats.documents import load, read_objects
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import count, exit_code, show_all, unusable
from policyd.cli.formats.reports import FORMATS, Format, ReportEntry, entries_of, report
from policyd.cli.options import OBJECTS, POLICIES
from policyd.cli.policies.given_surroundings import surroundings_of
from policyd.cli.policies.request_options import (
    Labels,
    ObjectSurroundings,
    RequestOptions,
    request_of,
    with_request_options,
)
from policyd.clock import SystemClock
from policyd.dialects.kyverno.declared import declared_values
from policyd.engine.background.acting import (
    ActingPolicies,
    PolicyActed,
    with_exceptions,
)
from policyd.engine.background.evaluation import scope_of
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.evaluate.rollout import ROLLED_OUT
from policyd.engine.evaluate.verdict import LIFTED_BY, MUTATED_BY
from policyd.engine.model.background import Deletion
from policyd.engine.model.decision import Decision
from policyd.engine.offline.requests import (
    ObjectError,
    custom_kinds,
    existing_requests,
    makers_for,
    offline_set,
    raw,
)
from policyd.engine.offline.shadows import ShadowDifference, shadow_differences
from policyd.patch.json_patch import apply_json_patch

Output = Literal["yaml", "json", "diff"]


@dataclass(frozen=True, slots=True)
class _Applied:
    """An object, the decisions on it, the result, and what shadows would have decided."""

    document: Document
    decision: Decision
    notes: tuple[str, ...]
    result: Json
    shadows: tuple[ShadowDifference, ...]
    generated: tuple[PolicyActed, ...] = ()
    deleted: tuple[PolicyActed, ...] = ()
    mutated: tuple[PolicyActed, ...] = ()

    @property
    def name(self) -> str:
        return _name(self.document.value)

    @property
    def results(self) -> Iterator[Json]:
        """The object as it would be stored, and the generated and mutated ones, in order."""
        yield self.result
        for each in (*self.generated, *self.mutated):
            yield from each.result.objects

    @property
    def failures(self) -> Iterator[str]:
        """What policies that act by themselves could not decide on."""
        for policy, result in (*self.generated, *self.mutated, *self.deleted):
            if result.outcome == "failed":
                yield f"`{policy.id}` failed: {result.error}"


def _name(obj: Json) -> str:
    kind, metadata = obj["kind"], obj["metadata"]
    name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
    namespace = metadata.get("namespace")
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


class _Given(RequestOptions):
    """The arguments of the command."""

    policies: tuple[str, ...]
    objects: tuple[str, ...]
    output: Output | Format
    queue: bool


@click.command("apply")
@POLICIES
@OBJECTS
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json", "diff", *FORMATS]),
    default="yaml",
    help="The resulting objects, their differences from the given ones, or a report for CI.",
)
@with_request_options
@click.option(
    "--queue/--no-queue",
    default=True,
    show_default=True,
    help="Hold jobs that name a queue, and check queues, as the webhooks do.",
)
def command(**given: Unpack[_Given]) -> None:
    r"""Show what the admission webhooks would do to objects.

    Each object is evaluated against all policies, as if it were sent to the API server, and
    jobs are held for their queue. The objects that are allowed go to standard output, as they
    would be stored; denials and warnings go to standard error. Namespaces among the objects
    provide their labels, and CustomResourceDefinitions tell which kinds are cluster-scoped.
    What Kyverno's GeneratingPolicies generate for an object follows it; sources of clones are
    looked for among the objects. So are the targets that its MutatingPolicies with mutateExisting
    mutate for an object. What its DeletingPolicies would delete is named.

    If a policy selects by labels of a namespace that are not given, it is unknown whether the
    policy applies: that is an error. If a policy is invalid, no object is evaluated.

    No cluster is needed. With --cluster, namespaces, params, stored objects, the queues and the
    kinds of jobs that queue are those of the cluster, as far as its user may read them; policies
    are still those that are given.

    Exits with 0 if every object is allowed, 1 if one is denied, a policy is invalid or cannot
    generate its objects, or it is unknown whether a policy applies, and 2 if a document is not an
    object.

    \b
    Examples:
      policyd apply -p policies/ -f job.yaml
      policyd apply -p policies/ -f job.yaml --namespace-labels policyd.io/team=team-a
      policyd apply -p my-policy.yaml -f manifests/ -o diff
      helm template chart/ | policyd apply -p policies/ -f -
      policyd apply -p policies/ -f job.yaml --cluster -n team-a
    """
    loaded = load(given["policies"])
    show_all(loaded.findings)
    if not loaded.all_policies and not loaded.findings:
        raise click.UsageError(f"no policy in {', '.join(given['policies'])}")
    if code := exit_code(loaded.findings):
        _report(given["output"], entries_of(loaded.findings))
        sys.exit(code)
    documents, unreadable = read_objects(given["objects"])
    show_all(unreadable)
    if not documents and not unreadable:
        raise click.UsageError(f"no object in {', '.join(given['objects'])}")
    objects = [document.value for document in documents]
    surroundings = surroundings_of(given, loaded, objects, jobs=given["queue"])
    show_all(surroundings.findings)
    objects += surroundings.objects
    labels = Labels(objects, given, of_cluster=given["cluster"])
    policies = offline_set(
        surroundings.kept(loaded),
        labels.lookup,
        objects=objects,
        now=SystemClock().now,
        makers=makers_for(given["user"]),
        queues=lambda: surroundings.queues,
        as_written=given["as_written"],
    )
    asked = policies, _acting(loaded, policies, surroundings, objects)
    applied, broken = _apply(documents, asked, given, labels, surroundings)
    show_all(broken)
    _print_all_messages(applied)
    findings = [*loaded.findings, *unreadable, *surroundings.findings, *broken]
    _report(given["output"], [*entries_of(findings), *map(_entry, applied)])
    _print([one for one in applied if one.decision.allowed], given["output"])
    denied = sum(not one.decision.allowed for one in applied)
    if denied:
        click.echo(f"{count(denied, 'object')} of {len(applied)} denied", err=True)
    sys.exit(exit_code(findings, failed=any(map(_has_failed, applied))))


def _acting(
    loaded: Loaded, policies: PolicySet, surroundings: ObjectSurroundings, objects: Sequence[Json]
) -> ActingPolicies:
    """Return the policies that act by themselves, which read the given objects."""
    external = declared_values([*loaded.objects, *objects])
    kinds = {**surroundings.kinds, **custom_kinds(objects)}
    return ActingPolicies(
        with_exceptions(loaded.background, loaded.exceptions),
        replace(policies.surroundings, extra=external),
        scope_of(kinds),
        existing_requests(objects, kinds) if loaded.background else (),
    )


def _apply(
    documents: Sequence[Document],
    asked: tuple[PolicySet, ActingPolicies],
    given: _Given,
    labels: Labels,
    surroundings: ObjectSurroundings,
) -> tuple[list[_Applied], list[Finding]]:
    """Evaluate each object; a document that is not an object, or is undecided, is a finding."""
    policies, acting = asked
    applied: list[_Applied] = []
    findings: list[Finding] = []
    held = surroundings.held
    makers = policies.surroundings.makers
    jobs = None if held is None else held.admission(makers, labels.lookup)
    kinds = {**surroundings.kinds, **custom_kinds(document.value for document in documents)}
    for document in progress(documents, "applying", len(documents)):
        try:
            request = request_of(document.value, given, kinds, surroundings)
        except ObjectError as error:
            findings.append(unusable(document, error))
            continue
        labels.note(policies, request)
        if given["queue"]:
            decisions = decided_in_turn(policies, request, jobs)
        else:
            decisions = (policies.review(request),)
        decision = combined(*decisions)
        result = apply_json_patch(document.value, decision.operations)
        shadows = tuple(shadow_differences(policies, request, decision))
        one = _Applied(document, decision, _notes(decisions), result, shadows)
        applied.append(_with_acts(one, acting, request) if decision.allowed else one)
    return applied, [*findings, *labels.findings]


def _with_acts(one: _Applied, acting: ActingPolicies, request: AdmissionRequest) -> _Applied:
    """Add what policies that act by themselves do about an object that is stored."""
    if request.operation == "DELETE":
        return replace(one, generated=tuple(acting.generated(request)))
    stored = msgspec.structs.replace(request, object=raw(one.result))
    return replace(
        one,
        generated=tuple(acting.generated(stored)),
        deleted=tuple(acting.deleted(stored)),
        mutated=tuple(acting.mutated(stored)),
    )


def _notes(decisions: Sequence[Decision]) -> tuple[str, ...]:
    """Return the notes for the audit log that concern the author of an object."""
    notes = (
        f"{label}: {text}"
        for label, key in (("lifted", LIFTED_BY), ("rolled out", ROLLED_OUT))
        for decision in decisions
        for text in decision.audit_annotations.get(key, "").split("; ")
        if text
    )
    return tuple(dict.fromkeys(notes))


def _has_failed(one: _Applied) -> bool:
    """Tell whether an object is denied, or a policy cannot act on it."""
    return not one.decision.allowed or any(True for _ in one.failures)


def _print_all_messages(applied: Sequence[_Applied]) -> None:
    for one in applied:
        _print_messages(one)


def _print_messages(one: _Applied) -> None:
    """Print the decision on an object to stderr."""
    by = one.decision.audit_annotations.get(MUTATED_BY)
    if by:
        click.secho(f"{one.name}: changed by {by}", dim=True, err=True)
    for note in one.notes:
        click.secho(f"{one.name}: {note}", dim=True, err=True)
    for warning in one.decision.warnings:
        click.secho(f"{one.name}: warning: {warning}", fg="yellow", err=True)
    for denial in one.decision.denials:
        click.secho(f"{one.name}: denied: {denial}", fg="red", err=True)
    for difference in one.shadows:
        click.secho(f"{one.name}: {difference}", fg="yellow", err=True)
    _print_acts(one)


def _print_acts(one: _Applied) -> None:
    """Print what policies that act by themselves do about an object to stderr."""
    for what, acted in (("generated", one.generated), ("mutated", one.mutated)):
        for policy, result in acted:
            for obj in result.objects:
                by = f"{_name(obj)} {what} by {policy.id}"
                click.secho(f"{one.name}: {by}", dim=True, err=True)
    for policy, deleted in one.deleted:
        if deleted.outcome == "matched" and isinstance(policy.action, Deletion):
            by = f"deleted by {policy.id} on its schedule, `{policy.action.schedule}`"
            click.secho(f"{one.name}: {by}", fg="yellow", err=True)
    for failure in one.failures:
        click.secho(f"{one.name}: {failure}", fg="red", err=True)


def _report(output: Output | Format, entries: Sequence[ReportEntry]) -> None:
    """Write a report for CI, if one is asked for."""
    if output == "sarif" or output == "junit":  # noqa: PLR1714 - the type is narrowed by it
        click.echo(report(output, "apply", entries))


def _print(allowed: Sequence[_Applied], output: Output | Format) -> None:
    match output:
        case "yaml":
            if allowed:
                results = (_yaml(result) for one in allowed for result in one.results)
                click.echo("---\n".join(results), nl=False)
        case "json":
            click.echo(json.dumps([each for one in allowed for each in one.results], indent=2))
        case "diff":
            for one in allowed:
                _print_differences(one)
        case "sarif" | "junit":
            pass


def _entry(one: _Applied) -> ReportEntry:
    """Return an object with its denials and warnings, for CI."""
    document, decision = one.document, one.decision
    denials = [
        replace(document.finding(str(denial)), rule=denial.policy) for denial in decision.denials
    ]
    warnings = [
        replace(document.finding(warning), rule="warning", severity="warning")
        for warning in decision.warnings
    ]
    failures = [replace(document.finding(failure), rule="background") for failure in one.failures]
    found = (*denials, *warnings, *failures)
    return ReportEntry(name=one.name, group=document.source, findings=found)


def _print_differences(one: _Applied) -> None:
    _, *generated = one.results
    _print_difference(one.document.value, one.result, one.document.source)
    for obj in generated:
        _print_difference(None, obj, "/dev/null")


def _print_difference(before: Json, after: Json, source: str) -> None:
    lines = difflib.unified_diff(
        [] if before is None else _yaml(before).splitlines(),
        _yaml(after).splitlines(),
        source,
        _name(after if before is None else before),
        lineterm="",
    )
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in lines:
        click.secho(line, fg=colours.get(line[0]))


def _yaml(value: Json) -> str:
    return yaml.safe_dump(value, sort_keys=False)

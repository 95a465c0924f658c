"""`policyd replay`: recorded requests through changed policies."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import click
import msgspec

from policyd.admission.in_turn import decided_together, queues_concern
from policyd.api.makers import Makers
from policyd.api.meta import Json
from policyd.cli.formats.documents import load, load_valid, read_objects
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import count, exit_code, show_all
from policyd.cli.options import IMPACT_OPTIONS, check_cluster, from_cluster
from policyd.cli.policies.audit_files import LogFile, log_files, reviews_of
from policyd.cli.policies.impact_outputs import OUTPUTS, ReplayOptions
from policyd.cli.policies.request_options import NAMESPACE_LABELS, Labels
from policyd.clock import SystemClock
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.offline.replay import (
    Difference,
    Recording,
    ReplayedAnswer,
    compare,
    read_recording,
)
from policyd.engine.offline.requests import offline_set
from policyd.errors import PolicydError
from policyd.standard_input import PATH


@click.command("replay")
@click.argument("recorded", nargs=-1, required=True, type=PATH)
@click.option(
    "-p",
    "--policies",
    multiple=True,
    required=True,
    type=PATH,
    help="The new policies: file or folder; may be repeated.",
)
@click.option(
    "--against",
    multiple=True,
    type=PATH,
    help="The old policies, instead of what was recorded; may be repeated.",
)
@click.option(
    "-f",
    "--filename",
    "objects",
    multiple=True,
    type=PATH,
    help="Namespaces and params that policies look at: file or folder.",
)
@click.option(
    "--queue/--no-queue",
    default=False,
    show_default=True,
    help="Hold jobs that name a queue, and check queues, as the webhooks do.",
)
@NAMESPACE_LABELS
@click.option(
    "--summary",
    is_flag=True,
    help="Sum up what would be refused and changed, as for audit logs.",
)
@IMPACT_OPTIONS
@from_cluster("namespaces, params, and whether refused objects exist")
@click.option(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    default="text",
    help="Output format; those besides text and json sum up.",
)
def command(**given: Unpack[ReplayOptions]) -> None:
    r"""Show what changed policies would answer differently to recorded requests.

    RECORDED are files or folders of AdmissionReviews as the API server sends them, one a file
    or one a line. They are answered by the new policies, and by the old ones if --against names
    them. Without --against, the recorded response of the request is used; without a response,
    the request counts as allowed and unchanged.

    RECORDED may also be audit logs of the API server (audit.k8s.io/v1, JSON), rotated and
    compressed ones too. The answer is then a summary: what the policies would have refused and
    changed, by team, owner, policy, rule and field. Requests are judged with the objects that the
    log has: levels Request and RequestResponse have them. What cannot be judged is counted.

    Without --queue, policies alone decide; a warning says how many of the requests the rules of
    queues would concern. Use it for recordings whose responses have what these rules change.

    If a new policy is invalid, nothing is answered.

    Exits with 0 if no answer differs, 1 if one differs, a policy is invalid, or it is unknown
    whether a policy applies because a namespace's labels are missing, and 2 if a document is
    not an AdmissionReview, or nothing of an audit log can be judged.

    \b
    Examples:
      policyd replay reviews.jsonl -p policies/ --against released-policies/
      policyd replay recorded/ -p policies/ -f namespaces.yaml
      policyd replay reviews.jsonl -p policies/ -o json | jq '.differences[].request'
      policyd replay /var/log/kubernetes/audit/ -p policies/ --team team
      policyd replay audit.log -p policies/ -o markdown > comment.md
    """
    check_cluster(given)
    files = log_files(given["recorded"])
    if given["summary"] or given["output"] not in ("text", "json") or any(f.is_log for f in files):
        # Imported only where it is used, as it takes a while.
        from policyd.cli.policies.impact_command import sum_up  # noqa: PLC0415

        sum_up(files, given)
    elif given["cluster"]:
        raise click.UsageError("--cluster needs an audit log, or --summary")
    else:
        _compare(files, given)


def _compare(files: Sequence[LogFile], given: ReplayOptions) -> None:
    """Show the answer to each recorded review that differs."""
    documents, findings = read_objects(given["objects"])
    objects = [document.value for document in documents]
    labels = Labels(objects, given)
    new = _set(load_valid(given["policies"]), objects, labels)
    old = _old(given["against"], objects, labels, findings) if given["against"] else None
    reviews = [each for file in files for each in reviews_of(file)]
    if not reviews:
        raise click.UsageError(f"no AdmissionReview in {', '.join(given['recorded'])}")
    decide = decided_together if given["queue"] else PolicySet.review
    answer = partial(compare, new=new, old=old, decide=decide)
    sets = [new] if old is None else [new, old]
    differences = list(_replay(reviews, answer, sets, findings, labels))
    left_out = () if given["queue"] else _queues_left_out(differences, new)
    findings += [*left_out, *labels.findings]
    show_all(findings)
    counts = Counter[str](one.kind for one in differences)
    differing = [one for one in differences if one.kind != "same"]
    shadowed = [one for one in differences if one.shadows]
    if given["output"] == "json":
        shown: dict[str, Any] = {
            "counts": dict(counts),
            "differences": [_as_json(one) for one in differing],
        }
        if new.shadows:
            shown["shadows"] = [_shadow_as_json(one) for one in shadowed]
        click.echo(json.dumps(shown, indent=2))
    else:
        _print(differing, counts)
        if new.shadows:
            _print_shadows(shadowed)
    sys.exit(exit_code(findings, failed=bool(differing)))


def _old(
    paths: Sequence[str], objects: Sequence[Json], labels: Labels, findings: list[Finding]
) -> PolicySet:
    """Return the old policies without those that are invalid by now: each of these is a finding."""
    loaded = load(paths)
    if not loaded.policies and not loaded.findings:
        raise click.UsageError(f"no policy in {', '.join(paths)}")
    findings += (finding for finding in loaded.findings if finding.severity == "error")
    return _set(loaded, objects, labels)


def _set(loaded: Loaded, objects: Sequence[Json], labels: Labels) -> PolicySet:
    now = SystemClock().now
    return offline_set(loaded, labels.lookup, objects=objects, now=now, makers=Makers())


def _replay(
    reviews: Sequence[tuple[str, bytes]],
    answer: Callable[[Recording], Difference],
    sets: Sequence[PolicySet],
    findings: list[Finding],
    labels: Labels,
) -> Iterator[Difference]:
    """Yield the answers to each review; a document that is no review is a finding."""
    for place, text in progress(reviews, "replaying", len(reviews)):
        try:
            recording = read_recording(text)
            for policies in sets:
                labels.note(policies, recording.request)
            yield answer(recording)
        except PolicydError as error:
            findings.append(
                Finding(source=place, message=str(error), hint=error.hint, rule="unreadable")
            )


def _queues_left_out(differences: Sequence[Difference], new: PolicySet) -> Iterator[Finding]:
    """Yield how many requests were decided without rules of queues that concern them."""
    concerned = [
        each.recording
        for each in differences
        if queues_concern(new, each.recording.request, each.decision)
    ]
    if concerned:
        yield Finding(
            source=concerned[0].name,
            message=f"the rules of queues concern {count(len(concerned), 'request')}, such as this"
            " one, and are left out",
            hint="--queue applies them",
            rule="queues",
            severity="warning",
        )


def _print(differing: Sequence[Difference], counts: Mapping[str, int]) -> None:
    for one in differing:
        _print_one(one)
    total = sum(counts.values())
    parts = [
        f"{counts[kind]:,} {words}"
        for kind, words in (
            ("denied", "denied now"),
            ("allowed", "allowed now"),
            ("changed", "answered differently"),
        )
        if counts.get(kind)
    ]
    same = f"{counts.get('same', 0):,} of {count(total, 'review')} answered as before"
    click.secho(", ".join([same, *parts]), fg="yellow" if parts else "green")


def _print_one(one: Difference) -> None:
    words = {"denied": "denied now", "allowed": "allowed now", "changed": "answered differently"}
    click.secho(f"{one.recording.name}: {words[one.kind]}", bold=True)
    for sign, colour, own, other in (
        ("-", "red", one.before, one.after),
        ("+", "green", one.after, one.before),
    ):
        for text in _messages(own):
            if text not in _messages(other):
                click.secho(f"  {sign} {text}", fg=colour)
    for operation in one.operations if one.after.allowed else ():
        value = msgspec.to_builtins(operation)
        written = f" = {json.dumps(value['value'])}" if "value" in value else ""
        click.echo(f"  {operation.op} {operation.path}{written}")


def _print_shadows(shadowed: Sequence[Difference]) -> None:
    """Show the differences of shadows, with counts."""
    for one in shadowed:
        for difference in one.shadows:
            click.echo(f"{one.recording.name}: {difference}")
    by_shadow = Counter((d.shadow, d.outcome) for one in shadowed for d in one.shadows)
    for (shadow, outcome), number in sorted(by_shadow.items()):
        click.secho(f"shadow {shadow}: {count(number, 'answer')} {outcome}", fg="yellow")
    if not shadowed:
        click.secho("shadows would answer the same", fg="green")


def _shadow_as_json(one: Difference) -> dict[str, Any]:
    return {
        "request": one.recording.name,
        "uid": one.recording.request.uid,
        "differences": msgspec.to_builtins(one.shadows),
    }


def _messages(answer: ReplayedAnswer) -> list[str]:
    denials = [f"denied: {text}" for text in answer.denials or ()]
    return [*denials, *(f"warning: {text}" for text in answer.warnings or ())]


def _as_json(one: Difference) -> dict[str, Any]:
    return {
        "request": one.recording.name,
        "uid": one.recording.request.uid,
        "kind": one.kind,
        "before": {"allowed": one.before.allowed, "messages": _messages(one.before)},
        "after": {"allowed": one.after.allowed, "messages": _messages(one.after)},
        "operations": msgspec.to_builtins(one.operations),
    }

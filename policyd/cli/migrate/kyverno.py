"""`policyd migrate kyverno`: legacy policies of Kyverno, written in CEL."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

from policyd.cli.formats.documents import read_objects
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import count, unusable
from policyd.cli.migrate.writing import (
    PATHS,
    PROOFS,
    TARGET,
    Target,
    end,
    exported,
    left_out,
    proved,
    text,
)
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.errors import PolicydError
from policyd.migrate.kyverno.policies import (
    Conversion,
    UnconvertedPart,
    comments_of,
    convert,
    is_legacy,
)


@click.command("kyverno")
@PATHS
@TARGET
@PROOFS
def kyverno(
    paths: tuple[str, ...],
    target: Target,
    steps: int | None,
    seconds: float,
    against: str | None,
) -> None:
    r"""Write Kyverno's legacy ClusterPolicies and Policies in CEL.

    Reads `validate` with patterns, conditions and `foreach`, `mutate` with overlays and JSON
    patches, and `generate`. A rule that generates, or that reads ConfigMaps, other objects, images
    or the clock, becomes a policy of Kyverno's kinds, which policyd evaluates, too. What has no
    counterpart is listed on standard error, with its line and a remedy; the result then says
    that it is partial.

    With --against, a solver compares the validations of the result with a twin that was written by
    hand, or a former version; an object that only one of them denies is an error. With --prove, it
    looks for policies of the result without effect: a warning each. Both need the extra `prove`:
    pip install 'policyd[prove]'.

    Exits with 0 if every policy is converted whole, 1 if a part of one is not, or 2 if a document
    cannot be read: nothing is written then.

    \b
    Examples:
      policyd migrate kyverno require-labels.yaml
      policyd migrate kyverno require-labels.yaml --against twin.yaml
      policyd migrate kyverno policies/ -o vap | kubectl apply -f -
      kubectl get clusterpolicies -o yaml | policyd migrate kyverno -
    """
    documents, findings = read_objects(paths)
    converted: list[_Converted] = []
    for document in progress(documents, "converting", len(documents)):
        if not is_legacy(document.value):
            findings.append(left_out(document, "ClusterPolicy or Policy of kyverno.io"))
            continue
        try:
            made = convert(document.value, kyverno=target == "vpol", steps=target == "policyd")
        except PolicydError as error:
            findings.append(unusable(document, error))
            continue
        findings += _findings(document, made)
        converted.append(_written(document, made, target, findings))
    if not converted and not findings:
        raise click.UsageError(f"no policy in {', '.join(paths)}")
    if not converted:
        findings = [replace(finding, severity="error", rule="unreadable") for finding in findings]
    texts = ["".join(_texts(each)) for each in converted]
    sources = (each.document for each in converted)
    findings += proved(zip(sources, texts, strict=True), steps, seconds, against)
    whole = sum(each.conversion.whole for each in converted)
    partial = sum(not each.conversion.whole and any(each.objects) for each in converted)
    shown = f"{count(whole, 'policy')} of {len(converted)} converted whole, {partial} in part"
    end("".join(texts), findings, shown)


@dataclass(frozen=True)
class _Converted:
    """A document, and what is made of it.

    Attributes:
        document: The legacy policy.
        conversion: What it becomes; the kind of the result may have refused parts of it, too.
        objects: The objects of each of its policies, none of one that is refused.
    """

    document: Document
    conversion: Conversion
    objects: tuple[list[dict[str, Any]], ...]


def _findings(document: Document, conversion: Conversion) -> Iterator[Finding]:
    for refusal in conversion.refusals:
        named = f"rule `{refusal.rule}`: " if refusal.rule else ""
        hint = refusal.hint or "write this part by hand, or leave the rule to Kyverno"
        yield document.finding(
            f"{named}not converted: {refusal.reason}", refusal.path, hint=hint, of_key=True
        )
    for index, note in conversion.notes:
        finding = document.finding(note, ("spec", "rules", index, "validate", "message"))
        yield replace(finding, severity="warning")


def _written(
    document: Document, made: Conversion, target: Target, findings: list[Finding]
) -> _Converted:
    """Write policies in the kind that is asked for; append what is found."""
    objects, refusals = [], [*made.refusals]
    for policy, places in zip(made.policies, made.places, strict=True):
        written = [policy]
        if target == "vap" and policy["kind"] != "Policy":
            findings.append(_stays(document, policy))
        elif target == "vap":
            written, wrong = exported(policy, document, ("spec", "rules", places[0]))
            findings += wrong
            refusals += [
                UnconvertedPart((), policy["metadata"]["name"], each.message)
                for each in wrong
                if each.severity == "error"
            ]
        objects.append(written)
    return _Converted(document, replace(made, refusals=tuple(refusals)), tuple(objects))


def _texts(each: _Converted) -> Iterator[str]:
    """Yield the text of each object, with the comments of the rules that it is made of."""
    before, of_rules = _comments(each.document)
    heading = [*before, *_partial(each)]
    for objects, places in zip(each.objects, each.conversion.places, strict=True):
        comments = [*heading, *(line for place in places for line in of_rules[place])]
        for obj in objects:
            yield text(obj, comments)
            comments, heading = [], []


def _stays(document: Document, policy: Mapping[str, Any]) -> Finding:
    """Return the warning that a policy is not of the API server's own kinds."""
    finding = document.finding(
        f"`{policy['metadata']['name']}` becomes a {policy['kind']} of Kyverno: the API server's"
        " own kinds neither generate nor read more than the request",
        hint="policyd evaluates it, too",
    )
    return replace(finding, severity="warning")


def _partial(each: _Converted) -> list[str]:
    if each.conversion.whole:
        return []
    name = each.document.value["metadata"]["name"]
    reasons = [
        f"  {refusal.rule or 'the policy'}: {refusal.reason}"
        for refusal in each.conversion.refusals
    ]
    return [f"Partial: of the ClusterPolicy {name}, this is not converted:", *reasons]


def _comments(document: Document) -> tuple[list[str], list[list[str]]]:
    starts = []
    for index in range(len(document.value["spec"]["rules"])):
        position = document.position(("spec", "rules", index))
        starts.append(position.line - document.first_line if position else 1)
    return comments_of(document.text, starts)

"""`policyd explain`: explain the decisions of policies on an object."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Unpack

import click
import msgspec

from policyd.cel.explain import Explanation
from policyd.cli.formats.documents import load_valid, read_objects
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import exit_code, show_all, unusable
from policyd.cli.formats.steps import brief, line_of, outcome_as_json, step_as_json
from policyd.cli.options import OBJECTS, POLICIES, TEXT_OR_JSON
from policyd.cli.policies.given_surroundings import surroundings_of
from policyd.cli.policies.request_options import (
    Labels,
    RequestOptions,
    request_of,
    with_request_options,
)
from policyd.clock import SystemClock
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.offline.explanation import (
    ExplainedExpression,
    ExplainedPolicy,
    PolicyExplanation,
    explain_policies,
)
from policyd.engine.offline.requests import (
    ObjectError,
    custom_kinds,
    makers_for,
    offline_set,
)
from policyd.errors import did_you_mean


class _Given(RequestOptions):
    """The arguments of the command."""

    policies: tuple[str, ...]
    objects: tuple[str, ...]
    names: tuple[str, ...]
    output: Literal["text", "json"]


@click.command("explain")
@POLICIES
@OBJECTS
@click.option("--policy", "names", multiple=True, help="Explain this one only; may be repeated.")
@TEXT_OR_JSON
@with_request_options
def command(**given: Unpack[_Given]) -> None:
    r"""Explain the decisions of policies on objects.

    For each policy: whether it matches the object, and if not, which rule, selector or match
    condition excludes it; the value of each variable and validation, and of their parts; and
    the changes it makes. All policies are evaluated, so that each sees the object as the
    previous ones changed it, even if only some are shown. If one is invalid, nothing is explained.

    No cluster is needed. With --cluster, namespaces, params, stored objects and the queues are
    those of the cluster, as far as its user may read them.

    Exits with 0 whatever the policies decide, 1 if a policy is invalid or it is unknown whether
    one applies because a namespace's labels are missing, 2 if a document is not an object.

    \b
    Examples:
      policyd explain -p policies/ -f job.yaml
      policyd explain -p policies/ -f job.yaml --policy cap-gpus-per-pod
      policyd explain -p policies/ -f pod.yaml --operation UPDATE --user alice -o json
      policyd explain -p policies/ -f job.yaml --cluster --policy night-share
    """
    loaded = load_valid(given["policies"])
    _check_names(given["names"], loaded)
    documents, findings = read_objects(given["objects"])
    explained = list(_explain(documents, loaded, given, findings))
    show_all(findings)
    if given["output"] == "json":
        click.echo(json.dumps([_as_json(*one) for one in explained], indent=2))
    else:
        for document, policies in explained:
            _print(document, policies, _unbound(loaded, policies, given["names"]))
    sys.exit(exit_code(findings))


def _check_names(names: Sequence[str], loaded: Loaded) -> None:
    known = [policy.name for policy in loaded.policies]
    for name in names:
        if name not in known:
            near = did_you_mean(name, known)
            raise click.UsageError(f"policy `{name}` not found{f': {near}' if near else ''}")


def _explain(
    documents: Sequence[Document], loaded: Loaded, given: _Given, findings: list[Finding]
) -> Iterator[tuple[Document, list[PolicyExplanation]]]:
    """Yield each object with its explanation; a document that is not an object is a finding."""
    objects = [document.value for document in documents]
    surroundings = surroundings_of(given, loaded, objects)
    findings += surroundings.findings
    objects += surroundings.objects
    kinds = {**surroundings.kinds, **custom_kinds(objects)}
    labels = Labels(objects, given, of_cluster=given["cluster"])
    policies: PolicySet = offline_set(
        surroundings.kept(loaded),
        labels.lookup,
        objects=objects,
        now=SystemClock().now,
        makers=makers_for(given["user"]),
        queues=lambda: surroundings.queues,
        as_written=given["as_written"],
    )
    for document in progress(documents, "explaining", len(documents)):
        try:
            request = request_of(document.value, given, kinds, surroundings)
        except ObjectError as error:
            findings.append(unusable(document, error))
            continue
        labels.note(policies, request)
        explained = explain_policies(policies, request, names=given["names"])
        yield document, list(explained)
    findings += labels.findings


def _unbound(
    loaded: Loaded, explained: Sequence[PolicyExplanation], names: Sequence[str]
) -> list[CompiledPolicy]:
    """Return the policies that do nothing for want of a binding."""
    bound = {one.policy.id for one in explained}
    return [
        policy
        for policy in loaded.policies
        if policy.id not in bound and (not names or policy.name in names)
    ]


def _print(
    document: Document, explained: Sequence[PolicyExplanation], unbound: Sequence[CompiledPolicy]
) -> None:
    metadata = document.value["metadata"]
    name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
    click.secho(f"{document.value['kind']} {name}", bold=True)
    for one in explained:
        for line in _lines(one):
            click.echo(f"  {line}")
    for policy in unbound:
        click.echo(f"  {policy.id}: has no effect: it has no binding here")


def _lines(one: PolicyExplanation) -> Iterator[str]:
    shadow = f", shadow of {one.policy.shadow_of}" if one.policy.shadow_of else ""
    title = f"{click.style(one.policy.id, bold=True)} ({one.phase}{shadow})"
    if one.why_not:
        yield f"{title}: does not match: {one.why_not}"
        return
    yield f"{title}: {'matches' if one.matched else 'does not match'}"
    staged = (f"rolled out: {staged}" for staged in one.staged)
    for text in (*staged, *(f"lifted: {why}" for why in _lifted(one))):
        yield f"  {text}"
    for seen in one.seen:
        for line in _seen_lines(seen):
            yield f"  {line}"
    for failure in one.decision.failures:
        outcome = "ignored" if failure.ignored else "refuses"
        yield click.style(f"  cannot be evaluated ({outcome}): {failure.message}", fg="red")
    for objection in one.decision.objections:
        yield click.style(f"  says: {objection}", fg="red")
    for operation in one.decision.operations:
        value = msgspec.to_builtins(operation)
        written = f" = {json.dumps(value['value'])}" if "value" in value else ""
        yield click.style(f"  changes: {operation.op} {operation.path}{written}", fg="green")


def _lifted(one: PolicyExplanation) -> list[str]:
    """Return why or by which exceptions the policy is lifted."""
    return [text.partition(": ")[2] for text in one.decision.exempted]


def _seen_lines(seen: ExplainedPolicy) -> Iterator[str]:
    if seen.binding:
        yield f"by binding {seen.binding}"
    if seen.path:
        yield f"for the pods of {seen.path}"
    if seen.exempt:
        yield "lifted by an exception"
    for condition in seen.conditions:
        yield from _asked_lines("match condition", condition)
    for variable in seen.variables:
        yield f"variables.{variable.name} = {_value(variable.explanation)}"
    for validation in seen.validations:
        yield from _asked_lines("validation", validation)


def _value(explanation: Explanation | None) -> str:
    return "lifted by an exception" if explanation is None else brief(explanation.outcome)


def _asked_lines(what: str, asked: ExplainedExpression) -> Iterator[str]:
    """Describe the value of an expression, and of its parts."""
    colour = "green" if asked.holds else "red"
    yield f"{what} `{asked.name}`: {click.style(_value(asked.explanation), fg=colour)}"
    if asked.explanation is not None:
        for step in asked.explanation.steps:
            yield f"    {line_of(step)}"


def _as_json(document: Document, explained: Sequence[PolicyExplanation]) -> dict[str, Any]:
    value = document.value
    named = {key: value[key] for key in ("apiVersion", "kind")}
    metadata = {key: value["metadata"].get(key) for key in ("name", "namespace")}
    return {**named, **metadata, "policies": [_policy_as_json(one) for one in explained]}


def _policy_as_json(one: PolicyExplanation) -> dict[str, Any]:
    decision = one.decision
    return {
        "policy": one.policy.id,
        "source": one.policy.place,
        "phase": one.phase,
        "matched": one.matched,
        "whyNot": one.why_not or None,
        "shadowOf": one.policy.shadow_of or None,
        "rollout": [str(staged) for staged in one.staged],
        "lifted": _lifted(one),
        "seen": [_seen_as_json(seen) for seen in one.seen],
        "objections": [
            {"validation": o.validation, "message": o.message, "path": o.path}
            for o in decision.objections
        ],
        "failures": [{"message": f.message, "ignored": f.ignored} for f in decision.failures],
        "operations": msgspec.to_builtins(decision.operations),
    }


def _seen_as_json(seen: ExplainedPolicy) -> dict[str, Any]:
    lists = {
        "matchConditions": seen.conditions,
        "variables": seen.variables,
        "validations": seen.validations,
    }
    asked = {name: [_asked_as_json(one) for one in each] for name, each in lists.items()}
    return {"path": seen.path, "binding": seen.binding, "lifted": seen.exempt, **asked}


def _asked_as_json(asked: ExplainedExpression) -> dict[str, Any]:
    explanation = asked.explanation
    if explanation is None:
        return {"name": asked.name, "lifted": True}
    return {
        "name": asked.name,
        "expression": explanation.source,
        **outcome_as_json(explanation.outcome),
        "cost": explanation.spent,
        "steps": [step_as_json(step) for step in explanation.steps],
    }

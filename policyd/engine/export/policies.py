"""Export a policy as the API server's own kinds, if it needs nothing of policyd.

A Policy becomes a ValidatingAdmissionPolicy for its validations and a MutatingAdmissionPolicy for
`inject` and its mutations, each with bindings; one that concerns kinds with pods in different
places becomes one for each place. Parts without an exact counterpart are reported, and nothing of
such a policy is exported.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from policyd.api.meta import Json
from policyd.api.policy import PolicySpec, Validation
from policyd.cel.syntax.literals import json_literal
from policyd.engine.compile.native import FORMS, GROUP, is_binding, read_binding, read_policy
from policyd.engine.compile.policies import compile_policy
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.export.expressions import NotExportableError, methods_of
from policyd.engine.export.mutations import MutationExporter
from policyd.engine.export.patch import as_json
from policyd.engine.export.places import PodPlace, both
from policyd.engine.export.refused import refused, refused_annotations
from policyd.engine.export.rules import ExportTarget, changing, needs_of, targets_of
from policyd.engine.export.target import Exporter, Problem
from policyd.engine.model.bindings import completed, needs_binding
from policyd.engine.model.compiled import MUTATING, VALIDATING, CompiledBinding, CompiledPolicy
from policyd.engine.model.queue_facts import QUEUE_VARIABLES
from policyd.patch.operations import Path


class _ValidationExporter(Exporter):
    """Exports the validations of a policy."""

    def spec(self) -> dict[str, Json]:
        """Return the spec of a ValidatingAdmissionPolicy, empty if there is nothing to validate."""
        spec = self.policy.policy.spec
        if not spec.validations and not spec.audit_annotations:
            return {}
        validations = [
            self.attempt(("spec", "validations", i), partial(self._validation, v, i))
            for i, v in enumerate(spec.validations)
        ]
        annotations = [
            self.attempt(("spec", "auditAnnotations", i), partial(self._annotation, a))
            for i, a in enumerate(spec.audit_annotations)
        ]
        return {
            **self.shared(),
            **({"validations": validations} if validations else {}),
            **({"auditAnnotations": annotations} if annotations else {}),
        }

    def _validation(self, validation: Validation, index: int) -> dict[str, Json]:
        compiled = self.policy.validations[index]
        expression = self._demanded(validation, compiled.program.variables_used)
        for _, lifting in self.lifting(compiled.place):
            expression = f"({self.scope.rewrite(lifting)}) || ({expression})"
        written: dict[str, Json] = {"expression": self.late(expression, "true")}
        remedy = validation.remedy if isinstance(validation.remedy, str) else ""
        message = " ".join(compiled.message.split())
        written["message"] = f"{message}; {remedy}" if remedy else message
        computed = self._message(validation, index)
        if computed:
            written["messageExpression"] = computed
        return {**written, "reason": validation.reason}

    def _demanded(self, validation: Validation, used: frozenset[str]) -> str:
        if not self.several or not self.asks(used):
            return self.scope.rewrite(validation.expression)
        return " && ".join(
            place.all(self._unless_left_out(place, validation.expression)) for place in self.places
        )

    def _unless_left_out(self, place: PodPlace, source: str) -> str:
        demanded, chosen = f"({self.at(place).rewrite(source)})", self.chosen(place)
        return f"(!({chosen}) || {demanded})" if chosen else demanded

    def _message(self, validation: Validation, index: int) -> str:
        """Return the CEL of the message and the remedy, empty if both are constant."""
        compiled = self.policy.validations[index]
        remedy = validation.remedy
        if not validation.message_expression and isinstance(remedy, str):
            return ""
        source = validation.message_expression or json_literal(" ".join(compiled.message.split()))
        if isinstance(remedy, str):
            parts = [source, *([json_literal(f"; {remedy}")] if remedy else [])]
        else:
            parts = [source, "'; '", f"string({remedy.expression})"]
        source = " + ".join(f"({part})" for part in parts) if len(parts) > 1 else parts[0]
        if not self.several or not self.asks(self.uses(source)):
            return self.scope.rewrite(source)
        failing = [
            place.gather(
                both(self.chosen(place), f"!({self.at(place).rewrite(validation.expression)})"),
                self.at(place).rewrite(source),
            )
            for place in self.places
        ]
        return f"({' + '.join(failing)})[0]"

    def _annotation(self, annotation: Any) -> dict[str, Json]:  # noqa: ANN401 - of the policy
        if any(condition.late for condition in self.asked):
            raise NotExportableError("an annotation under a condition on the namespace")
        text = self.scope.rewrite(annotation.value_expression)
        return {"key": annotation.key, "valueExpression": text}


POLICY_LABEL = "policyd.io/policy"
"""Names the policy that an exported one was made from."""

_LONGEST_LABEL = 63

_EXPORTED: Final = frozenset(
    {
        "match_constraints",
        "description",
        "pod_templates",
        "match_conditions",
        "variables",
        "param_kind",
        "param_ref",
        "inject",
        "mutations",
        "reinvocation_policy",
        "validations",
        "exceptions",
        "audit_annotations",
        "enforcement",
        "failure_policy",
        "priority",
        "requires_binding",
    }
)
"""The fields of a policy that have a counterpart; `priority` has none, and is warned about."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export: objects of the API server's kinds, or findings."""

    objects: tuple[Json, ...]
    findings: tuple[Finding, ...] = ()


def export_policy(
    policy: CompiledPolicy,
    document: Document,
    bindings: Sequence[CompiledBinding] = (),
    *,
    version: str = "v1",
    checked: bool = True,
) -> Exported:
    """Write a policy of policyd's own kind in the API server's kinds.

    Args:
        policy: The policy.
        document: Its document: findings point into it.
        bindings: The bindings, if it is not bound by itself.
        version: The version of the API server's kinds.
        checked: Whether to compile the result, as the API server will.
    """
    problems = [*_without_counterpart(policy.policy.spec), *_of_bindings(policy, bindings)]
    read = sorted(policy.uses & QUEUE_VARIABLES.keys())
    problems += (Problem(("spec",), f"`{name}` needs policyd: it reads queues") for name in read)
    whole = [completed(binding, policy) for binding in bindings]
    objects = list(_objects(policy, whole or policy.bindings, problems))
    made = [{"apiVersion": f"{GROUP}/{version}", **obj} for obj in objects]
    if not problems and checked:
        problems = list(unreadable(made))
    once = {problem.message: problem for problem in reversed(problems)}
    findings = [_finding(document, policy, problem) for problem in reversed(once.values())]
    if findings:
        return Exported((), tuple(findings))
    return Exported(tuple(made), tuple(_warnings(policy, document)))


def _objects(
    policy: CompiledPolicy, bindings: Sequence[CompiledBinding], problems: list[Problem]
) -> Iterator[dict[str, Json]]:
    """Yield the policies of each target with their bindings; note the problems."""
    try:
        targets = _targets(policy)
    except NotExportableError as error:
        problems.append(Problem(("spec", "matchConstraints", "resourceRules"), str(error)))
        return
    for target in targets:
        try:
            specs = [*_specs(policy, target, problems)]
        except NotExportableError as error:
            problems.append(Problem(("spec", "matchConditions"), str(error)))
            continue
        for kind, spec in specs:
            if spec:
                metadata = _metadata(_named(policy.name, target), policy)
                yield {"kind": kind, "metadata": metadata, "spec": spec}
                yield from _bindings_for(kind, policy, target, bindings)


def _targets(policy: CompiledPolicy) -> list[ExportTarget]:
    needs = needs_of(policy, methods_of(policy))
    return targets_of(policy.constraints.resource_rules, needs)


def _without_counterpart(spec: PolicySpec) -> Iterable[Problem]:
    for field in msgspec.structs.fields(spec):
        default = field.default
        if field.name not in _EXPORTED and getattr(spec, field.name) not in (default, None, ()):
            yield Problem(("spec", field.encode_name), f"`{field.encode_name}` needs policyd")


def _of_bindings(policy: CompiledPolicy, bindings: Sequence[CompiledBinding]) -> Iterable[Problem]:
    """Yield the features of bindings that have no counterpart, and a missing binding."""
    for binding in bindings:
        if binding.rollout:
            yield Problem(("spec",), f"`rollout` of binding `{binding.name}` needs policyd")
    if needs_binding(policy) and not bindings:
        yield Problem(("spec",), "it does nothing without a PolicyBinding, and there is none here")


def _specs(
    policy: CompiledPolicy, target: ExportTarget, problems: list[Problem]
) -> Iterator[tuple[str, dict[str, Json]]]:
    """Yield the specifications of one target, by kind; empty if there is nothing to do."""
    yield VALIDATING, _ValidationExporter(policy, target, problems).spec()
    mutable = changing(target)
    if mutable is not None:
        yield MUTATING, MutationExporter(policy, mutable, problems).spec()


def _bindings_for(
    kind: str, policy: CompiledPolicy, target: ExportTarget, bindings: Sequence[CompiledBinding]
) -> Iterator[dict[str, Json]]:
    """Yield the bindings of a policy of one target."""
    name = _named(policy.name, target)
    for binding in bindings:
        own = _named(binding.name, target) if binding.name else name
        yield {
            "kind": f"{kind}Binding",
            "metadata": _metadata(own, policy),
            "spec": binding_spec(kind, name, binding),
        }


def _named(name: str, target: ExportTarget) -> str:
    return f"{name}-{target.suffix}" if target.suffix else name


def _metadata(name: str, policy: CompiledPolicy) -> dict[str, Json]:
    given = policy.policy.metadata
    labels = dict(given.labels)
    if len(policy.name) <= _LONGEST_LABEL:
        labels[POLICY_LABEL] = policy.name
    annotations = {"annotations": dict(given.annotations)} if given.annotations else {}
    return {"name": name, "labels": labels, **annotations}


def binding_spec(kind: str, name: str, binding: CompiledBinding) -> dict[str, Json]:
    """Return the specification of a binding for a policy of one of the API server's kinds."""
    spec: dict[str, Json] = {"policyName": name}
    if kind == VALIDATING:
        spec["validationActions"] = list(binding.actions)
    if binding.constraints is not None:
        spec["matchResources"] = as_json(binding.constraints)
    if binding.param_ref is not None:
        ref = as_json(binding.param_ref)
        spec["paramRef"] = {
            **ref,
            "parameterNotFoundAction": binding.param_ref.parameter_not_found_action,
        }
    return spec


def unreadable(objects: Iterable[Json]) -> Iterable[Problem]:
    """Yield the errors that the API server would find in the result."""
    for obj in objects:
        for finding in _read(Document(obj, "export")):
            if finding.severity == "error":
                yield Problem(("spec",), f"as {obj['kind']}, {finding.field}: {finding.message}")


def _read(document: Document) -> list[Finding]:
    """Read the result as the API server does, without an estimate of its cost."""
    wrong = list(refused(document))
    if is_binding(document.value):
        return [*read_binding(document)[1], *wrong]
    policy, findings = read_policy(document)
    findings += wrong
    if policy is None:
        return findings
    compiled = compile_policy(policy, document, FORMS[document.value["kind"]])
    found = refused_annotations(compiled) if isinstance(compiled, CompiledPolicy) else compiled
    return [*findings, *found]


def _finding(document: Document, policy: CompiledPolicy, problem: Problem) -> Finding:
    return document.finding(
        f"policy `{policy.name}` is not exported: {problem.message}", problem.path
    )


def _warnings(policy: CompiledPolicy, document: Document) -> Iterable[Finding]:
    """Warn of features that are exported with a different effect."""
    if policy.policy.spec.priority and (policy.steps or policy.mutations):
        message = "`priority` is not exported: the API server's mutations run in any order"
        path: Path = ("spec", "priority")
        yield _as_warning(document.finding(message, path))


def _as_warning(finding: Finding) -> Finding:
    return replace(finding, severity="warning")

"""Compile Kyverno's PolicyExceptions, for its CEL policies and for ClusterPolicies."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import msgspec

from policyd.api.meta import Json
from policyd.cel import CelCompileError, compile_expression
from policyd.cel.errors import TooMuchError
from policyd.dialects.kyverno.api import PolicyException, RuleException, RuleExceptionSpec
from policyd.dialects.kyverno.cluster_policies import NAMESPACED
from policyd.dialects.kyverno.confinement import elsewhere, refused, with_own_words
from policyd.dialects.kyverno.environments import namespaced_environments
from policyd.dialects.kyverno.filters import like, picks
from policyd.dialects.kyverno.policies import namespace_of, shape_of
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import CompiledException, CompiledPolicy
from policyd.engine.model.dialects import Dialect
from policyd.engine.model.facts import Facts
from policyd.patch.operations import Path

KIND: Final = "PolicyException"


def load_exception(
    document: Document, dialect: Dialect
) -> tuple[CompiledException | None, list[Finding]]:
    """Read an exception, and return the findings."""
    value, findings = _read(PolicyException, document)
    if findings:
        return None, findings
    read: PolicyException = msgspec.convert(value, PolicyException)
    spec = read.spec
    environments = namespaced_environments(dialect, False)  # noqa: FBT003 - no params
    conditions = []
    findings = list(_nameless(read, document))
    for index, condition in enumerate(spec.match_conditions):
        path = ("spec", "matchConditions", index, "expression")
        try:
            conditions.append(
                compile_expression(condition.expression, environments.conditions, wants="bool")
            )
        except CelCompileError as error:
            for issue in error.issues:
                at = document.position_within(path, issue.line, issue.column)
                findings.append(document.finding(issue.message, path, hint=issue.hint, at=at))
            if isinstance(error, TooMuchError):
                break
    namespace = namespace_of(read.metadata, namespaced=True)
    uses = frozenset[str]().union(*map(environments.read_by, conditions))
    findings = [*with_own_words(refused(findings)), *elsewhere(uses, document)]
    if findings:
        return None, findings
    exception = CompiledException(
        name=read.metadata.name,
        namespace=namespace,
        policies=frozenset((ref.kind, ref.name) for ref in spec.policy_refs),
        conditions=tuple(conditions),
        images=spec.images,
        values=spec.allowed_values,
        until=math.inf if spec.expires_at is None else spec.expires_at.timestamp(),
        place=document.finding("").place,
        missing=environments.values,
    )
    return exception, findings


def _nameless(read: PolicyException, document: Document) -> Iterator[Finding]:
    """Report an exception from no policy, or from one without a name or a kind."""
    path: Path = ("spec", "policyRefs")
    if not read.spec.policy_refs:
        message = "must specify at least one policy ref"
        yield replace(document.finding(message, path[:1]), field="spec.policyRefs")
    for index, ref in enumerate(read.spec.policy_refs):
        for field, given in (("name", ref.name), ("kind", ref.kind)):
            if not given:
                yield document.finding(f"must specify policy {field}", (*path, index))


def _read(struct: type[msgspec.Struct], document: Document) -> tuple[Json, list[Finding]]:
    """Return an exception if all its fields are known: an unknown one might narrow it."""
    value, findings = shape_of(struct).read(document)
    return value, [replace(finding, severity="error") for finding in findings]


def load_rule_exception(document: Document) -> tuple[CompiledException | None, list[Finding]]:
    """Read an exception from rules of ClusterPolicies, and return the findings."""
    value, findings = _read(RuleException, document)
    if findings:
        return None, findings
    read: RuleException = msgspec.convert(value, RuleException)
    spec = read.spec
    for field, given in (("conditions", spec.conditions), ("podSecurity", spec.pod_security)):
        if given is not None:
            message = f"this PolicyException is not CEL: its `{field}` cannot be asked"
            hint = "use `match`, or leave it to Kyverno"
            return None, [document.finding(message, ("spec", field), of_key=True, hint=hint)]
    exception = CompiledException(
        name=read.metadata.name,
        policies=frozenset(_kind_and_name(each.policy_name) for each in spec.exceptions),
        conditions=(),
        picks=_picks_rules(spec),
        place=document.finding("").place,
    )
    return exception, findings


def _kind_and_name(policy_name: str) -> tuple[str, str]:
    namespace, _, name = policy_name.rpartition("/")
    return (NAMESPACED if namespace else "ClusterPolicy"), name


def _picks_rules(spec: RuleExceptionSpec) -> Callable[[CompiledPolicy, Facts], bool]:
    def picks_rule(policy: CompiledPolicy, facts: Facts) -> bool:
        rule, name = _rule_name(policy, facts), f"{policy.namespace}/{policy.name}".lstrip("/")
        return picks(spec.match, facts, templates=False) and any(
            each.policy_name == name and any(like(pattern, rule) for pattern in each.rule_names)
            for each in spec.exceptions
        )

    return picks_rule


def _rule_name(policy: CompiledPolicy, facts: Facts) -> str:
    """Return Kyverno's name of a rule for the request: rules for pods have generated ones."""
    kind = facts.request.kind.kind
    if not policy.templates or kind == "Pod":
        return policy.part
    return f"autogen-cronjob-{policy.part}" if kind == "CronJob" else f"autogen-{policy.part}"

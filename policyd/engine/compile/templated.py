"""Extend policies for pods to every kind that has pod templates."""

from collections.abc import Iterator

import msgspec

from policyd.api.admission import Rule
from policyd.api.policy import Policy
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.objects.workloads import KINDS


def with_workload_kinds(policy: Policy) -> Policy:
    """Return a policy with rules for the kinds whose templates it is for, if it is for templates.

    A rule for pods stands for all of them, of any version; one that names pods is for pods alone.
    """
    constraints = policy.spec.match_constraints
    if not policy.spec.pod_templates:
        return policy
    rules = tuple(rule for each in constraints.resource_rules for rule in _extended(each))
    constraints = msgspec.structs.replace(constraints, resource_rules=rules)
    spec = msgspec.structs.replace(policy.spec, match_constraints=constraints)
    return msgspec.structs.replace(policy, spec=spec)


def without_pod(policy: CompiledPolicy, document: Document) -> Iterator[Finding]:
    """Say if a policy is for pod templates, and asks about nothing in them."""
    asks = policy.validations or policy.mutations
    if policy.policy.spec.pod_templates and asks and "pod" not in policy.uses:
        message = "the policy is for pod templates, and no expression reads `pod`"
        hint = "`pod` is the pod, or the template; `object` is the object that contains it"
        yield document.finding(message, ("spec", "podTemplates"), of_key=True, hint=hint)


def _extended(rule: Rule) -> Iterator[Rule]:
    yield rule
    if "pods" not in rule.resources or "" not in rule.api_groups or rule.resource_names:
        return
    groups = sorted({kind.group for kind in KINDS})
    for group in groups:
        plurals = {kind.plural for kind in KINDS if kind.group == group} - {"pods"}
        yield Rule(
            operations=rule.operations,
            api_groups=(group,),
            api_versions=("*",),
            resources=tuple(sorted(plurals)),
            scope=rule.scope,
        )

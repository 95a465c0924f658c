"""Policies in a line."""

import json

import msgspec

from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.kube.resources import Resource
from webhooks.namespaces import without_cluster
from webhooks.policies.stored import PolicyMetadata, StoredPolicy

OWN = {"apiVersion": "policyd.io/v1alpha1", "kind": "Policy"}


def rule(resources="pods", operations="CREATE", groups="", versions="v1", **more):
    names = ("apiGroups", "apiVersions", "operations", "resources")
    lists = (groups, versions, operations, resources)
    return {name: text.split(",") for name, text in zip(names, lists, strict=True)} | more


def policy(*rules, inject=False, validations=False, failure="Fail", conditions=(), **more):
    """Build a policy; what is given as `namespaces` and `objects` are its selectors."""
    selectors = {"namespaces": "namespaceSelector", "objects": "objectSelector"}
    constraints = {to: more.pop(name) for name, to in selectors.items() if name in more}
    spec = {"matchConstraints": {"resourceRules": list(rules), **constraints}}
    spec |= {"failurePolicy": failure, **more}
    spec["matchConditions"] = [
        {"name": f"c{number}", "expression": text} for number, text in enumerate(conditions)
    ]
    if inject:
        spec["inject"] = {"queueName": "a"}
    if validations:
        spec["validations"] = [{"expression": "true"}]
    (compiled,) = bound({**OWN, "metadata": {"name": "p"}, "spec": spec})
    return compiled


def bound(*documents):
    """Load policies, and bind them as the webhooks do."""
    loaded = load_policies("\n---\n".join(map(json.dumps, documents)), "here", EVERY_FORMAT)
    assert not [f for f in loaded.findings if f.severity == "error"], loaded.findings
    return PolicySet(loaded.policies, namespaces=without_cluster, bindings=loaded.bindings).policies


def stored(name, spec, *, kind="Policy", group="policyd.io", namespace=""):
    """Build a policy or binding as an API server stores it."""
    version = "v1alpha1" if group == "policyd.io" else "v1"
    return StoredPolicy(
        metadata=PolicyMetadata(name=name, namespace=namespace),
        api_version=f"{group}/{version}",
        kind=kind,
        spec=msgspec.Raw(json.dumps(spec).encode()),
    )


def take(policies, policy):
    """Load a policy or binding as a source of policies does, within the limits."""
    group, _, version = policy.api_version.partition("/")
    resource = Resource(group, version, "", policy.kind)
    policies.take(policies.limits.keep(policy, resource))


def drop(policies, policy):
    """Forget a policy or binding as a source of policies does."""
    policies.limits.drop(policy.key)
    policies.drop(policy.key)

"""Policies of one namespace that are to keep those of all others from being registered.

Short lists of names stand for more combinations than there is memory. Selectors, versions and names
that the API server refuses would have it refuse the whole configuration. What is asked for is to be
sent all the same.
"""

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from policyd.api.kueue.validation import selector_errors
from policyd.api.selectors import LabelSelector
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import MOST_OF_POLICY, gather, load_policies
from policyd.engine.model.compiled import CompiledPolicy
from policyd.jobs.integrations import EVERYTHING
from policyd.registration.atoms import RuleAtom, atoms_of
from policyd.registration.configurations import (
    Registration,
    ServiceEndpoint,
    mutating_configuration,
    validating_configuration,
)
from policyd.registration.webhook_rules import derive_webhook_rules
from tests.attacks.figures import Figures

MOST_SECONDS = 6.0
"""CPU that deriving what is sent may take, beside reviews."""
MOST_BYTES = 1_000_000
"""How large a configuration may be: the API server stores 1.5 MB."""

Object = dict[str, Any]
_MANY = MOST_OF_POLICY - 1_000
"""Fields or items of a policy that is not refused for having too many."""
_CHANGE = "[JSONPatch{op: 'test', path: '/kind', value: 'Pod'}]"
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}


def policy(namespace: str, constraints: Object, kind: str = "NamespacedValidatingPolicy") -> Object:
    """Return a policy that an administrator of a namespace may write."""
    spec: Object = {"matchConstraints": {"resourceRules": [PODS], **constraints}}
    if kind == "NamespacedMutatingPolicy":
        change = {"patchType": "JSONPatch", "jsonPatch": {"expression": _CHANGE}}
        spec["mutations"] = [change]
    else:
        spec["validations"] = [{"expression": "true"}]
    metadata = {"name": "p", "namespace": namespace}
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def _names(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def _rules(count: int, among: str = "") -> list[Object]:
    return [
        PODS | {"apiGroups": [f"{among}g{n}.example.com"], "resources": [f"r{n}"]}
        for n in range(count)
    ]


def bombs() -> Iterator[tuple[str, list[Object]]]:
    """Yield policies, by what they are to do."""
    many = {"apiGroups": _names("g", 20), "apiVersions": _names("v", 20), "operations": ["*"]}
    for what, resources in (("names", _names("r", 20)), ("parts", _names("r/s", 20))):
        yield f"combinations of {what}", [_of_rules(many | {"resources": resources})]
    yield "many rules", [_of_rules(*_rules(_MANY // 9))]
    yield "the same again", [_of_rules(PODS | {"operations": ["CREATE"] * 9_999})]
    yield "many policies", [_of_rules(*_rules(50, f"{n}-")) for n in range(40)]
    yield (
        "many namespaces",
        [_of_rules(*_rules(60, f"{n}-"), namespace=f"evil-{n}") for n in range(40)],
    )
    labels = dict.fromkeys(_names("k", _MANY), "v")
    yield "many labels", [policy("evil", {"objectSelector": {"matchLabels": labels}})]
    values = {"key": "a", "operator": "In", "values": _names("v", _MANY)}
    yield "many values", [policy("evil", {"namespaceSelector": {"matchExpressions": [values]}})]


def _of_rules(*rules: Object, namespace: str = "evil") -> Object:
    return policy(namespace, {"resourceRules": list(rules)})


def refused() -> Iterator[tuple[str, list[Object]]]:
    """Yield policies that the API server would take, and that it takes in no configuration."""
    for what, rule in {
        "no version": {"apiVersions": [""]},
        "no resource": {"resources": ["", "pods"]},
        "all and one": {"resources": ["*/*", "pods"], "apiGroups": ["*", ""]},
        "parts": {"resources": ["pods/*", "pods/status", "*/status"]},
        "a name": {"resourceNames": ["a\rb'\\\n\u2028"]},
    }.items():
        yield what, [_of_rules(PODS | rule)]
    for what, requirement in {
        "a key that is none": {"key": "a b!", "operator": "Exists"},
        "a long key": {"key": "a" * 400, "operator": "Exists"},
        "a value that is none": {"key": "a", "operator": "In", "values": ["b c!"]},
        "no value": {"key": "a", "operator": "In", "values": []},
        "a value too many": {"key": "a", "operator": "Exists", "values": ["b"]},
    }.items():
        for selector in ("objectSelector", "namespaceSelector"):
            asked = {selector: {"matchExpressions": [requirement]}}
            yield f"{what} in {selector}", [policy("evil", asked)]


def loaded(objects: list[Object]) -> tuple[CompiledPolicy, ...]:
    """Return policies as they are in force, a mutating one beside each that validates."""
    kinds = ("NamespacedValidatingPolicy", "NamespacedMutatingPolicy")
    made = [
        policy(each["metadata"]["namespace"], each["spec"]["matchConstraints"], kind)
        for each in objects
        for kind in kinds
    ]
    for number, each in enumerate(made):
        each["metadata"]["name"] = f"p{number}"
    texts = (load_policies(json.dumps(each), "p.json", EVERY_FORMAT) for each in made)
    return tuple(gather(texts).policies)


def faults_of(objects: list[Object], name: str) -> Iterator[str]:
    """Yield what is wrong with what is registered for policies."""
    policies = loaded(objects)
    if len(policies) < 2 * len(objects):
        yield f"{name}: is not in force"
    began = time.process_time()
    rules = derive_webhook_rules(policies, queue=EVERYTHING)
    seconds = time.process_time() - began
    if seconds > MOST_SECONDS:
        yield f"{name}: took {seconds:.1f} s"
    endpoint = ServiceEndpoint(namespace="policyd", name="policyd")
    wanted = Registration(
        endpoint=endpoint, rules=rules, own_namespace="policyd", timeout_seconds=5
    )
    for made in (mutating_configuration(wanted), validating_configuration(wanted)):
        size = len(json.dumps(made))
        if size > MOST_BYTES:
            yield f"{name}: the configuration has {size} bytes"
        yield from map(partial("{}: {}".format, name), _invalid(made))
    for sent in (rules.mutate, rules.validate):
        atoms = [atom for call in sent for rule in call.rules for atom in atoms_of(rule)]
        missed = sum(not any(a.covers(asked) for a in atoms) for asked in _sample(objects))
        if missed:
            yield f"{name}: {missed} of what is asked for is not sent"


def _invalid(configuration: Object) -> Iterator[str]:
    """Yield for what the API server would refuse a configuration."""
    for webhook in configuration["webhooks"]:
        for where in ("objectSelector", "namespaceSelector"):
            expressions = webhook[where].get("matchExpressions", ())
            selector = msgspec.convert({"matchExpressions": expressions}, LabelSelector)
            yield from map(str, selector_errors(selector, where))
        for rule in webhook["rules"]:
            if not (all(rule["apiVersions"]) and all(rule["resources"])):
                yield f"an empty name in {rule}"
        for condition in webhook.get("matchConditions", ()):
            if not condition["expression"].isprintable() and "\r" in condition["expression"]:
                yield f"{condition['expression']!r} is no CEL"


def _sample(objects: list[Object]) -> Iterator[RuleAtom]:
    """Yield some of what policies name, that there may be."""
    for each in objects[:5]:
        for rule in each["spec"]["matchConstraints"]["resourceRules"][:5]:
            group, version, resource = (
                rule[f][-1] for f in ("apiGroups", "apiVersions", "resources")
            )
            if version and resource:
                yield RuleAtom(group, version, "Namespaced", resource, "CREATE")


def registered() -> Figures:
    """Register each bomb, and each policy that would have the configuration refused."""
    tried, faults, worst = 0, list[str](), 0.0
    for name, objects in (*bombs(), *refused()):
        tried += 1
        began = time.process_time()
        faults += faults_of(objects, name)
        worst = max(worst, time.process_time() - began)
    return Figures(tried=tried, worst_seconds=worst, faults=tuple(faults))


ATTACKS = {"policies that nothing registers with": registered}

"""The webhook configurations that policyd wants: a pure function to the objects.

A call costs the API server some two milliseconds, for any answer. So only the requests that
policies concern are sent.
Match conditions are not free either: the API server converts the object for them, at half a
millisecond a webhook. So no condition on new pods reads the user who makes them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import msgspec

from policyd.api.admission import Rule
from policyd.api.meta import Json
from policyd.api.names import NAME_LABEL, SYSTEM_NAMESPACES
from policyd.api.policy import GROUP, KYVERNO_GROUPS
from policyd.api.selectors import Requirement
from policyd.engine.objects.workloads import KINDS
from policyd.registration.atoms import atoms_of, rules_of
from policyd.registration.exclusions import LEFT_OUT, leave_out
from policyd.registration.requirements import in_order
from policyd.registration.webhook_rules import DerivedWebhook, WebhookRules

NAME = "admission.policyd.io"
"""The name of both configurations. Mutating ones are called in the order of their names: this one
comes before `kueue-mutating-webhook-configuration`, so that Kueue's defaults, where Kueue is
installed, find the queue name that a policy gave."""

FORMER_NAME = "door.policyd.io"
"""The name of both configurations before release 0.2, for which it is still known."""

NO_POLICY: Final = {
    "name": "no-policy",
    "expression": (
        f"request.resource.group != '{GROUP}' && !(request.resource.group in"
        f" {list(KYVERNO_GROUPS)} && request.resource.resource.endsWith('policies'))"
    ),
}
"""The condition by which policies can be repaired while a policy for all kinds gets no answer."""

NODES = "system:nodes"
"""The group of kubelets. They report pods that run already (mirror pods): nothing is left to
decide."""

_MAKING_PODS = frozenset((kind.group, kind.plural) for kind in KINDS if kind.places)
"""Pods and kinds that create pods: of these, nodes create mirror pods at most, policyd none."""


def exempt_groups(own_namespace: str) -> frozenset[str]:
    """Return the groups whose requests no policy is asked about, be they sent or not.

    Besides nodes these are policyd's own accounts: the controller starts jobs that it has admitted,
    and policies saw them at their creation.
    """
    return frozenset({NODES, f"system:serviceaccounts:{own_namespace}"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEndpoint:
    """A Service that leads to the admission server."""

    namespace: str
    name: str
    port: int = 443

    @property
    def dns_names(self) -> tuple[str, ...]:
        """The names its certificate must be for; the API server calls the first."""
        name = f"{self.name}.{self.namespace}.svc"
        return name, f"{name}.cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlEndpoint:
    """An address outside of the cluster, such as a laptop's: `https://host:port`."""

    url: str


Endpoint = ServiceEndpoint | UrlEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Everything that the two configurations depend on."""

    endpoint: Endpoint
    rules: WebhookRules
    own_namespace: str
    timeout_seconds: int
    ca_bundle_pem: bytes = b""
    """The authorities to trust; empty for those that the API server's machine trusts."""
    left_out: tuple[str, ...] = ()
    """Names of the resources that are never sent, before any rule."""

    @property
    def unconditional(self) -> "Registration":
        """The same without the conditions that came from policies."""
        mutate, validate = (
            tuple(replace(call, condition="") for call in calls)
            for calls in (self.rules.mutate, self.rules.validate)
        )
        return replace(self, rules=WebhookRules(mutate=mutate, validate=validate))


def mutating_configuration(wanted: Registration) -> Json:
    """Build the MutatingWebhookConfiguration."""
    webhooks = _webhooks(wanted, "mutate", wanted.rules.mutate)
    again = {"reinvocationPolicy": "IfNeeded"}
    return _configuration("MutatingWebhookConfiguration", [w | again for w in webhooks])


def validating_configuration(wanted: Registration) -> Json:
    """Build the ValidatingWebhookConfiguration."""
    webhooks = _webhooks(wanted, "validate", wanted.rules.validate)
    return _configuration("ValidatingWebhookConfiguration", webhooks)


def _configuration(kind: str, webhooks: list[dict[str, Json]]) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": "policyd"}},
        "webhooks": webhooks,
    }


def _webhooks(
    wanted: Registration, verb: str, calls: Iterable[DerivedWebhook]
) -> list[dict[str, Json]]:
    """Build the webhooks, numbered where their failurePolicy is the same."""
    webhooks = []
    numbers = Counter[str]()
    sent = leave_out(calls, verb, wanted.left_out)
    for call, by_author in chain.from_iterable(map(_by_author, sent)):
        name = f"{verb}-{call.failure_policy.lower()}"
        numbers[name] += 1
        number = f"-{numbers[name]}" if numbers[name] > 1 else ""
        webhook = _webhook(wanted, verb, call, by_author=by_author)
        webhooks.append({"name": f"{name}{number}.{NAME}"} | webhook)
    return webhooks


def _by_author(call: DerivedWebhook) -> Iterator[tuple[DerivedWebhook, bool]]:
    """Yield the parts of a call, and whether the API server is to check the user of the request.

    It is not if a condition would cost more than the calls that it saves: for new pods,
    and new owners of pods. The webhooks answer these at once.
    """
    atoms = {atom for rule in call.rules for atom in atoms_of(rule)}
    new = {
        atom
        for atom in atoms
        if atom.operation == "CREATE" and (atom.group, atom.resource) in _MAKING_PODS
    }
    rest = atoms - new
    if call.condition or any(one.overlaps(other) for one in new for other in rest):
        yield call, True
        return
    for part, by_author in ((new, False), (rest, True)):
        if part:
            yield replace(call, rules=rules_of(part)), by_author


def _webhook(
    wanted: Registration, verb: str, call: DerivedWebhook, *, by_author: bool
) -> dict[str, Json]:
    """Build one webhook, with every default written out so that a later comparison is plain."""
    exempt = tuple(sorted({*SYSTEM_NAMESPACES, wanted.own_namespace}))
    exemption = Requirement(key=NAME_LABEL, operator="NotIn", values=exempt)
    conditions = [_not_exempt(wanted.own_namespace)] if by_author else []
    conditions += [
        {"name": f"no-{name}", "expression": LEFT_OUT[name].condition} for name in call.left_out
    ]
    if call.failure_policy == "Fail" and any("*" in rule.api_groups for rule in call.rules):
        conditions.append(NO_POLICY)
    if call.condition:
        conditions.append({"name": "some-policy-may-match", "expression": call.condition})
    return {
        "clientConfig": client_config(wanted.endpoint, f"/{verb}", wanted.ca_bundle_pem),
        "rules": [_rule_object(rule) for rule in call.rules],
        "failurePolicy": call.failure_policy,
        "matchPolicy": "Equivalent",
        "namespaceSelector": _selector([exemption, *in_order(call.namespaces)]),
        "objectSelector": _selector(in_order(call.objects)),
        **({"matchConditions": conditions} if conditions else {}),
        "sideEffects": "None",
        "timeoutSeconds": wanted.timeout_seconds,
        "admissionReviewVersions": ["v1"],
    }


def _selector(requirements: list[Requirement]) -> Json:
    """Write a selector as the API server gives it back."""
    expressions = [
        {"key": r.key, "operator": r.operator, **({"values": list(r.values)} if r.values else {})}
        for r in requirements
    ]
    return {"matchExpressions": expressions} if expressions else {}


def _not_exempt(own_namespace: str) -> dict[str, Json]:
    """Return the match condition that excludes users in an exempt group."""
    among = " || ".join(
        f"'{group}' in request.userInfo.groups" for group in sorted(exempt_groups(own_namespace))
    )
    expression = f"!has(request.userInfo.groups) || !({among})"
    return {"name": "neither-a-node-nor-policyd", "expression": expression}


def client_config(endpoint: Endpoint, path: str, ca_bundle_pem: bytes) -> dict[str, Json]:
    """Return the `clientConfig`: the address to call, and the authority to trust."""
    config: dict[str, Json] = {}
    match endpoint:
        case ServiceEndpoint(namespace=namespace, name=name, port=port):
            config["service"] = {"namespace": namespace, "name": name, "port": port, "path": path}
        case UrlEndpoint(url=url):
            config["url"] = f"{url.rstrip('/')}{path}"
    if ca_bundle_pem:
        config["caBundle"] = msgspec.to_builtins(ca_bundle_pem)  # base64, as JSON has it
    return config


def _rule_object(rule: Rule) -> dict[str, Json]:
    return {
        "apiGroups": list(rule.api_groups),
        "apiVersions": list(rule.api_versions),
        "operations": list(rule.operations),
        "resources": list(rule.resources),
        "scope": rule.scope,
    }

"""The webhook configurations that policyd wants: a pure function to the objects.

A call costs the API server some three milliseconds, whatever is answered. So what is sent is what
policies ask for and no more, and a request that nobody has a policy for never leaves the server.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from policyd.api.admission import Rule
from policyd.api.meta import Json
from policyd.api.selectors import Requirement
from webhooks.calls import Call, DoorRules
from webhooks.namespaces import NAME_LABEL
from webhooks.requirements import in_order

NAME = "door.policyd.io"
"""The name of both configurations. Mutating ones are called in the order of their names: this one
comes before `kueue-mutating-webhook-configuration`, so that Kueue's defaults, where Kueue is
installed, find the queue name that a policy gave."""

EXEMPT_NAMESPACES = ("kube-system", "kube-node-lease", "kube-public")
"""Namespaces that a cluster cannot be repaired without."""

NODES = "system:nodes"
"""The group of kubelets. They report pods that run already (mirror pods): nothing is left to
decide."""


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
    rules: DoorRules
    own_namespace: str
    timeout_seconds: int
    ca_bundle_pem: bytes = b""
    """The authorities to trust; empty for those that the API server's machine trusts."""

    @property
    def unconditional(self) -> "Registration":
        """The same without the conditions that came from policies."""
        mutate, validate = (
            tuple(replace(call, condition="") for call in calls)
            for calls in (self.rules.mutate, self.rules.validate)
        )
        return replace(self, rules=DoorRules(mutate=mutate, validate=validate))


def mutating_configuration(wanted: Registration) -> Json:
    """Build the MutatingWebhookConfiguration.

    Its failurePolicy is Ignore: a pod that slipped past unchanged is refused by validation or
    found by the controller, and an outage of the door stops nothing by itself.
    """
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


def _webhooks(wanted: Registration, verb: str, calls: Iterable[Call]) -> list[dict[str, Json]]:
    """Build the webhooks, numbered where their failurePolicy is the same."""
    webhooks = []
    numbers = Counter[str]()
    for call in calls:
        name = f"{verb}-{call.failure_policy.lower()}"
        numbers[name] += 1
        number = f"-{numbers[name]}" if numbers[name] > 1 else ""
        webhooks.append({"name": f"{name}{number}.{NAME}"} | _webhook(wanted, verb, call))
    return webhooks


def _webhook(wanted: Registration, verb: str, call: Call) -> dict[str, Json]:
    """Build one webhook, with every default written out so that a later comparison is plain."""
    exempt = tuple(sorted({*EXEMPT_NAMESPACES, wanted.own_namespace}))
    exemption = Requirement(key=NAME_LABEL, operator="NotIn", values=exempt)
    conditions = [
        _not_in("not-a-node", NODES),
        # The controller starts what it has admitted: policies saw it when it was created.
        _not_in("not-policyd-itself", f"system:serviceaccounts:{wanted.own_namespace}"),
    ]
    if call.condition:
        conditions.append({"name": "some-policy-may-match", "expression": call.condition})
    return {
        "clientConfig": _client_config(wanted, f"/{verb}"),
        "rules": [_rule_object(rule) for rule in call.rules],
        "failurePolicy": call.failure_policy,
        "matchPolicy": "Equivalent",
        "namespaceSelector": _selector([exemption, *in_order(call.namespaces)]),
        "objectSelector": _selector(in_order(call.objects)),
        "matchConditions": conditions,
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


def _not_in(name: str, group: str) -> dict[str, Json]:
    """Build a match condition that leaves out who is in a group."""
    expression = f"!has(request.userInfo.groups) || !('{group}' in request.userInfo.groups)"
    return {"name": name, "expression": expression}


def _client_config(wanted: Registration, path: str) -> dict[str, Json]:
    config: dict[str, Json] = {}
    match wanted.endpoint:
        case ServiceEndpoint(namespace=namespace, name=name, port=port):
            config["service"] = {"namespace": namespace, "name": name, "port": port, "path": path}
        case UrlEndpoint(url=url):
            config["url"] = f"{url.rstrip('/')}{path}"
    if wanted.ca_bundle_pem:
        config["caBundle"] = msgspec.to_builtins(wanted.ca_bundle_pem)  # base64, as JSON has it
    return config


def _rule_object(rule: Rule) -> dict[str, Json]:
    return {
        "apiGroups": list(rule.api_groups),
        "apiVersions": list(rule.api_versions),
        "operations": list(rule.operations),
        "resources": list(rule.resources),
        "scope": rule.scope,
    }

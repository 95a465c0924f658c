"""The webhook configurations that policyd wants: one pure function from policies to objects.

A call costs the API server some three milliseconds, whatever is answered. So the rules are those
of the policies and no more, and a request that nobody has a policy for never leaves the server.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import msgspec

from policyd.api.admission import FailurePolicy, Rule, Scope
from policyd.api.kueue.names import QUEUE_NAME
from policyd.api.meta import Json
from policyd.api.policy import Policy
from policyd.jobs.kinds import KINDS

NAME = "door.policyd.io"
"""The name of both configurations. Mutating ones are called in the order of their names: this one
comes before `kueue-mutating-webhook-configuration`, so that Kueue's defaults, where Kueue is
installed, find the queue name that a policy gave."""

ALL_OPERATIONS = ("CONNECT", "CREATE", "DELETE", "UPDATE")
"""What `*` stands for in a rule."""

MUTATING_OPERATIONS = frozenset({"CREATE", "UPDATE"})
"""What can be changed on its way: not what is deleted, nor a connection."""

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
class DoorRules:
    """Which requests are sent to the door."""

    mutate: tuple[Rule, ...] = ()
    validate: tuple[Rule, ...] = ()
    """Those that are refused if the door does not answer."""
    validate_if_up: tuple[Rule, ...] = ()
    """Those that pass if the door does not answer."""
    mutate_queued: tuple[Rule, ...] = ()
    """Sent only if the object names a queue, and pass if the door does not answer: the controller
    finds what slipped past."""
    validate_queued: tuple[Rule, ...] = ()
    """The same for validation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Everything that the two configurations depend on."""

    endpoint: Endpoint
    rules: DoorRules
    own_namespace: str
    timeout_seconds: int
    ca_bundle_pem: bytes = b""
    """The authorities to trust; empty for those that the API server's machine trusts."""


class _Cell(NamedTuple):
    """One combination out of a rule's lists."""

    group: str
    version: str
    scope: Scope
    resource: str
    operation: str

    def covers(self, other: "_Cell") -> bool:
        return (
            self.group in {"*", other.group}
            and self.version in {"*", other.version}
            and self.scope in {"*", other.scope}
            and _resource_covers(self.resource, other.resource)
            and self.operation in {"*", other.operation}
        )


def door_rules(policies: Iterable[Policy], *, queue: bool) -> DoorRules:
    """Derive the rules from the policies: what can matter to one of them, and nothing else.

    No request is sent twice: what concerns a policy with `failurePolicy: Fail` is left out of
    `validate_if_up`, what concerns any policy out of the rules for jobs. Exclude rules, resource
    names and selectors are left to the engine.

    Args:
        policies: Those in force.
        queue: Whether jobs that name a queue are held for it.
    """
    mutate: set[_Cell] = set()
    validate: dict[FailurePolicy, set[_Cell]] = {"Fail": set(), "Ignore": set()}
    for policy in policies:
        rules = policy.spec.match_constraints.resource_rules
        cells = {cell for rule in rules for cell in _cells(rule)}
        if policy.spec.inject is not None:
            mutate |= {cell for cell in cells if cell.operation in MUTATING_OPERATIONS}
        if policy.spec.validations:
            validate[policy.spec.failure_policy] |= cells
    if_up = _uncovered(validate["Ignore"], validate["Fail"])
    new, changed = _job_cells("CREATE"), _job_cells("UPDATE")
    return DoorRules(
        mutate=_rules(mutate),
        validate=_rules(validate["Fail"]),
        validate_if_up=_rules(if_up),
        mutate_queued=_rules(_uncovered(new, mutate)) if queue else (),
        validate_queued=_rules(_uncovered(new | changed, validate["Fail"] | if_up))
        if queue
        else (),
    )


def mutating_configuration(wanted: Registration) -> Json:
    """Build the MutatingWebhookConfiguration.

    Its failurePolicy is Ignore: a pod that slipped past unchanged is refused by validation or
    found by the controller, and an outage of the door stops nothing by itself.
    """
    rules = wanted.rules
    webhooks = [
        _webhook(wanted, "mutate", rules.mutate),
        _webhook(wanted, "mutate", rules.mutate_queued, queued=True),
    ]
    again = {"reinvocationPolicy": "IfNeeded"}
    return _configuration("MutatingWebhookConfiguration", [w | again for w in webhooks])


def validating_configuration(wanted: Registration) -> Json:
    """Build the ValidatingWebhookConfiguration: one webhook for each failurePolicy in use."""
    rules = wanted.rules
    webhooks = [
        _webhook(wanted, "validate", rules.validate, failure_policy="Fail"),
        _webhook(wanted, "validate", rules.validate_if_up),
        _webhook(wanted, "validate", rules.validate_queued, queued=True),
    ]
    return _configuration("ValidatingWebhookConfiguration", webhooks)


def _configuration(kind: str, webhooks: list[dict[str, Json]]) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": "policyd"}},
        "webhooks": [webhook for webhook in webhooks if webhook["rules"]],
    }


def _webhook(
    wanted: Registration,
    verb: str,
    rules: tuple[Rule, ...],
    *,
    failure_policy: FailurePolicy = "Ignore",
    queued: bool = False,
) -> dict[str, Json]:
    """Build one webhook, with every default written out so that a later comparison is plain."""
    exempt = sorted({*EXEMPT_NAMESPACES, wanted.own_namespace})
    not_exempt = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": exempt}
    in_a_queue = {"matchExpressions": [{"key": QUEUE_NAME, "operator": "Exists"}]}
    return {
        "name": f"{verb}-{'queued' if queued else failure_policy.lower()}.{NAME}",
        "clientConfig": _client_config(wanted, f"/{verb}"),
        "rules": [_rule_object(rule) for rule in rules],
        "failurePolicy": failure_policy,
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [not_exempt]},
        "objectSelector": in_a_queue if queued else {},
        "matchConditions": [
            _not_in("not-a-node", NODES),
            # The controller starts what it has admitted: policies saw it when it was created.
            _not_in("not-policyd-itself", f"system:serviceaccounts:{wanted.own_namespace}"),
        ],
        "sideEffects": "None",
        "timeoutSeconds": wanted.timeout_seconds,
        "admissionReviewVersions": ["v1"],
    }


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


def _cells(rule: Rule) -> Iterable[_Cell]:
    for group, version, resource, operation in product(
        rule.api_groups, rule.api_versions, rule.resources, rule.operations
    ):
        operations = ALL_OPERATIONS if operation == "*" else (operation,)
        for each in operations:
            yield _Cell(group, version, rule.scope, resource, each)


def _job_cells(operation: str) -> set[_Cell]:
    jobs = {_Cell(k.group, k.version, "Namespaced", k.plural, operation) for k in KINDS}
    return jobs | {_Cell("", "v1", "Namespaced", "pods", operation)}


def _uncovered(cells: set[_Cell], others: set[_Cell]) -> set[_Cell]:
    return {cell for cell in cells if not any(other.covers(cell) for other in others)}


def _rules(cells: set[_Cell]) -> tuple[Rule, ...]:
    """Write cells as few rules, in a fixed order; what a wildcard covers is left out."""
    needed = [c for c in sorted(cells) if not any(o != c and o.covers(c) for o in cells)]
    operations: dict[tuple[str, str, Scope, str], list[str]] = {}
    for cell in needed:
        operations.setdefault(cell[:4], []).append(cell.operation)
    resources: dict[tuple[str, str, Scope, tuple[str, ...]], list[str]] = {}
    for (group, version, scope, resource), verbs in operations.items():
        resources.setdefault((group, version, scope, tuple(verbs)), []).append(resource)
    return tuple(
        Rule(
            api_groups=(group,),
            api_versions=(version,),
            scope=scope,
            operations=verbs,
            resources=tuple(names),
        )
        for (group, version, scope, verbs), names in resources.items()
    )


def _resource_covers(wide: str, narrow: str) -> bool:
    """Tell whether `pods/*`, `*/status`, `*` or `*/*` covers another resource of a rule.

    `*` names no subresource, `pods/*` not the pods themselves.
    """
    if wide in {narrow, "*/*"}:
        return True
    if "/" not in wide:
        return wide == "*" and "/" not in narrow
    resource, _, part = wide.partition("/")
    narrow_resource, _, narrow_part = narrow.partition("/")
    return bool(narrow_part) and resource in {"*", narrow_resource} and part in {"*", narrow_part}

"""Policies of one namespace that are to read another, or what belongs to the cluster.

Each kind that lives in a namespace is written with each function that asks the world outside, in
each place of a policy, by the words of a policy of a namespace and by those of one of the cluster.
What is not the namespace's own holds a word that no answer may hold: neither refusals, warnings nor
audit annotations, neither patches nor what is sent to others.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from policyd.api.admission import AdmissionRequest, UserInfo
from policyd.cel.lib.authorizer import Authorization as PermissionDecision
from policyd.cel.lib.authorizer import AuthorizedAction
from policyd.dialects.kyverno.declared import declared_values
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.background.evaluation import Acted, decide_deletion, generate
from policyd.engine.background.existing import TriggerSought, find_trigger
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.background import (
    BackgroundPolicy,
    Deletion,
    ExistingMutation,
    Generation,
)
from policyd.engine.model.params import StoredParams
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import RequestCircumstances, namespace_lookup, request_for
from policyd.snapshot.facts import facts_of
from policyd.snapshot.values import FORMAT, ClusterQueueUse, CohortUse, PendingRow, QueueSnapshot
from tests.attacks.figures import Attacks, Figures

OWN, OTHER = "team-a", "team-b"
WORD: Final = "what-is-not-ones-own"
BEGINNING: Final = WORD[:12]
"""What expressions compare with: they must not hold the word themselves."""
Json = Any


def _object(api_version: str, kind: str, name: str, namespace: str = "") -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    labels = {"whose": "theirs"} if namespace != OWN else {}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {**metadata, "labels": labels},
        "data": {"word": WORD if namespace != OWN else "own"},
    }


WORLD: Final = (
    *(
        _object(api_version, kind, name, namespace)
        for api_version, kind in (("v1", "Secret"), ("v1", "ConfigMap"), ("example.com/v1", "Key"))
        for name in ("a", "b")
        for namespace in (OTHER, "team-a-2", "default")
    ),
    _object("v1", "Secret", "own", OWN),
    _object("v1", "Node", "a"),
    _object("v1", "Namespace", OTHER),
    _object("rbac.authorization.k8s.io/v1", "ClusterRole", "a"),
    _object("example.com/v1", "Gate", "a"),
)
POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": OWN,
        "labels": {"kueue.x-k8s.io/queue-name": "lq"},
    },
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
RULE: Final = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}
RESOURCES: Final = (
    ("v1", "secrets"),
    ("v1", "configmaps"),
    ("v1", "nodes"),
    ("v1", "nodes/status"),
    ("v1", "namespaces"),
    ("rbac.authorization.k8s.io/v1", "clusterroles"),
    ("example.com/v1", "keys"),
    ("example.com/v1", "gates"),
)
NAMES: Final = ("a", OTHER, "../team-b/a")
NAMESPACES: Final = (OTHER, "", "*", OWN)


def expressions() -> Iterator[str]:
    """Yield what asks for something, as text."""
    for (version, plural), name in itertools.product(RESOURCES, NAMES):
        gvr = f"resource.ToGVR('{version}', '{plural}')"
        for verb in ("Get", "get"):
            yield f"string(resource.{verb}('{version}', '{plural}', '{name}').data.word)"
            yield f"string(resource.{verb}({gvr}, '{name}').data.word)"
            for namespace in NAMESPACES:
                arguments = f"'{version}', '{plural}', '{namespace}', '{name}'"
                yield f"string(resource.{verb}({arguments}).data.word)"
                yield f"string(resource.{verb}({gvr}, '{namespace}', '{name}').data.word)"
    for version, plural in RESOURCES:
        yield from _lists(version, plural)
    for review, about in itertools.product(_REVIEWS, _ABOUT):
        yield f"string(resource.Post('authorization.k8s.io/v1', '{review}', {about}))"
        yield f"string(resource.Post('authorization.k8s.io/v1', '{review}', '{OTHER}', {about}))"
    yield from _OTHERS


def _lists(version: str, plural: str) -> Iterator[str]:
    gvr = f"resource.ToGVR('{version}', '{plural}')"
    words = ".items.map(i, string(i.data.word)).join()"
    for verb, labels in itertools.product(("List", "list"), ("", ", {'whose': 'theirs'}")):
        yield f"resource.{verb}('{version}', '{plural}'{labels}){words}"
        yield f"resource.{verb}({gvr}{labels}){words}"
        for namespace in NAMESPACES:
            yield f"resource.{verb}('{version}', '{plural}', '{namespace}'{labels}){words}"
            yield f"resource.{verb}({gvr}, '{namespace}'{labels}){words}"


_REVIEWS: Final = ("subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectrulesreviews")
_ABOUT: Final = tuple(
    f"{{'spec': {{'{kind}': {{{about}'verb': 'get'}}}}}}"
    for kind in ("resourceAttributes", "nonResourceAttributes")
    for about in ("", f"'namespace': '{OTHER}', ", "'namespace': '', ", "'path': '/metrics', ")
)
_OTHERS: Final = (
    "string(http.Get('https://a').data.word)",
    "string(http.get('https://a', {'a': 'b'}).data.word)",
    "string(http.Post('https://a', {'a': 'b'}).data.word)",
    "string(http.Put('https://a', {'a': 'b'}).data.word)",
    "string(http.Client('pem').Get('https://a').data.word)",
    "string(globalContext.Get('e').data.word)",
    "string(globalContext.get('e', '').data.word)",
    "string(image.GetMetadata('i').data.word)",
    "string(image.getMetadata('i').data.word)",
    "string([http][0].Get('https://a').data.word)",
    "string(dyn(globalContext).Get('e').data.word)",
    "string([dyn(resource)][0].Get('v1', 'secrets', 'team-b', 'a').data.word)",
    "string(dyn(resource).List('v1', 'secrets', '').items[0].data.word)",
    "authorizer.group('').resource('secrets').check('get').reason()",
    "authorizer.group('').resource('secrets').namespace('team-b').check('get').reason()",
    "authorizer.path('/metrics').check('get').reason()",
    "authorizer.serviceAccount('team-b', 's').group('').resource('pods').check('get').reason()",
    "authorizer.requestResource.namespace('team-b').check('get').reason()",
    "string(params.data.word)",
    "cluster.clusterQueues.map(name, name).join()",
    "cluster.clusterQueues.map(name, cluster.clusterQueues[name].waiting[0].job).join()",
    "string(dyn(cluster).cohorts.map(name, name).join())",
    "clusterQueue.waiting[0].namespace",
    "queue.clusterQueue",
)


def _named(group: str, kind: str, spec: Json) -> Json:
    metadata = {"name": "p", "namespace": OWN}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec}


def _validating(expression: str) -> Iterator[Json]:
    """Yield a policy that says something in each of its places."""
    match = {"matchConstraints": {"resourceRules": [RULE]}}
    refused = {"expression": "variables.said == ''", "messageExpression": "variables.said"}
    variables = [{"name": "said", "expression": expression}]
    for spec in (
        {"variables": variables, "validations": [refused]},
        {"validations": [{"expression": "false", "messageExpression": expression}]},
        {
            "validations": [
                {"expression": f"{expression}.startsWith('{BEGINNING}')", "message": "no"}
            ]
        },
        {
            "validations": [{"expression": "true"}],
            "auditAnnotations": [{"key": "k", "valueExpression": expression}],
        },
        {
            "matchConditions": [{"name": "c", "expression": f"{expression} != ''"}],
            "validations": [{"expression": "true"}],
        },
    ):
        yield _named("policies.kyverno.io/v1", "NamespacedValidatingPolicy", {**match, **spec})


def _mutating(expression: str) -> Iterator[Json]:
    match = {"matchConstraints": {"resourceRules": [RULE]}}
    applied = f"Object{{metadata: Object.metadata{{labels: {{'said': {expression}}}}}}}"
    patched = f"[JSONPatch{{op: 'add', path: '/metadata/labels', value: {{'said': {expression}}}}}]"
    for mutation in (
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": applied}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression": patched}},
    ):
        spec = {**match, "mutations": [mutation]}
        yield _named("policies.kyverno.io/v1", "NamespacedMutatingPolicy", spec)


def _rules(expression: str) -> Iterator[Json]:
    refused = {"expression": "variables.said == ''", "messageExpression": "variables.said"}
    cel: dict[str, Json] = {
        "variables": [{"name": "said", "expression": expression}],
        "expressions": [refused],
    }
    params: tuple[dict[str, Json], ...] = ({},)
    if "params" in expression:
        params = tuple(
            {"paramKind": {"apiVersion": version, "kind": kind}, "paramRef": ref}
            for version, kind in (("v1", "Secret"), ("v1", "Node"), ("example.com/v1", "Gate"))
            for ref in (
                {"name": "a"},
                {"name": "a", "namespace": OTHER},
                {"selector": {}, "namespace": OTHER},
                {"selector": {"matchLabels": {"whose": "theirs"}}},
            )
        )
    for given in params:
        rule = {
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            "validate": {"cel": {**cel, **given}},
        }
        spec = {"validationFailureAction": "Enforce", "rules": [rule]}
        yield _named("kyverno.io/v1", "Policy", spec)


def _excepting(expression: str) -> Iterator[Json]:
    """Yield an exception that lifts a policy if it can tell the word."""
    spec = {
        "policyRefs": [{"name": "all", "kind": "ValidatingPolicy"}],
        "matchConditions": [{"name": "c", "expression": f"{expression}.contains('{BEGINNING}')"}],
    }
    yield _named("policies.kyverno.io/v1", "PolicyException", spec)


REFUSING: Final = {
    "apiVersion": "policies.kyverno.io/v1",
    "kind": "ValidatingPolicy",
    "metadata": {"name": "all"},
    "spec": {
        "matchConstraints": {"resourceRules": [RULE]},
        "validations": [{"expression": "false", "message": "no"}],
    },
}


def _compares(document: Json) -> bool:
    """Tell whether a policy allows what it is asked if, and only if, it knows the word."""
    return any(BEGINNING in each["expression"] for each in document["spec"].get("validations", ()))


def _allowed(_user: UserInfo, _asked: AuthorizedAction) -> PermissionDecision:
    return PermissionDecision(allowed=True, reason=WORD)


def _surroundings() -> PolicyContext:
    outside: Mapping[str, object] = declared_values(
        objects=WORLD,
        images=[{"image": "i", "data": {"word": WORD}}],
        responses=[
            {"method": method, "url": "https://a", "response": {"data": {"word": WORD}}}
            for method in ("GET", "POST", "PUT")
        ],
        entries=[{"name": "e", "data": {"data": {"word": WORD}}}],
    )
    queues = facts_of(
        QueueSnapshot(
            format=FORMAT,
            taken_at=0.0,
            cohorts=(CohortUse(name=WORD),),
            cluster_queues=(
                ClusterQueueUse(
                    name=WORD,
                    cohort=WORD,
                    requests=({},),
                    pending=(PendingRow(f"{WORD}/{WORD}", f"Job/{WORD}", 0, 0, 0),),
                ),
            ),
        ),
        {(OWN, "lq"): WORD},
    )
    return PolicyContext(
        namespaces=namespace_lookup((), {}),
        queues=lambda: queues,
        params=StoredParams(WORLD),
        authorize=_allowed,
        extra=outside,
    )


def tried_reads() -> Figures:
    """Ask each thing in each place of each kind that lives in a namespace."""
    tried = reads = loaded = 0
    faults: list[str] = []
    surroundings = _surroundings()
    request = request_for(POD, RequestCircumstances())
    for expression in expressions():
        for document in (*_validating(expression), *_mutating(expression), *_rules(expression)):
            tried += 1
            found = load_policies(json.dumps(document), "p.yaml", EVERY_FORMAT)
            if not found.policies:
                continue
            loaded += 1
            decision = PolicySet(found.policies, surroundings=surroundings).review(request)
            if WORD in repr(decision) or (_compares(document) and decision.allowed):
                reads += 1
                faults.append(f"{document['kind']}: {expression}")
        for exception in _excepting(expression):
            tried += 1
            found = load_policies(
                f"{json.dumps(REFUSING)}\n---\n{json.dumps(exception)}", "p.yaml", EVERY_FORMAT
            )
            asked = PolicySet(
                found.policies, exceptions=found.exceptions, surroundings=surroundings
            )
            if asked.review(request).allowed:
                reads += 1
                faults.append(f"an exception: {expression}")
    if loaded < tried // 50:
        faults.append(f"{loaded} of {tried} were loaded at all: nothing is tried")
    return Figures(tried=tried, reads=reads, faults=tuple(faults))


def _acting(expression: str) -> Iterator[Json]:
    """Yield policies that generate, delete or mutate what exists by what they read."""
    match = {"matchConstraints": {"resourceRules": [RULE]}}
    text = f"string({expression})"
    made = (
        "{'apiVersion': dyn('v1'), 'kind': dyn('ConfigMap'),"
        f" 'metadata': dyn({{'name': {text}, 'namespace': '{OWN}'}})}}"
    )
    condition = {"name": "c", "expression": f"{text}.startsWith('{BEGINNING}')"}
    kind = "policies.kyverno.io/v1"
    for spec in (
        {"generate": [{"expression": f"generator.Apply([{made}])"}]},
        {
            "variables": [{"name": "said", "expression": text}],
            "generate": [{"expression": f"generator.Apply(variables.said, [{made}])"}],
        },
    ):
        yield _named(kind, "NamespacedGeneratingPolicy", {**match, **spec})
    deletes = {**match, "conditions": [condition], "schedule": "* * * * *"}
    yield _named(kind, "NamespacedDeletingPolicy", deletes)
    mutation = {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {
            "expression": "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"
        },
    }
    targets: tuple[dict[str, Json], ...] = (
        {"targetMatchConstraints": {"resourceRules": [RULE], "expression": made}},
        {
            "targetMatchConstraints": {"resourceRules": [RULE], "expression": "object"},
            "matchConditions": [condition],
        },
    )
    for given in targets:
        spec = {**match, **given, "mutations": [mutation]}
        spec["evaluation"] = {"mutateExisting": {"enabled": True}}
        yield _named(kind, "NamespacedMutatingPolicy", spec)


def tried_actions() -> Figures:
    """Ask each thing in each kind that acts by itself: what it does must not depend on it."""
    tried = reads = loaded = 0
    faults: list[str] = []
    surroundings = _surroundings()
    request = request_for(POD, RequestCircumstances())
    for expression in expressions():
        for document in _acting(expression):
            tried += 1
            found = load_policies(json.dumps(document), "p.yaml", EVERY_FORMAT)
            for policy in found.background:
                loaded += 1
                come_to = _come_to(policy, request, surroundings)
                asks = "conditions" in document["spec"] or "matchConditions" in document["spec"]
                if WORD in repr(come_to) or (asks and come_to.outcome == "matched"):
                    reads += 1
                    faults.append(f"{document['kind']}: {expression}")
    if loaded < tried // 50:
        faults.append(f"{loaded} of {tried} were loaded at all: nothing is tried")
    return Figures(tried=tried, reads=reads, faults=tuple(faults))


def _come_to(
    policy: BackgroundPolicy, request: AdmissionRequest, surroundings: PolicyContext
) -> Acted | TriggerSought:
    match policy.action:
        case Generation():
            return generate(policy, request, surroundings, lambda _version, _kind: True)
        case Deletion():
            return decide_deletion(policy, request, surroundings)
        case ExistingMutation():
            return find_trigger(policy, [request], surroundings)


ATTACKS: Attacks = {
    "policies of a namespace": tried_reads,
    "policies of a namespace that act": tried_actions,
}

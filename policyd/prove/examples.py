"""Examples: requests that the solver found, and what the engine says of them."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, cast

import z3

from policyd.api.admission import Operation, UserInfo
from policyd.api.kinds import BuiltinResource
from policyd.api.meta import Json
from policyd.api.policy import ParamRef
from policyd.api.selectors import LabelSelector
from policyd.engine.compile.load import Loaded
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.bindings import needs_binding
from policyd.engine.model.compiled import CompiledBinding, CompiledPolicy
from policyd.engine.offline.requests import (
    DEFAULT_NAMESPACE,
    ObjectError,
    RequestCircumstances,
    namespace_lookup,
    offline_set,
    request_for,
)
from policyd.prove.requests import Side, UnknownRequest, kinds_of
from policyd.prove.world import World

_ANY_GROUP: Final = "example.com"
"""Of the example for a policy that matches a resource of each group."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a question.

    Attributes:
        verdict: `proved`, `refuted` or `unknown`.
        bound: The number of elements that lists and maps were given at most.
        why: Why it is unknown; empty otherwise.
        object: An object that refutes it, on which the engine agrees.
        old_object: The object before an update, if the request is one.
        operation: The operation of that request.
        user: The user of that request.
        params: The object of params, if expressions ask for one.
        namespace: The namespace of that request, if expressions ask for it.
    """

    verdict: Literal["proved", "refuted", "unknown"]
    bound: int
    why: str = ""
    object: Json = None
    old_object: Json = None
    operation: Operation = "CREATE"
    user: UserInfo | None = None
    params: Json = None
    namespace: Json = None


class Verdict(NamedTuple):
    """What the engine says of a request: whether a policy denies it, and whether it fails."""

    denies: bool
    fails: bool


def example_of(world: World, request: UnknownRequest, model: z3.ModelRef, bound: int) -> Answer:
    """Return what a model of the solver says of a request, as an answer."""
    world.choose(model)
    operation = request.request.field("operation")
    user = request.request.field("userInfo")
    assert operation is not None
    name = operation.json(model)
    sender = user.json(model) if user is not None else {}
    facts: dict[str, Any] = sender if isinstance(sender, dict) else {}
    return Answer(
        verdict="refuted",
        bound=bound,
        object=request.object.json(model),
        old_object=request.old_object.json(model),
        operation=cast("Operation", name),
        user=UserInfo(
            username=str(facts.get("username") or "someone"),
            groups=tuple(facts.get("groups") or ()),
        ),
        params=request.params.json(model),
        namespace=request.namespace.json(model) if request.namespace.children else None,
    )


def completed(found: Answer, kind: BuiltinResource | None, policy: CompiledPolicy) -> Answer:
    """Give the objects of an example the names and labels without which a policy does not match."""
    return replace(
        found,
        object=_named(found.object, kind, policy),
        old_object=_named(found.old_object, kind, policy),
        namespace=_named_namespace(found.namespace, policy),
    )


def verdict_on(side: Side, example: Answer) -> Verdict:
    """Return what the engine says of policies that are in force together.

    Raises:
        PolicydError: If the example is no request.
    """
    found = [decider(policy)(example) for policy in side]
    return Verdict(any(each.denies for each in found), any(each.fails for each in found))


def decider(policy: CompiledPolicy) -> Callable[[Answer], Verdict]:
    """Return what the engine says of a policy for the request of an answer.

    Raises:
        ObjectError: The function does, if the object is none of Kubernetes.
    """
    custom, of_any_kind = tuple(_custom_kinds(policy)), None in kinds_of(policy)
    usual = _set_for(policy, None, None)

    def decide(example: Answer) -> Verdict:
        subject = example.old_object if example.operation == "DELETE" else example.object
        if not isinstance(subject, dict):
            raise ObjectError("the example has no object")
        user = example.user or UserInfo(username="someone")
        if of_any_kind:
            subjects = ((group, str(subject.get("kind")), plural) for group, _, plural, _ in custom)
        else:
            subjects = ((group, kind, plural) for group, _, plural, kind in custom)
        kinds = {(group, kind): (plural, True) for group, kind, plural in subjects}
        circumstances = RequestCircumstances(operation=example.operation, user=user, kinds=kinds)
        request = request_for(subject, circumstances, old_object=example.old_object)
        special = example.params is not None or example.namespace is not None
        policies = _set_for(policy, example.params, example.namespace) if special else usual
        decided = policies.review(request)
        return Verdict(not decided.allowed, bool(decided.failures))

    return decide


def _set_for(policy: CompiledPolicy, params: Json, namespace: Json) -> PolicySet:
    """Return a policy as a set, bound with params and in the namespace of an example."""
    objects: list[Json] = []
    if namespace is not None:
        objects = [namespace]
    reference, kind = None, policy.policy.spec.param_kind
    if kind is not None and isinstance(params, dict):
        metadata = {**_metadata_of(params), "name": "params", "namespace": DEFAULT_NAMESPACE}
        of_kind = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        objects.append({**params, **of_kind})
        reference = ParamRef(name="params", namespace=DEFAULT_NAMESPACE)
    own = CompiledBinding(policy=policy.name, policy_kind=policy.kind, param_ref=reference)
    loaded = Loaded(policies=(policy,), bindings=(own,) if needs_binding(policy) else ())
    return offline_set(loaded, namespace_lookup(objects, {}), objects=objects)


def _metadata_of(obj: Mapping[str, Json]) -> Mapping[str, Json]:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _selected(metadata: Mapping[str, Json], selector: LabelSelector) -> dict[str, Json]:
    """Return metadata with labels that a selector wants, as far as they are missing."""
    labels = metadata.get("labels")
    given = labels if isinstance(labels, dict) else {}
    wanted = selected_labels(selector, given)
    return {**metadata, "labels": wanted} if wanted else {**metadata}


def selected_labels(selector: LabelSelector, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return labels, with those that a selector wants as far as they are missing."""
    wanted = dict(selector.match_labels)
    for each in selector.match_expressions:
        if each.operator in ("In", "Exists") and each.key not in wanted:
            wanted[each.key] = _value_of(each.key, selector)
    return {**wanted, **given}


def _value_of(key: str, selector: LabelSelector) -> str:
    """Return the first value of a label that no requirement of a selector excludes."""
    asked = [each for each in selector.match_expressions if each.key == key]
    offered = [value for each in asked if each.operator == "In" for value in each.values]
    fits = (v for v in offered if all(each.matches({key: v}) for each in asked))
    return next(fits, offered[0] if offered else "true")


def _custom_kinds(policy: CompiledPolicy) -> Iterator[tuple[str, str, str, str]]:
    """Yield group, version, plural and a kind for the resources that are not built in."""
    for rule in policy.constraints.resource_rules:
        for group, version in itertools.product(rule.api_groups, rule.api_versions):
            for plural in rule.resources:
                if "*" not in plural and "/" not in plural:
                    named = _ANY_GROUP if group == "*" else group
                    yield named, "v1" if version == "*" else version, plural, plural.capitalize()


def _named_namespace(namespace: Json, policy: CompiledPolicy) -> Json:
    """Give a namespace the labels that a policy selects; None if it needs none."""
    given = namespace if isinstance(namespace, dict) else {}
    metadata = _selected(_metadata_of(given), policy.constraints.namespace_selector)
    if not metadata and namespace is None:
        return None
    metadata = {**metadata, "name": DEFAULT_NAMESPACE}
    return {**given, "apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _named(obj: Json, kind: BuiltinResource | None, policy: CompiledPolicy) -> Json:
    """Give an object the kind and name without which it is none."""
    if not isinstance(obj, dict):
        return obj
    made: dict[str, Json] = dict(obj)
    if kind is not None:
        made = {**made, "apiVersion": kind.api_version, "kind": kind.kind}
    else:
        group, version, _, name = next(_custom_kinds(policy), ("", "v1", "pods", "Pod"))
        version = f"{group}/{version}" if group else version
        made = {**made, "apiVersion": version, "kind": made.get("kind") or name}
    named: dict[str, Json] = _selected(_metadata_of(made), policy.constraints.object_selector)
    if not named.get("name"):
        named["name"] = "example"
    first = {key: made.pop(key) for key in ("apiVersion", "kind") if key in made}
    made.pop("metadata", None)
    return {**first, "metadata": named, **made}

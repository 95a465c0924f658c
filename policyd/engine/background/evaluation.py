"""Evaluate policies that act by themselves on one object: what they generate, what they delete.

An object is matched as if it were sent in a request. The result says whether the policy concerns
it, and why it could not be decided, so that nothing is deleted or left out by an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec

from policyd.api.admission import AdmissionRequest
from policyd.api.kinds import resource_for_kind
from policyd.api.meta import Json
from policyd.cel import CelError
from policyd.engine.evaluate.conditions import Invocation, Match, invocations, matches
from policyd.engine.evaluate.patches import to_json
from policyd.engine.evaluate.verdict import CATCHABLE
from policyd.engine.model.background import (
    MOST_BYTES,
    MOST_OBJECTS,
    TOO_MANY,
    BackgroundPolicy,
    Deletion,
    GeneratedSource,
    Generation,
    IsNamespaced,
    ObjectCollector,
)
from policyd.engine.model.deadline import OutOfTime, never
from policyd.engine.model.facts import Facts
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError

Outcome = Literal["matched", "excluded", "unmatched", "failed"]
"""Whether a policy acts on an object: `excluded` by a condition, `unmatched` by its constraints or
an exception, `failed` if that could not be evaluated."""

VARIABLE: Final = "generator"
"""The variable of expressions that generate."""

_SERVER_FIELDS: Final = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
"""Fields of `metadata` that the API server sets, and a copy of an object must not have."""

_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which kubectl remembers an object: in a copy, it would name the original."""


class GenerationError(PolicydError):
    """An expression generates something that is not an object."""


@dataclass(frozen=True, slots=True)
class Acted:
    """What a policy does about an object.

    Attributes:
        outcome: Whether it does anything.
        objects: What it generates, in order, as it would be applied.
        error: Why it failed.
        others: What it generates from other sources, if it failed because some are gone.
    """

    outcome: Outcome
    objects: tuple[Json, ...] = ()
    error: str = ""
    others: tuple[Json, ...] | None = None


def generate(
    policy: BackgroundPolicy,
    request: AdmissionRequest,
    context: PolicyContext,
    is_namespaced: IsNamespaced,
    out_of_time: OutOfTime = never,
) -> Acted:
    """Return what a policy generates for the object of a request.

    Args:
        policy: A policy that generates.
        request: The request that triggers it, or the one that would send an existing object.
        context: What expressions may read.
        is_namespaced: Knows which kinds live in namespaces.
        out_of_time: Returns whether the caller's deadline has passed.
    """
    action = policy.action
    assert isinstance(action, Generation), "the caller chooses by the action"
    generator = ObjectCollector(policy.policy.namespace)
    context = replace(context, extra={**context.extra, VARIABLE: generator})
    facts = Facts(request, context, out_of_time)
    try:
        found, outcome = matched(policy, facts)
        for match in found:
            for produce in action.entries:
                produce(match.variables, match.budget, generator)
        if generator.failure is not None:
            raise generator.failure
        left = [each for each in generator.taken if each.value is not None]
        objects = _objects(left, policy.policy.namespace, is_namespaced)
    except CATCHABLE as error:
        return Acted("failed", error=sentence_of(error))
    if len(left) < len(generator.taken):
        gone = GenerationError("the source of a generated object does not exist")
        return Acted("failed", error=str(gone), others=objects)
    return Acted(outcome, objects)


def decide_deletion(
    policy: BackgroundPolicy,
    request: AdmissionRequest,
    context: PolicyContext,
    out_of_time: OutOfTime = never,
) -> Acted:
    """Return whether a policy deletes the object of a request when it is due."""
    assert isinstance(policy.action, Deletion), "the caller chooses by the action"
    try:
        return Acted(matched(policy, Facts(request, context, out_of_time))[1])
    except CATCHABLE as error:
        return Acted("failed", error=sentence_of(error))


def matched(policy: BackgroundPolicy, facts: Facts) -> tuple[list[Match], Outcome]:
    """Return the matches of a policy, and what came of it.

    Raises:
        PolicydError: If that cannot be evaluated.
    """
    compiled = policy.policy
    asked = list(invocations(compiled, facts))
    found = [match for invocation in asked for match in matches(invocation, facts)]
    if found:
        return found, "matched"
    if any(matches(_unconditional(each), facts) for each in asked):
        return [], "excluded"
    return [], "unmatched"


def _unconditional(invocation: Invocation) -> Invocation:
    """Return an invocation without match conditions: only exceptions are left."""
    return msgspec.structs.replace(invocation, policy=replace(invocation.policy, conditions=()))


def _objects(
    sources: Sequence[GeneratedSource], own: str, is_namespaced: IsNamespaced
) -> tuple[Json, ...]:
    """Return the generated objects as they would be applied.

    Raises:
        PolicydError: If one is not an object, or a namespaced policy may not generate it.
    """
    objects: list[Json] = []
    size = 0
    for source in sources:
        for item in items_of(to_json(source.value)):
            objects.append(_prepared(item, source.namespace, own, is_namespaced))
            size += len(msgspec.json.encode(objects[-1]))
            if len(objects) > MOST_OBJECTS:
                raise GenerationError(TOO_MANY)
            if size > MOST_BYTES:
                message = f"more than {MOST_BYTES:,} bytes of objects are generated for one trigger"
                raise GenerationError(message)
    return tuple(objects)


def items_of(value: Json) -> list[Json]:
    """Return an object, or the objects of a list; of one that does not exist, nothing."""
    items = value_at(value, ("items",))
    if isinstance(items, list) and not isinstance(value_at(value, ("metadata", "name")), str):
        kind = str(value_at(value, ("kind",)) or "").removesuffix("List")
        version = value_at(value, ("apiVersion",))
        # A list of a cluster leaves these out of its items.
        known = {"apiVersion": version, "kind": kind} if kind and version else {}
        return [{**known, **item} if isinstance(item, dict) else item for item in items]
    return [value]


def _prepared(
    value: Json, namespace: str | None, own: str, is_namespaced: IsNamespaced
) -> dict[str, Json]:
    """Return an object as it would be applied."""
    kind, version = identified(value)
    metadata = {k: v for k, v in value["metadata"].items() if k not in _SERVER_FIELDS}
    source = metadata.get("namespace")
    target = source if namespace is None else namespace
    if is_namespaced(version, kind) is False:
        if own:
            raise GenerationError(
                f"a policy of namespace `{own}` cannot generate a {kind},"
                " which belongs to the cluster"
            )
        target = None
    if target:
        metadata["namespace"] = target
    else:
        metadata.pop("namespace", None)
    if source and source != target:
        metadata.pop("ownerReferences", None)  # an owner in another namespace does not count
    return {**value, "metadata": _without_applied(metadata)}


def identified(value: Json) -> tuple[str, str]:
    """Return the kind and apiVersion of an object with a name.

    Raises:
        GenerationError: If something is missing.
    """
    for path in (("apiVersion",), ("kind",), ("metadata", "name")):
        found = value_at(value, path)
        if not isinstance(found, str) or not found:
            raise GenerationError(f"a generated object has no `{'.'.join(path)}`")
    return value["kind"], value["apiVersion"]


def _without_applied(metadata: dict[str, Json]) -> dict[str, Json]:
    """Return metadata without the annotation of kubectl."""
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict) or _APPLIED not in annotations:
        return metadata
    kept = {key: text for key, text in annotations.items() if key != _APPLIED}
    if kept:
        return {**metadata, "annotations": kept}
    return {name: value for name, value in metadata.items() if name != "annotations"}


def scope_of(custom: Mapping[tuple[Json, Json], tuple[str, bool]]) -> IsNamespaced:
    """Return a function that knows the built-in kinds, and others by group and kind."""

    def is_namespaced(api_version: str, kind: str) -> bool | None:
        group, _, version = api_version.rpartition("/")
        built_in = resource_for_kind(group, version, kind)
        if built_in is not None:
            return built_in.namespaced
        known = custom.get((group, kind))
        return None if known is None else known[1]

    return is_namespaced


def sentence_of(error: Exception) -> str:
    """Say why something could not be evaluated."""
    if isinstance(error, CelError):
        return error.message
    return str(error) or "the object is nested too deep"

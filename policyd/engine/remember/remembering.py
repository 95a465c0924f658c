"""Decisions that are remembered: the pods of a job are alike, and are decided on once.

The reads of policies in a new pod are its footprint. A pod with the same footprint, while namespace
and params are unchanged, gets the same answer, if that allows it without a warning. Refusals,
warnings and failures are about one pod, and are not cached.

Pods are taken to be as the API server sends them: of its own type, and nothing else in them.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter, is_
from typing import Final

import msgspec

from policyd.api.admission import AdmissionRequest, GroupVersionKind, GroupVersionResource
from policyd.api.meta import Json
from policyd.engine.evaluate.policy_set import Phase, PolicySet
from policyd.engine.model.deadline import OutOfTime, never
from policyd.engine.model.decision import Decision
from policyd.engine.model.params import find_params
from policyd.engine.remember.footprint import footprint
from policyd.errors import PolicydError
from policyd.patch.operations import same_json

MOST_DECISIONS: Final = 256
"""Decisions that are remembered by default."""

LONGEST_FOOTPRINT: Final = 64 * 1024
"""Bytes of a footprint that is remembered."""

_PODS: Final = GroupVersionResource(version="v1", resource="pods")
_NEW_POD: Final = AdmissionRequest(
    uid="", kind=GroupVersionKind(version="v1", kind="Pod"), resource=_PODS, operation="CREATE"
)
"""The requests that are cached: only these come by the thousand."""

_DIFFERENT: Final[Mapping[str, Callable[[AdmissionRequest], object]]] = {
    "name": attrgetter("name"),
    "userInfo": attrgetter("user_info"),
    "options": attrgetter("options"),
    "dryRun": attrgetter("dry_run"),
}
"""The attributes in which requests for new pods differ besides the namespace, as named in CEL."""

_THE_SAME: Final = frozenset(
    (
        *("kind", "resource", "subResource"),
        *("requestKind", "requestResource", "requestSubResource"),
        *("namespace", "operation"),
    )
)
"""The attributes that requests for new pods share, or that the key holds anyway."""

_NOTHING: Final = b"null"
_HAS_CLAIMS: Final = b'"resourceClaims"'
_encode = msgspec.json.Encoder().encode


class Remembering:
    """Policies with a cache of their decisions on pods."""

    def __init__(
        self,
        policies: PolicySet,
        phase: Phase,
        *,
        most: int = MOST_DECISIONS,
        recalled: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin with nothing to remember.

        Args:
            policies: Those in force.
            phase: Mutation or validation.
            most: How many decisions are kept; the one that was unused for the longest time is
                dropped.
            recalled: Called for each request that is answered from the cache.
        """
        self._most = most
        self._recalled = recalled
        self._decide = policies.mutate if phase == "mutate" else policies.validate
        self._surroundings = policies.surroundings
        self._known: dict[bytes, tuple[list[Json], Decision]] = {}
        self._pod: msgspec.json.Decoder[msgspec.Struct] | None = None
        concerned = policies.concerned(_NEW_POD, phase)
        if not concerned or not most:
            return
        try:
            pod, asked = footprint(concerned)
            decoder = msgspec.json.Decoder(pod)
        except Exception:  # noqa: BLE001 - any policies work without a cache, too
            return
        if not asked <= _DIFFERENT.keys() | _THE_SAME:
            return
        self._pod = decoder
        self._counts_claims = any(policy.counts_claims for policy in concerned)
        self._asked = [get for name, get in _DIFFERENT.items() if name in asked]
        self._params = [
            (policy.policy.spec.param_kind, binding.param_ref)
            for policy in concerned
            if policy.policy.spec.param_kind is not None
            for binding in policy.bindings
        ]

    def decide(self, request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        """Decide on a request, or return the decision on one that is equal to the policies."""
        seen = self._seen(request) if self._pod and _is_new_pod(request) else None
        inputs = None if seen is None else self._inputs(request.namespace)
        if seen is None or inputs is None:
            return self._decide(request, out_of_time)
        known = self._known.pop(seen, None)
        if known is not None and _are_same(known[0], inputs):
            self._recalled()
            decision = known[1]
        else:
            decision = self._decide(request, out_of_time)
            if not _is_silent(decision):
                return decision
            # The object is that of one pod; a reader of another's decodes it.
            known = inputs, replace(decision, object=msgspec.UNSET)
        self._known[seen] = known
        if len(self._known) > self._most:
            with suppress(RuntimeError, KeyError):  # another thread changes the cache as well
                del self._known[next(iter(self._known))]
        return decision

    def _inputs(self, namespace: str) -> list[Json] | None:
        """Return the namespace and all params; None if they cannot be had."""
        found, params = self._surroundings.namespaces(namespace), self._surroundings.params
        if found is None:
            return None
        inputs: list[Json] = [found]
        try:
            for kind, ref in self._params:
                params.namespaced(kind)  # a missing kind matters without a reference, too
                inputs += (None, *find_params(kind, ref, params, namespace=namespace))
        except PolicydError:
            return None
        return inputs

    def _seen(self, request: AdmissionRequest) -> bytes | None:
        """Return the parts of a request that policies see; None if misshapen, or too large."""
        assert self._pod is not None, "asked by the caller"
        try:
            pod = self._pod.decode(request.object)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        seen = _encode((pod, request.namespace, *(get(request) for get in self._asked)))
        if self._counts_claims and _HAS_CLAIMS in seen:
            return None  # how many devices they are for, other objects say
        return seen if len(seen) <= LONGEST_FOOTPRINT else None


def _is_new_pod(request: AdmissionRequest) -> bool:
    return (
        request.operation == "CREATE"
        and request.resource == _PODS
        and request.kind == _NEW_POD.kind
        and request.request_resource in (None, _PODS)
        and request.request_kind in (None, request.kind)
        and not (request.sub_resource or request.request_sub_resource)
        and bytes(request.old_object) == _NOTHING
    )


def _are_same(one: list[Json], other: list[Json]) -> bool:
    """Compare objects, most of which are kept as they are until they change."""
    return len(one) == len(other) and (all(map(is_, one, other)) or same_json(one, other))


def _is_silent(decision: Decision) -> bool:
    """Tell whether a decision lets a request pass without a word."""
    messages = (decision.denials, decision.warnings, decision.failures, decision.objections)
    return not any(messages)

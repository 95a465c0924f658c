"""Decide on a request by all policies that match it.

Policies are found by the resource they name and by their namespace, so that those for others cost
nothing. There is no short cut: one answer names all errors. Mutations run in order, each on the
result of the one before; those that ran before the last change run once more on the result.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import Final, Literal, NamedTuple, Self

from policyd.api.admission import AdmissionRequest
from policyd.api.policy import POLICY_GROUPS
from policyd.engine.evaluate.mutation import mutate
from policyd.engine.evaluate.rollout import stage
from policyd.engine.evaluate.validation import validate
from policyd.engine.evaluate.verdict import VerdictBuilder
from policyd.engine.model.bindings import bind
from policyd.engine.model.compiled import CompiledBinding, CompiledException, CompiledPolicy
from policyd.engine.model.deadline import OutOfTime, never
from policyd.engine.model.decision import ALLOWED, Decision
from policyd.engine.model.facts import Facts
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.equivalents import ServedVersions, equivalents
from policyd.engine.objects.match import (
    NamespaceLookup,
    RequestAttributes,
    attributes_of,
    rule_names,
)

_MOST_RESOURCES: Final = 10_000
"""Resources whose policies are remembered: more than any cluster has, so that none can flood it."""

_EXEMPT: Final = frozenset(
    (group, resource)
    for group, resources in (
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicies mutatingadmissionpolicybindings"
            " mutatingwebhookconfigurations validatingadmissionpolicies"
            " validatingadmissionpolicybindings validatingwebhookconfigurations",
        ),
        ("authentication.k8s.io", "selfsubjectreviews tokenreviews"),
        (
            "authorization.k8s.io",
            "localsubjectaccessreviews selfsubjectaccessreviews selfsubjectrulesreviews"
            " subjectaccessreviews",
        ),
    )
    for resource in resources.split()
)
"""Resources that no policy of the API server's kinds matches: policies, so that they can be fixed,
and questions about users, so that they are answered."""

_REPAIRED: Final = POLICY_GROUPS | {"admissionregistration.k8s.io"}
"""Groups of policies: a policy that cannot be used can still be fixed."""

Phase = Literal["mutate", "validate"]
PHASES: Final[tuple[Phase, Phase]] = ("mutate", "validate")
"""Objects are changed first, and then checked."""

_Key = tuple[str, str, str, str, str]
_Placed = tuple[int, CompiledPolicy]
"""A policy, and its place among all."""


class PolicySet:
    """Compiled policies, ready to decide. It never changes, so that threads may share it."""

    def __init__(
        self,
        policies: Iterable[CompiledPolicy] = (),
        *,
        namespaces: NamespaceLookup | None = None,
        bindings: Iterable[CompiledBinding] = (),
        exceptions: Iterable[CompiledException] = (),
        surroundings: PolicyContext | None = None,
    ) -> None:
        """Take policies in any order.

        Args:
            policies: Compiled policies with different names.
            namespaces: Finds the Namespace object of a request's namespace; that of
                `surroundings` if left out.
            bindings: Where they apply. Policies of the API server's kinds do nothing without.
            exceptions: Exemptions from them.
            surroundings: External data for policies.
        """
        if surroundings is None:
            assert namespaces is not None, "namespaces are looked up somewhere"
            surroundings = PolicyContext(namespaces=namespaces)
        self._arrange(bind(policies, bindings, exceptions), surroundings)

    @classmethod
    def of(cls, policies: Iterable[CompiledPolicy], surroundings: PolicyContext) -> Self:
        """Make a set of policies that are bound already, shadows put into force."""
        made = cls.__new__(cls)
        made._arrange(policies, surroundings, shadows=False)  # noqa: SLF001 - its own
        return made

    def _arrange(
        self,
        policies: Iterable[CompiledPolicy],
        surroundings: PolicyContext,
        *,
        shadows: bool = True,
    ) -> None:
        known = sorted(policies, key=lambda policy: (policy.name, policy.id))
        by_name = [policy for policy in known if not (shadows and policy.shadow_of)]
        self.policies: tuple[CompiledPolicy, ...] = tuple(by_name)
        self.shadows: tuple[CompiledPolicy, ...] = tuple(
            policy for policy in known if shadows and policy.shadow_of
        )
        """Policies that may replace others, and have no say yet."""
        self.known = (*self.policies, *self.shadows)
        """All of them."""
        self.surroundings = surroundings
        self._staged = any(policy.staged for policy in by_name)
        self._mutating = _Index(
            sorted((p for p in by_name if p.changes), key=lambda p: -p.policy.spec.priority),
            surroundings.served,
        )
        self._validating = _Index(
            (policy for policy in by_name if policy.checks), surroundings.served
        )

    @property
    def mutating(self) -> tuple[CompiledPolicy, ...]:
        """The policies that change objects, in the order in which they do."""
        return self._mutating.policies

    @property
    def validating(self) -> tuple[CompiledPolicy, ...]:
        """The policies that demand something."""
        return self._validating.policies

    def concerned(self, request: AdmissionRequest, phase: Phase) -> tuple[CompiledPolicy, ...]:
        """Return the policies whose rules match a request, without selectors and conditions.

        Those of any namespace are among them.
        """
        index = self._mutating if phase == "mutate" else self._validating
        return index.find_anywhere(request)

    def mutate(
        self, request: AdmissionRequest, out_of_time: OutOfTime = never, *, twice: bool = True
    ) -> Decision:
        """Say how the object is to be changed; refuses only if a policy cannot be evaluated.

        Policies that are not reached before `out_of_time` could not be evaluated either. A caller
        that evaluates others in between calls `twice` itself.
        """
        concerned = self._mutating.find(request)
        if not concerned:
            return ALLOWED
        facts = Facts(request, self.surroundings, out_of_time, asked=len(concerned))
        verdict = VerdictBuilder()
        if self._staged:
            concerned = _as_enforced(concerned, facts, verdict)
        operations = mutate(concerned, facts, verdict, twice=twice)
        return verdict.decision(operations, obj=facts.decoded_object, exempted=facts.exempted)

    def validate(self, request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        """Return all denials of the request as it is."""
        concerned = self._validating.find(request)
        if not concerned:
            return ALLOWED
        facts = Facts(request, self.surroundings, out_of_time, asked=len(concerned))
        verdict = VerdictBuilder()
        if self._staged:
            concerned = _as_enforced(concerned, facts, verdict)
        validate(concerned, facts, verdict)
        return verdict.decision(obj=facts.decoded_object, exempted=facts.exempted)

    def review(self, request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        """Mutate and then validate the result, as the two webhooks do in turn."""
        mutating, validating = self._mutating.find(request), self._validating.find(request)
        asked = len(mutating) + len(validating)
        facts = Facts(request, self.surroundings, out_of_time, asked=asked)
        verdict = VerdictBuilder()
        if self._staged:
            mutating = _as_enforced(mutating, facts, verdict)
            validating = _as_enforced(validating, facts, verdict)
        operations = mutate(mutating, facts, verdict)
        validate(validating, facts, verdict)
        return verdict.decision(operations, obj=facts.decoded_object, exempted=facts.exempted)


def _as_enforced(
    policies: Sequence[CompiledPolicy], facts: Facts, verdict: VerdictBuilder
) -> tuple[CompiledPolicy, ...]:
    """Return policies that are being rolled out as they are enforced for this request."""
    enforced = []
    for policy in policies:
        if not policy.staged:
            enforced.append(policy)
            continue
        as_enforced, staged = stage(policy, facts)
        verdict.stage(policy, staged)
        if as_enforced is not None:
            enforced.append(as_enforced)
    return tuple(enforced)


class _Index:
    """Finds the policies whose rules may match a request, by its namespace and resource."""

    def __init__(self, policies: Iterable[CompiledPolicy], served: ServedVersions) -> None:
        self.policies = tuple(policies)
        placed = defaultdict[str, list[_Placed]](list)
        for place, policy in enumerate(self.policies):
            placed[policy.namespace].append((place, policy))
        self._every = _Resources(enumerate(self.policies), served)
        self._cluster_wide = _Resources(placed.pop("", ()), served)
        self._own = {name: _Resources(each, served) for name, each in placed.items()}

    def find(self, request: AdmissionRequest) -> tuple[CompiledPolicy, ...]:
        """Return the policies of the request's namespace, and those of the cluster, in order."""
        found = self._cluster_wide.find(request)
        own = self._own.get(request.namespace)
        return found.policies if own is None else _in_order(found, own.find(request))

    def find_anywhere(self, request: AdmissionRequest) -> tuple[CompiledPolicy, ...]:
        """Return these and the policies of other namespaces."""
        return self._every.find(request).policies


class _Resources:
    """Finds the policies whose rules may match a request, by its resource and operation."""

    def __init__(self, placed: Iterable[_Placed], served: ServedVersions) -> None:
        self._placed = tuple(placed)
        self._served = served
        self._found: dict[_Key, _Found] = {}

    def find(self, request: AdmissionRequest) -> "_Found":
        resource = request.resource
        key = (
            resource.group,
            resource.version,
            resource.resource,
            request.sub_resource,
            request.operation,
        )
        found = self._found.get(key)
        if found is None:
            found = _Found.of(self._search(attributes_of(request)))
            if len(self._found) < _MOST_RESOURCES:
                self._found[key] = found
        return found

    def _search(self, attributes: RequestAttributes) -> Iterator[_Placed]:
        if is_exempt(attributes):
            yield from ((i, p) for i, p in self._placed if p.own and not p.unusable)
            return
        for place, policy in self._placed:
            concerned = _as_concerned(policy, attributes, self._served)
            if concerned is not None:
                yield place, concerned


class _Found(NamedTuple):
    """Policies, and their places among all."""

    places: tuple[int, ...]
    policies: tuple[CompiledPolicy, ...]

    @classmethod
    def of(cls, placed: Iterable[_Placed]) -> Self:
        found = tuple(placed)
        return cls(tuple(place for place, _ in found), tuple(policy for _, policy in found))


def _in_order(*found: _Found) -> tuple[CompiledPolicy, ...]:
    placed = chain.from_iterable(zip(each.places, each.policies, strict=True) for each in found)
    return tuple(policy for _, policy in sorted(placed, key=itemgetter(0)))


def is_exempt(attributes: RequestAttributes) -> bool:
    """Tell whether policies of kinds other than policyd's own never concern the resource."""
    return (attributes.group, attributes.resource) in _EXEMPT


def _as_concerned(
    policy: CompiledPolicy, attributes: RequestAttributes, served: ServedVersions
) -> CompiledPolicy | None:
    """Return a policy if a rule names the resource and operation, be it under another version.

    A policy that matches exactly looks at the resource the client named, which may be another.
    """
    if policy.unusable and (attributes.group in _REPAIRED or is_exempt(attributes)):
        return None
    constraints = policy.constraints
    rules = constraints.resource_rules
    if any(rule_names(rule, attributes) for rule in rules):
        return policy
    # The rest is decided for each request anew.
    undecided = replace(policy, named_only=False) if policy.named_only else policy
    if constraints.match_policy == "Exact" or not rules:
        return undecided
    others = (
        other
        for rule in rules
        for other in equivalents(rule, attributes, served)
        if rule_names(rule, other)
    )
    return undecided if any(True for _ in others) else None

"""All policies together: which concern a request, what they make of it, what they say about it.

Policies are found by the resource they name, so that those for other resources cost nothing. There
is no short cut: one answer holds everything that is wrong. Mutations run in order, each on the
result of the one before; those that ran before the last change run once more on the result.
"""

from collections.abc import Iterable
from typing import Final

from policyd.api.admission import AdmissionRequest
from policyd.engine.compile import CompiledPolicy
from policyd.engine.deadline import OutOfTime, never
from policyd.engine.decision import ALLOWED, Decision
from policyd.engine.facts import Facts
from policyd.engine.match import Attributes, NamespaceLookup, attributes_of, rule_names
from policyd.engine.mutation import mutate
from policyd.engine.validation import validate
from policyd.engine.verdict import Verdict

_MOST_RESOURCES: Final = 10_000
"""Resources whose policies are remembered: more than any cluster has, so that none can flood it."""

_Key = tuple[str, str, str, str, str]


class PolicySet:
    """Compiled policies, ready to decide. It never changes, so that threads may share it."""

    def __init__(
        self, policies: Iterable[CompiledPolicy] = (), *, namespaces: NamespaceLookup
    ) -> None:
        """Take policies in any order.

        Args:
            policies: Compiled policies with different names.
            namespaces: Finds the Namespace object of a request's namespace.
        """
        by_name = sorted(policies, key=lambda policy: policy.name)
        self.policies: tuple[CompiledPolicy, ...] = tuple(by_name)
        self._namespaces = namespaces
        self._mutating = _Index(
            sorted((p for p in by_name if p.steps), key=lambda p: -p.policy.spec.priority)
        )
        self._validating = _Index(policy for policy in by_name if policy.validations)

    def mutate(self, request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        """Say how the object is to be changed; refuses only if a policy cannot be evaluated.

        Policies that are not reached before `out_of_time` could not be evaluated either.
        """
        concerned = self._mutating.find(request)
        if not concerned:
            return ALLOWED
        facts, verdict = Facts(request, self._namespaces, out_of_time), Verdict()
        operations = mutate(concerned, facts, verdict)
        return verdict.decision(operations, obj=facts.decoded_object)

    def validate(self, request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        """Say everything that speaks against the request as it is."""
        concerned = self._validating.find(request)
        if not concerned:
            return ALLOWED
        facts, verdict = Facts(request, self._namespaces, out_of_time), Verdict()
        validate(concerned, facts, verdict)
        return verdict.decision(obj=facts.decoded_object)

    def review(self, request: AdmissionRequest) -> Decision:
        """Mutate and then validate what came of it, as the two webhooks do one after the other."""
        facts, verdict = Facts(request, self._namespaces), Verdict()
        operations = mutate(self._mutating.find(request), facts, verdict)
        validate(self._validating.find(request), facts, verdict)
        return verdict.decision(operations, obj=facts.decoded_object)


class _Index:
    """Finds the policies whose rules may concern a request, by what it is about."""

    def __init__(self, policies: Iterable[CompiledPolicy]) -> None:
        self._policies = tuple(policies)
        self._found: dict[_Key, tuple[CompiledPolicy, ...]] = {}

    def find(self, request: AdmissionRequest) -> tuple[CompiledPolicy, ...]:
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
            attributes = attributes_of(request)
            found = tuple(policy for policy in self._policies if _may_concern(policy, attributes))
            if len(self._found) < _MOST_RESOURCES:
                self._found[key] = found
        return found


def _may_concern(policy: CompiledPolicy, attributes: Attributes) -> bool:
    """Tell whether a rule names the resource and operation.

    A policy that matches exactly looks at the resource the client named, which may be another.
    """
    constraints = policy.policy.spec.match_constraints
    if constraints.match_policy == "Exact":
        return True
    return any(rule_names(rule, attributes) for rule in constraints.resource_rules)

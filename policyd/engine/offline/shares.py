"""Decide on a request, and keep what each policy contributed to the decision."""

from dataclasses import dataclass

from policyd.api.admission import AdmissionRequest
from policyd.api.meta import Json
from policyd.engine.evaluate.mutation import mutate
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.evaluate.rollout import stage
from policyd.engine.evaluate.validation import validate
from policyd.engine.evaluate.verdict import VerdictBuilder
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.deadline import OutOfTime, never
from policyd.engine.model.decision import Decision
from policyd.engine.model.facts import Facts
from policyd.patch.operations import Operation


@dataclass(frozen=True, slots=True)
class PolicyShare:
    """What one policy contributed.

    Attributes:
        policy: Its name.
        operations: Its changes, each on the object as the policies before left it.
    """

    policy: str
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class SharedDecision:
    """The decision on a request.

    Attributes:
        shares: The policies that changed the object, in the order in which they did.
        decision: All objections, warnings and failures; its operations are those of all shares.
        object: The object with all changes.
    """

    shares: tuple[PolicyShare, ...]
    decision: Decision
    object: Json


def decide_in_shares(
    policies: PolicySet, request: AdmissionRequest, out_of_time: OutOfTime = never
) -> SharedDecision:
    """Mutate an object and validate the result, and tell which policy changed what.

    As in a review, policies run once more if others changed the object after them.

    Raises:
        ReviewError: If the object cannot be decoded.
    """
    mutating = policies.concerned(request, "mutate")
    validating = policies.concerned(request, "validate")
    facts = Facts(
        request, policies.surroundings, out_of_time, asked=len(mutating) + len(validating)
    )
    verdict = VerdictBuilder()
    enforced = [each for each in map(_Stage(facts, verdict), mutating) if each is not None]
    found: dict[str, list[Operation]] = {}
    last = _run(enforced, facts, verdict, found)
    if last is not None:
        again = (p for p in enforced if p.policy.spec.reinvocation_policy != "Never" and p != last)
        _run(list(again), facts, verdict, found)
    checked = [each for each in map(_Stage(facts, verdict), validating) if each is not None]
    validate(checked, facts, verdict)
    operations = [operation for each in found.values() for operation in each]
    decision = verdict.decision(operations, obj=facts.object, exempted=facts.exempted)
    shares = tuple(PolicyShare(name, tuple(each)) for name, each in found.items())
    return SharedDecision(shares, decision, facts.object)


class _Stage:
    """Returns a policy as it is enforced for a request; None if it is left out."""

    def __init__(self, facts: Facts, verdict: VerdictBuilder) -> None:
        self._facts = facts
        self._verdict = verdict

    def __call__(self, policy: CompiledPolicy) -> CompiledPolicy | None:
        if not policy.staged:
            return policy
        enforced, staged = stage(policy, self._facts)
        self._verdict.stage(policy, staged)
        return enforced


def _run(
    policies: list[CompiledPolicy],
    facts: Facts,
    verdict: VerdictBuilder,
    found: dict[str, list[Operation]],
) -> CompiledPolicy | None:
    """Let policies change the object, one by one; return the last one that did."""
    last = None
    for policy in policies:
        operations = mutate([policy], facts, verdict, twice=False)
        if operations:
            found.setdefault(policy.name, []).extend(operations)
            last = policy
    return last

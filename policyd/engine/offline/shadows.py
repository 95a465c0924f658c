"""Compare the decisions of candidate policies with those of the policies in force.

Both are evaluated for the same, each alone. Their changes are compared on the object as it came:
on the result of the one in force, the shadow would find nothing to do. Their validations are
compared on the object as it is to be stored, after the shadow's own changes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import msgspec

from policyd.api.admission import AdmissionRequest, decode_object
from policyd.engine.evaluate.policy_set import PHASES, Phase, PolicySet
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.deadline import OutOfTime, never
from policyd.engine.model.decision import Decision
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import Operation, difference

Outcome = Literal["same", "denied", "allowed", "changed"]
"""The kind of a difference: none, denied, no longer denied, another message or object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowDifference:
    """The decision of a shadow, compared with that of the policy it may replace.

    Attributes:
        shadow: The shadow's name.
        of: The name of the policy in force.
        phase: Whether changes are compared, or demands.
        outcome: How the answer would differ.
        before: The objections of the policy in force.
        after: The objections of the shadow.
        operations: The differences of the object, of a change.
    """

    shadow: str
    of: str
    phase: Phase
    outcome: Outcome
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        words = {
            "same": "the same",
            "denied": "would deny",
            "allowed": "would allow",
            "changed": "would differ",
        }
        details = [f"{op.op} {op.path}" for op in self.operations] or self.after or self.before
        reason = f": {'; '.join(details)}" if details and self.outcome != "same" else ""
        return f"{self.shadow}, shadow of {self.of}, {words[self.outcome]}{reason}"


class Shadow:
    """A policy that may replace another, and that other one."""

    def __init__(self, policy: CompiledPolicy, policies: PolicySet) -> None:
        """Take a shadow of a set of policies."""
        self.policy = policy
        self._policies = policies

    @property
    def of(self) -> str:
        """The name of the policy in force; there may be none."""
        return self.policy.shadow_of

    @cached_property
    def new(self) -> PolicySet:
        """The shadow, put into force."""
        return PolicySet.of([self.policy], self._policies.surroundings)

    @cached_property
    def old(self) -> PolicySet:
        """The policy in force."""
        named = [
            policy
            for policy in self._policies.policies
            if (policy.kind, policy.name) == (self.policy.kind, self.of)
        ]
        return PolicySet.of(named, self._policies.surroundings)

    def concerns(self, request: AdmissionRequest, phase: Phase) -> bool:
        """Tell whether either of both names the request's resource and operation."""
        return bool(self.new.concerned(request, phase) or self.old.concerned(request, phase))


Decide = Callable[[AdmissionRequest, OutOfTime], Decision]


def deciders(shadow: Shadow, phase: Phase) -> tuple[Decide, Decide]:
    """Return the decisions of the policy in force, and of its shadow."""
    if phase == "mutate":
        return shadow.old.mutate, shadow.new.mutate
    return shadow.old.review, shadow.new.review


def compared(
    shadow: Shadow, phase: Phase, *, request: AdmissionRequest, old: Decision, new: Decision
) -> ShadowDifference:
    """Say how two decisions on a request differ."""
    before, after = _messages(old), _messages(new)
    operations: tuple[Operation, ...] = ()
    if phase == "mutate" and old.operations != new.operations:
        operations = tuple(difference(_result(request, old), _result(request, new)))
    if old.allowed != new.allowed:
        outcome: Outcome = "allowed" if new.allowed else "denied"
    else:
        outcome = "changed" if before != after or operations else "same"
    return ShadowDifference(
        shadow=shadow.policy.name,
        of=shadow.of,
        phase=phase,
        outcome=outcome,
        before=before,
        after=after,
        operations=operations,
    )


def shadow_differences(
    policies: PolicySet, request: AdmissionRequest, result: Decision
) -> Iterator[ShadowDifference]:
    """Yield the differences of shadows, evaluated as both webhooks evaluate them in turn.

    Args:
        policies: All policies.
        request: The request as it came.
        result: The decision of the policies in force; its operations made the stored object.
    """
    if not policies.shadows:
        return
    stored = request
    if result.operations:
        obj = apply_json_patch(decode_object(request.object), list(result.operations))
        stored = msgspec.structs.replace(request, object=msgspec.Raw(msgspec.json.encode(obj)))
    for policy in policies.shadows:
        shadow = Shadow(policy, policies)
        for phase in PHASES:
            asked = request if phase == "mutate" else stored
            if not shadow.concerns(asked, phase):
                continue
            old, new = (decide(asked, never) for decide in deciders(shadow, phase))
            found = compared(shadow, phase, request=asked, old=old, new=new)
            if found.outcome != "same":
                yield found


def _messages(decision: Decision) -> tuple[str, ...]:
    """Return the denials of a decision without the policy's name, which always differs."""
    messages = [
        f"{'+'.join(o.actions)}: {f'{o.path}: ' if o.path else ''}{o.advice}"
        for o in decision.objections
    ]
    ignored = [f"cannot be evaluated: {f.message}" for f in decision.failures if f.ignored]
    return tuple(sorted([*messages, *ignored]))


def _result(request: AdmissionRequest, decision: Decision) -> object:
    return apply_json_patch(decode_object(request.object), list(decision.operations))

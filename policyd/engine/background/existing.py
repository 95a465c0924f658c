"""Evaluate policies that mutate objects that exist: their triggers, their targets, the result.

The mutations of an object are made in turn, until none changes it any more. If they do not come to
rest, the object stays as it is: they would undo each other's writes without end. Policies of
namespaces are asked last, so that they cannot stop those of the cluster.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from policyd.api.admission import AdmissionRequest
from policyd.api.meta import Json
from policyd.engine.background.evaluation import (
    Outcome,
    identified,
    items_of,
    matched,
    sentence_of,
)
from policyd.engine.background.record import ObjectName, name_of
from policyd.engine.evaluate.conditions import Match
from policyd.engine.evaluate.mutation import mutate
from policyd.engine.evaluate.patches import to_json
from policyd.engine.evaluate.verdict import CATCHABLE, VerdictBuilder
from policyd.engine.model.background import BackgroundPolicy, ExistingMutation
from policyd.engine.model.deadline import OutOfTime, never
from policyd.engine.model.facts import Facts
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError
from policyd.patch.operations import difference, same_json

MOST_ROUNDS: Final = 5
"""How often all mutations of an object are made, each time on the result of the last."""

MOST_TARGETS: Final = 1_000
"""Targets that an expression may name for one trigger."""

_KEPT: Final = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
"""Fields of `metadata` that no policy changes."""


class TargetError(PolicydError):
    """A policy names targets that are none, or mutates them into other objects."""


class Trigger(NamedTuple):
    """An object for which a policy mutates others, or the policy alone if it needs no trigger.

    Attributes:
        policy: The policy.
        name: The kind and names of the object; empty without one.
        request: The value of `request` for the mutations; None without an object.
        targets: The names of the targets; None if the policy's constraints decide.
    """

    policy: BackgroundPolicy
    name: str = ""
    request: Mapping[str, Json] | None = None
    targets: frozenset[ObjectName] | None = None


class TriggerSought(NamedTuple):
    """Whether an object is a trigger of a policy."""

    outcome: Outcome
    trigger: Trigger | None = None
    error: str = ""


def find_trigger(
    policy: BackgroundPolicy,
    requests: Sequence[AdmissionRequest],
    context: PolicyContext,
    out_of_time: OutOfTime = never,
) -> TriggerSought:
    """Return whether an object is a trigger, as one of some requests would have sent it.

    Args:
        policy: A policy whose triggers are other objects than its targets.
        requests: Those that may have sent the object; the first that matches counts.
        context: What expressions may read.
        out_of_time: Returns whether the caller's deadline has passed.
    """
    action = policy.action
    assert isinstance(action, ExistingMutation), "the caller chooses by the action"
    outcome: Outcome = "unmatched"
    try:
        for request in requests:
            facts = Facts(request, context, out_of_time)
            found, came_to = matched(policy, facts)
            if found:
                seen = {**facts.request_variable, "object": facts.object, "oldObject": None}
                targets = _named_by(action, found[0])
                trigger = Trigger(policy, str(name_of(facts.subject)), seen, targets)
                return TriggerSought("matched", trigger)
            outcome = came_to if outcome == "unmatched" else outcome
    except CATCHABLE as error:
        return TriggerSought("failed", error=sentence_of(error))
    return TriggerSought(outcome)


def _named_by(action: ExistingMutation, match: Match) -> frozenset[ObjectName] | None:
    """Return the names of the targets that an expression gives; None without one.

    Raises:
        PolicydError: If it gives something else than objects, or too many.
    """
    if action.named is None:
        return None
    value = to_json(action.named.evaluate(match.variables, match.budget))
    given = [] if value is None else items_of(value)
    if len(given) > MOST_TARGETS:
        raise TargetError(f"more than {MOST_TARGETS:,} targets are named for one trigger")
    for each in given:
        if not isinstance(value_at(each, ("metadata",)), dict):
            raise TargetError("a target has no `metadata`")
        identified(each)
    return frozenset(map(name_of, given))


class TargetFault(NamedTuple):
    """Why a policy does not mutate a target."""

    policy: str
    reason: str


@dataclass(frozen=True, slots=True)
class MutatedTarget:
    """An object as policies mutate it.

    Attributes:
        object: The result; the object as it was if nothing changes.
        policies: The ids of the policies that changed it, in order.
        changed: The paths that differ, as JSON pointers.
        faults: Policies that could not be evaluated, or that do not come to rest.
    """

    object: Json
    policies: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    faults: tuple[TargetFault, ...] = ()


def mutate_existing(
    target: AdmissionRequest,
    triggers: Sequence[Trigger],
    context: PolicyContext,
    out_of_time: OutOfTime = never,
) -> MutatedTarget:
    """Return an object as the policies mutate it, each for its triggers.

    Args:
        target: The request that would send the object.
        triggers: The policies that may mutate it, with their triggers.
        context: What expressions may read.
        out_of_time: Returns whether the caller's deadline has passed.
    """
    original = msgspec.json.decode(target.object)
    resting = _Resting(target, context, out_of_time)
    ordered = sorted(triggers, key=lambda each: (each.policy.id, each.name))
    mine = [each for each in ordered if not each.policy.policy.namespace]
    others = [each for each in ordered if each.policy.policy.namespace]
    result = resting.settled(original, mine)
    if others:
        result = resting.settled(result, [*mine, *others])
    differing = tuple(each.path or "/" for each in difference(original, result))
    by = tuple(resting.policies) if differing else ()
    return MutatedTarget(result, by, differing, tuple(resting.faults))


class _Resting:
    """Makes mutations of one object until they change nothing any more."""

    def __init__(
        self, target: AdmissionRequest, context: PolicyContext, out_of_time: OutOfTime
    ) -> None:
        self._target, self._context, self._out_of_time = target, context, out_of_time
        self._failed: set[int] = set()
        self.policies: dict[str, None] = {}
        self.faults: dict[TargetFault, None] = {}

    def settled(self, before: Json, triggers: Sequence[Trigger]) -> Json:
        """Return the object once it is at rest; as it was before if it never is."""
        current, by = before, dict(self.policies)
        changing: Counter[str] = Counter()
        for _ in range(MOST_ROUNDS):
            changing, failed = Counter(), len(self._failed)
            for each in triggers:
                after = self._mutated(current, each)
                if not same_json(current, after):
                    current = after
                    changing[each.policy.id] += 1
            if len(self._failed) > failed:  # what such a policy changed before does not count
                current, by = before, dict(self.policies)
            elif changing:
                by |= dict.fromkeys(changing)
            else:
                self.policies = by
                return current
        several = f"{', '.join(changing)} undo each other's changes"
        for policy, number in changing.items():
            alone = "it changes its own result" if number == 1 else "its triggers undo each other"
            what = several if len(changing) > 1 else alone
            reason = f"{what}, also after {MOST_ROUNDS} rounds: nothing is written"
            self.faults[TargetFault(policy, reason)] = None
        return before

    def _mutated(self, current: Json, trigger: Trigger) -> Json:
        """Return an object as one policy mutates it; as it is if that fails."""
        action = trigger.policy.action
        assert isinstance(action, ExistingMutation), "only such policies have triggers of this kind"
        if id(trigger) in self._failed:
            return current
        request = msgspec.structs.replace(
            self._target, object=msgspec.Raw(msgspec.json.encode(current))
        )
        facts = Facts(request, self._context, self._out_of_time, trigger=trigger.request)
        verdict = VerdictBuilder()
        try:
            mutate((action.targets,), facts, verdict, twice=False)
            reason = next((each.message for each in verdict.decision().failures), "")
            after = facts.object
            reason = reason or _replaced(current, after)
        except CATCHABLE as error:
            reason, after = sentence_of(error), current
        if reason:
            self._failed.add(id(trigger))
            self.faults[TargetFault(trigger.policy.id, reason)] = None
            return current
        return after


def _replaced(before: Json, after: Json) -> str:
    """Return how a mutation makes another object of one; empty if it does not."""
    for path in (("apiVersion",), ("kind",), *(("metadata", name) for name in _KEPT)):
        if value_at(before, path) != value_at(after, path):
            return f"it changes `{'.'.join(path)}`, which makes another object of it"
    return ""

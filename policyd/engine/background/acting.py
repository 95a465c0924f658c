"""Ask all policies that act by themselves about one object."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from policyd.api.admission import AdmissionRequest, decode_object
from policyd.api.meta import Json
from policyd.engine.background.evaluation import Acted, decide_deletion, generate
from policyd.engine.background.existing import Trigger, find_trigger, mutate_existing
from policyd.engine.background.record import name_of
from policyd.engine.model.background import (
    BackgroundPolicy,
    Deletion,
    ExistingMutation,
    Generation,
    IsNamespaced,
)
from policyd.engine.model.bindings import bind
from policyd.engine.model.compiled import CompiledException
from policyd.engine.model.deadline import OutOfTime, never
from policyd.engine.model.surroundings import PolicyContext


class PolicyActed(NamedTuple):
    """What one policy does about an object."""

    policy: BackgroundPolicy
    result: Acted


def with_exceptions(
    policies: Iterable[BackgroundPolicy], exceptions: Iterable[CompiledException]
) -> tuple[BackgroundPolicy, ...]:
    """Give each policy the exceptions that name it, in the order of their names."""
    exceptions = tuple(exceptions)
    bound = []
    for each in policies:
        action = each.action
        if isinstance(action, ExistingMutation):  # targets are exempt, not triggers
            (targets,) = bind((action.targets,), (), exceptions)
            bound.append(replace(each, action=replace(action, targets=targets)))
        else:
            (policy,) = bind((each.policy,), (), exceptions)
            bound.append(replace(each, policy=policy))
    return tuple(sorted(bound, key=lambda each: each.id))


@dataclass(frozen=True, slots=True)
class ActingPolicies:
    """Policies that act by themselves, with what they may read.

    Attributes:
        policies: The policies, with their exceptions.
        context: What their expressions may read.
        is_namespaced: Knows which kinds live in namespaces.
        existing: The requests that would send the objects that exist, which policies may mutate.
    """

    policies: tuple[BackgroundPolicy, ...]
    context: PolicyContext
    is_namespaced: IsNamespaced
    existing: tuple[AdmissionRequest, ...] = ()

    def generated(
        self, request: AdmissionRequest, out_of_time: OutOfTime = never
    ) -> list[PolicyActed]:
        """Return what each policy that generates does for a request."""
        return [
            PolicyActed(
                each, generate(each, request, self.context, self.is_namespaced, out_of_time)
            )
            for each in self.policies
            if isinstance(each.action, Generation)
        ]

    def deleted(
        self, request: AdmissionRequest, out_of_time: OutOfTime = never
    ) -> list[PolicyActed]:
        """Return whether each policy that deletes would delete the object of a request."""
        return [
            PolicyActed(each, decide_deletion(each, request, self.context, out_of_time))
            for each in self.policies
            if isinstance(each.action, Deletion)
        ]

    def mutated(
        self, request: AdmissionRequest, out_of_time: OutOfTime = never
    ) -> list[PolicyActed]:
        """Return which existing objects each policy mutates for the object of a request.

        A policy without other targets mutates the object itself.
        """
        return [
            PolicyActed(each, self._mutated(each, each.action, request, out_of_time))
            for each in self.policies
            if isinstance(each.action, ExistingMutation)
        ]

    def _mutated(
        self,
        policy: BackgroundPolicy,
        action: ExistingMutation,
        request: AdmissionRequest,
        out_of_time: OutOfTime,
    ) -> Acted:
        trigger, targets = Trigger(policy), [request]
        if action.triggered:
            sought = find_trigger(policy, [request], self.context, out_of_time)
            if sought.trigger is None:
                return Acted(sought.outcome, error=sought.error)
            trigger, targets = sought.trigger, list(self.existing)
        made: list[Json] = []
        for each in targets:
            if trigger.targets is None or name_of(decode_object(each.object)) in trigger.targets:
                result = mutate_existing(each, [trigger], self.context, out_of_time)
                if result.faults:
                    return Acted("failed", error=result.faults[0].reason)
                made += [result.object] if result.changed else []
        return Acted("matched" if made or action.triggered else "unmatched", tuple(made))

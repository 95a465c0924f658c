"""Ask all policies that act by themselves about one object."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from policyd.api.admission import AdmissionRequest
from policyd.engine.background.evaluation import Acted, decide_deletion, generate
from policyd.engine.model.background import (
    BackgroundPolicy,
    Deletion,
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
    bound = [
        replace(each, policy=policy)
        for each in policies
        for policy in bind((each.policy,), (), exceptions)
    ]
    return tuple(sorted(bound, key=lambda each: each.id))


@dataclass(frozen=True, slots=True)
class ActingPolicies:
    """Policies that act by themselves, with what they may read.

    Attributes:
        policies: The policies, with their exceptions.
        context: What their expressions may read.
        is_namespaced: Knows which kinds live in namespaces.
    """

    policies: tuple[BackgroundPolicy, ...]
    context: PolicyContext
    is_namespaced: IsNamespaced

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

"""Decides as the two webhooks do in turn, without a server: for commands."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from policyd.admission.decisions import combined, object_of
from policyd.admission.handler import AdmissionHandler
from policyd.admission.jobs import DefaultClass, JobAdmission
from policyd.admission.queues import QueueAdmission
from policyd.api.admission import AdmissionRequest
from policyd.api.makers import Makers
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.deadline import OutOfTime
from policyd.engine.model.decision import ALLOWED, Decision
from policyd.engine.objects.match import NamespaceLookup, labels_of
from policyd.engine.offline.requests import raw
from policyd.jobs.frameworks import makers_of
from policyd.jobs.integrations import Integrations


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldJobs:
    """Which jobs are held.

    Attributes:
        integrations: Which kinds queue, and in which namespaces.
        default_queues: The namespaces with a queue for jobs that name none.
        default_class: Whether there is a priority class for jobs that name none.
    """

    integrations: Integrations
    default_queues: frozenset[str]
    default_class: bool

    def admission(self, makers: Makers, namespaces: NamespaceLookup) -> JobAdmission:
        """Return the decisions on jobs as the webhooks make them.

        Args:
            makers: The makers of objects that belong to jobs.
            namespaces: Finds namespaces.
        """
        integrations = replace(self.integrations, makers=makers)
        integrations = replace(integrations, makers=makers_of(integrations))
        default_class = DefaultClass()
        default_class.there = self.default_class

        def covers(namespace: str) -> bool:
            return integrations.covers(labels_of(namespaces(namespace)))

        def gives_queue(namespace: str) -> bool:
            return namespace in self.default_queues and covers(namespace)

        return JobAdmission(
            integrations=integrations,
            covers=covers,
            gives_queue=gives_queue,
            default_class=default_class,
        )


def decided_in_turn(
    policies: PolicySet, request: AdmissionRequest, jobs: JobAdmission | None = None
) -> Sequence[Decision]:
    """Return the decisions of policies and queues on a request.

    Args:
        policies: The policies.
        request: The request.
        jobs: Decides on jobs. If left out, all kinds queue, if they name a queue.

    Returns:
        The changes and, unless they refuse, the validation of the changed object.
    """
    if jobs is None:
        jobs = JobAdmission(integrations=Integrations(makers=policies.surroundings.makers))
    queues = QueueAdmission.of(jobs.integrations)
    mutating = AdmissionHandler(phase="mutate", policies=policies.mutate, jobs=jobs, queues=queues)
    validating = AdmissionHandler(
        phase="validate", policies=policies.validate, jobs=jobs, queues=queues
    )
    return _in_turn(mutating, validating, request)


def queues_concern(policies: PolicySet, request: AdmissionRequest, decision: Decision) -> bool:
    """Tell whether queues have something to say or to change about a request.

    Args:
        policies: The policies.
        request: The request.
        decision: Theirs on the request.
    """

    def decided(_request: AdmissionRequest, _out_of_time: OutOfTime) -> Decision:
        return decision

    def nothing(_request: AdmissionRequest, _out_of_time: OutOfTime) -> Decision:
        return ALLOWED

    jobs = JobAdmission(integrations=Integrations(makers=policies.surroundings.makers))
    queues = QueueAdmission()
    mutating = AdmissionHandler(phase="mutate", policies=decided, jobs=jobs, queues=queues)
    validating = AdmissionHandler(phase="validate", policies=nothing, jobs=jobs, queues=queues)
    change, *checks = _in_turn(mutating, validating, request)
    return (change.operations, change.denials, change.warnings) != (
        decision.operations,
        decision.denials,
        decision.warnings,
    ) or any(check.denials or check.warnings for check in checks)


def _in_turn(
    mutating: AdmissionHandler, validating: AdmissionHandler, request: AdmissionRequest
) -> Sequence[Decision]:
    change = mutating.mutate(request)
    if not change.allowed:
        return (change,)
    if change.operations:
        request = msgspec.structs.replace(request, object=raw(object_of(request, change)))
    return change, validating.validate(request)


def decided_together(policies: PolicySet, request: AdmissionRequest) -> Decision:
    """Return the same as `decided_in_turn`, as one decision."""
    return combined(*decided_in_turn(policies, request))

"""What is answered to a review that nobody judges: as if each webhook's failurePolicy were asked.

Whatever a policy that must not be passed unasked may concern is refused, and so is what the queue
may: labels and conditions that cannot be read are taken to be met. What cluster and webhooks cannot
be repaired without is let through, as it is never judged anyway.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from policyd.api.admission import (
    AdmissionRequest,
    AdmissionResponse,
    AnsweredReview,
    Head,
    Status,
    read_head,
)
from policyd.api.selectors import LabelSelector
from policyd.engine.match import NamespaceLookup, labels_of
from policyd.engine.policy_set import Phase, PolicySet
from policyd.engine.unjudged import unheard
from policyd.jobs.integrations import Integrations
from webhooks.cells import Cell
from webhooks.demands import Demand, Given, queue_demands
from webhooks.jobs import QUEUE_WORDS, SPEAKER, nowhere
from webhooks.metrics import DoorMetrics
from webhooks.registration import EXEMPT_NAMESPACES, exempt_groups
from webhooks.unjudged import HEAD_BYTES, Unjudged

WHAT_TO_TRY: Final = "try again in a moment, or with a smaller object"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unasked:
    """All that may have a say in a request.

    Attributes:
        policies: Returns the policies in force.
        namespaces: Finds the Namespace object of a request's namespace.
        own_namespace: Where policyd runs.
        queue: Which jobs are held; None if nothing is done for the queue.
        gives_queue: Tells whether a namespace has a queue for jobs that name none.
        metrics: Where such answers are counted.
    """

    policies: Callable[[], PolicySet]
    namespaces: NamespaceLookup
    own_namespace: str
    queue: Integrations | None
    metrics: DoorMetrics
    gives_queue: Callable[[str], bool] = nowhere

    def answers(self, phase: Phase) -> Unjudged:
        """Return what answers reviews of one phase that nobody judges."""

        def answer(text: bytes, reason: str) -> bytes:
            head = read_head(text[:HEAD_BYTES])
            response = self._respond(head, phase, reason, text)
            outcome = "allowed" if response.allowed else "denied"
            self.metrics.unjudged_reviews.labels(f"/{phase}", outcome).inc()
            return msgspec.json.encode(
                AnsweredReview(
                    api_version="admission.k8s.io/v1", kind="AdmissionReview", response=response
                )
            )

        return answer

    def _respond(self, head: Head, phase: Phase, reason: str, text: bytes) -> AdmissionResponse:
        uid = head.request.uid
        if self._is_exempt(head.request):
            return AdmissionResponse(uid=uid, allowed=True)
        found = unheard(self.policies(), head, phase)
        refusing = [f"policy `{name}`" for name in found.refusing]
        if self._may_queue(head, phase, text):
            refusing.append(f"the {SPEAKER}")
        said = f"policyd could not judge this: {reason}"
        if refusing:
            message = f"{said}; {_joined(refusing)} must not be passed unasked: {WHAT_TO_TRY}"
            status = Status(code=403, reason="Forbidden", message=message)
            return AdmissionResponse(uid=uid, allowed=False, status=status)
        ignored = [f"policy `{name}`" for name in found.ignored]
        warnings = (f"{said}; not asked: {_joined(ignored)}",) if ignored else ()
        return AdmissionResponse(uid=uid, allowed=True, warnings=warnings)

    def _is_exempt(self, request: AdmissionRequest) -> bool:
        exempt = {*EXEMPT_NAMESPACES, self.own_namespace}
        groups = exempt_groups(self.own_namespace)
        return request.namespace in exempt or not groups.isdisjoint(request.user_info.groups)

    def _may_queue(self, head: Head, phase: Phase, text: bytes) -> bool:
        """Tell whether the queue may have something to do with a request."""
        if self.queue is None:
            return False
        if not head.whole:
            return True
        request = head.request
        defaulted = frozenset({request.namespace} if self.gives_queue(request.namespace) else ())
        held, checked = queue_demands(self.queue, defaulted=defaulted)
        given = held if phase == "mutate" else checked
        return any(self._demands(each, request) for each in given) and (
            self.queue.manages_all or bool(defaulted) or _may_name_a_queue(text)
        )

    def _demands(self, given: Given, request: AdmissionRequest) -> bool:
        demand, cells = given
        return (
            demand.failure_policy == "Fail"
            and _among(request, cells)
            and self._selects(demand, request.namespace)
        )

    def _selects(self, demand: Demand, name: str) -> bool:
        namespace = self.namespaces(name) if name else None
        selector = LabelSelector(match_expressions=tuple(demand.namespaces))
        return namespace is None or selector.matches(labels_of(namespace))


def _among(request: AdmissionRequest, cells: Iterable[Cell]) -> bool:
    """Tell whether a request is of one of the cells, be it in another version."""
    group, part = request.resource.group, request.sub_resource
    resource = f"{request.resource.resource}/{part}" if part else request.resource.resource
    return any(
        (cell.group, cell.resource, cell.operation) == (group, resource, request.operation)
        for cell in cells
    )


def _may_name_a_queue(text: bytes) -> bool:
    """Tell whether an object may name a queue: not if all of it is there, and does not."""
    if len(text) >= HEAD_BYTES or QUEUE_WORDS in text:
        return True
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return True
    return False


def _joined(words: list[str]) -> str:
    shown = words[:MOST_NAMED] + ([f"{len(words) - MOST_NAMED} more"] * (len(words) > MOST_NAMED))
    *first, last = shown
    return f"{', '.join(first)} and {last}" if first else last


MOST_NAMED: Final = 5
"""Policies that are named to the user."""

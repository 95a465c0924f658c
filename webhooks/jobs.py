"""Jobs at the door: held when they are submitted to a queue, refused when that cannot work."""

import msgspec

from policyd.api.admission import AdmissionRequest, decode_object
from policyd.api.kueue.names import QUEUE_NAME
from policyd.engine.decision import ALLOWED, Decision, Denial
from policyd.engine.match import labels_of
from policyd.jobs.defaults import default_on_create, holds
from policyd.jobs.shape import MisshapenError
from policyd.jobs.validation import validate_job
from policyd.patch.draft import Draft
from webhooks.decisions import Mutator, object_of

QUEUE_WORDS = b"kueue.x-k8s.io"
"""What stands in an object that has to do with a queue. The API server never escapes a letter of
it, so that looking for it spares most objects the decoding."""

SPEAKER = "queue"
"""Who refuses, in the place of a policy's name."""


def _defaults_concern(request: AdmissionRequest, decision: Decision) -> bool:
    return (
        request.operation == "CREATE"
        and not request.sub_resource
        and holds(request.kind.group, request.kind.kind)
        and _may_name_a_queue(request, decision)
    )


def _may_name_a_queue(request: AdmissionRequest, decision: Decision) -> bool:
    if decision.object is not msgspec.UNSET:
        return QUEUE_NAME in labels_of(decision.object)
    return QUEUE_WORDS in bytes(request.object)


def _default(request: AdmissionRequest, draft: Draft) -> None:
    default_on_create(draft, group=request.kind.group, kind=request.kind.kind)


JOB_DEFAULTS = Mutator(name=SPEAKER, concerns=_defaults_concern, change=_default)
"""Suspends new jobs, and gates new pods, that name a queue."""


def validate_jobs(request: AdmissionRequest, policies: Decision) -> Decision:
    """Say what speaks against a job or pod that is created or changed."""
    if (
        request.operation not in {"CREATE", "UPDATE"}
        or request.sub_resource
        or not holds(request.kind.group, request.kind.kind)
        or not (QUEUE_WORDS in bytes(request.object) or QUEUE_WORDS in bytes(request.old_object))
    ):
        return ALLOWED
    mistakes = _mistakes(request, policies)
    return Decision(denials=mistakes) if mistakes else ALLOWED


def _mistakes(request: AdmissionRequest, policies: Decision) -> tuple[Denial, ...]:
    obj, old = object_of(request, policies), decode_object(request.old_object)
    try:
        errors = validate_job(obj, old, group=request.kind.group, kind=request.kind.kind)
    except MisshapenError as error:
        return (Denial(policy=SPEAKER, message=str(error)),)
    return tuple(Denial(policy=SPEAKER, message=e.words, path=e.path) for e in errors)

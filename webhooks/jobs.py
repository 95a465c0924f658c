"""Jobs at the door: held when they are submitted to a queue, refused when that cannot work."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import msgspec

from policyd.api.admission import AdmissionRequest, decode_object
from policyd.api.kueue.names import GROUP, MANAGED, QUEUE_NAME
from policyd.api.meta import Json
from policyd.engine.model.decision import ALLOWED, Decision, Denial
from policyd.engine.objects.match import labels_of
from policyd.engine.objects.pods import PodError, claims
from policyd.jobs.integrations import EVERYTHING, POD, Integrations
from policyd.jobs.kinds.registry import find_parent
from policyd.jobs.pods import SUSPENDING_PARENT
from policyd.jobs.rules.defaults import (
    default_on_create,
    default_parent,
    holds,
    is_held_twice,
    is_prepared,
)
from policyd.jobs.rules.hidden import hidden_from_queue
from policyd.jobs.rules.leaving import growth
from policyd.jobs.rules.submission import annotations_of
from policyd.jobs.rules.surroundings import JobContext
from policyd.jobs.rules.validation import validate_job
from policyd.jobs.shape import MisshapenError
from policyd.patch.draft import Draft
from webhooks.authors import NOBODY_KNOWN, Authors
from webhooks.decisions import Mutator, object_of
from webhooks.defaults import DefaultClass
from webhooks.external_data.inquiries import PendingError
from webhooks.external_data.owners import Owners

QUEUE_WORDS = b"kueue.x-k8s.io"
"""What stands in an object that has to do with a queue. The API server never escapes a letter of
it, so that looking for it spares most objects the decoding."""

RESIZE = "resize"
"""The subresource by which what a pod asks for is changed while it runs."""

_WRITES = frozenset({"CREATE", "UPDATE"})
_LOOKED_AT = frozenset({"", RESIZE})

SPEAKER = "queue"
"""Who refuses, in the place of a policy's name."""

HELD_TWICE = f"{SPEAKER}: `{MANAGED}` on a pod whose owner is queued: it may be held for both"
"""What the user of such a pod is told, who is let in."""

CLAIMS_GATE = "KueueDRARejectWorkloadsWhenDRADisabled"
CLAIMS_WAIT = (
    f"{SPEAKER}: no quota counts the devices of `resourceClaims`, so that it is held for good: ask"
    " for them by resource in `resources.limits`, such as `nvidia.com/gpu: 1`"
)
"""What the user is told of what the controller will not let go, and says the same of."""

NO_CLASS = DefaultClass()
"""Where jobs that name no priority class get none."""


def nowhere(_namespace: str) -> bool:
    """Say that no namespace has a default queue."""
    return False


def job_defaults(
    integrations: Integrations = EVERYTHING,
    *,
    gives_queue: Callable[[str], bool] = nowhere,
    classed: DefaultClass = NO_CLASS,
    owners: Owners | None = None,
) -> Mutator:
    """Return what suspends new jobs that queue, gates new pods, and marks what makes such pods.

    Args:
        integrations: Which kinds of jobs queue, and where.
        gives_queue: Tells whether a namespace has a queue for new jobs that name none.
        classed: Whether there is a priority class for new jobs that name none.
        owners: Looks owners up, where everybody's word for them is taken.
    """
    around = JobContext(integrations=integrations)

    def concerns(request: AdmissionRequest, decision: Decision) -> bool:
        kind = request.kind
        on_change = request.operation == "UPDATE" and find_parent(kind.group, kind.kind)
        return (
            bool(request.operation == "CREATE" or on_change)
            and not request.sub_resource
            and holds(kind.group, kind.kind, integrations)
            and (
                integrations.manages_all
                or is_prepared(kind.group, kind.kind)
                or _may_queue(request, decision)
                or (not on_change and gives_queue(request.namespace))
            )
        )

    def change(request: AdmissionRequest, draft: Draft) -> None:
        group, kind = request.kind.group, request.kind.kind
        if request.operation == "CREATE":
            given = replace(
                _asked(around, request, owners),
                default_queue=gives_queue(request.namespace),
                default_class=classed.there,
            )
            default_on_create(draft, group=group, kind=kind, around=given)
        else:
            default_parent(draft, group=group, kind=kind, around=_asked(around, request, owners))

    return Mutator(name=SPEAKER, concerns=concerns, change=change)


def _asked(around: JobContext, request: AdmissionRequest, owners: Owners | None) -> JobContext:
    """Add who asks, what the object was, and who can tell whether its owner is there."""
    account, before = request.user_info.username, decode_object(request.old_object)
    if owners is not None:
        around = replace(around, is_there=partial(owners.is_there, request.namespace))
    return replace(around, account=account, before=before)


def _may_queue(request: AdmissionRequest, decision: Decision) -> bool:
    obj = decision.object
    if obj is not msgspec.UNSET:
        return QUEUE_NAME in labels_of(obj) or SUSPENDING_PARENT in annotations_of(obj)
    return QUEUE_WORDS in bytes(request.object)


JOB_DEFAULTS = job_defaults()
"""What is done for all kinds that are known, where they name a queue."""


def validate_jobs(  # noqa: PLR0913 - what counts beside the request
    request: AdmissionRequest,
    policies: Decision,
    *,
    integrations: Integrations = EVERYTHING,
    gives_queue: Callable[[str], bool] = nowhere,
    authors: Authors = NOBODY_KNOWN,
    owners: Owners | None = None,
) -> Decision:
    """Say what speaks against a job or pod that is created or changed, or a pod that is resized.

    Warn of what names a queue, and is of a kind that is not held for any.
    """
    if request.operation not in _WRITES or request.sub_resource not in _LOOKED_AT:
        return ALLOWED
    if not holds(request.kind.group, request.kind.kind, integrations):
        return warn_of_hidden(request, policies, integrations=integrations)
    if not (
        integrations.manages_all
        or QUEUE_WORDS in bytes(request.object)
        or QUEUE_WORDS in bytes(request.old_object)
    ):
        return ALLOWED
    around = JobContext(
        integrations=integrations,
        default_queue=gives_queue(request.namespace),
        author=authors.author_of(request.user_info),
    )
    try:
        return _looked_at(request, policies, _asked(around, request, owners))
    except PendingError:
        return ALLOWED  # thrown away: it is decided again once the owner was looked up


def warn_of_hidden(
    request: AdmissionRequest, policies: Decision, *, integrations: Integrations = EVERYTHING
) -> Decision:
    """Say that an object names a queue and is of a kind that is not held for any."""
    kind = request.kind
    if (
        request.sub_resource
        or kind.group == GROUP
        or QUEUE_WORDS not in bytes(request.object)
        or holds(kind.group, kind.kind, integrations)
    ):
        return ALLOWED
    obj = object_of(request, policies)
    said = hidden_from_queue(obj, group=kind.group, kind=kind.kind, integrations=integrations)
    return Decision(warnings=(f"{SPEAKER}: {said}",)) if said else ALLOWED


def _looked_at(request: AdmissionRequest, policies: Decision, around: JobContext) -> Decision:
    obj, old = object_of(request, policies), around.before
    group, kind = request.kind.group, request.kind.kind
    try:
        if request.sub_resource:
            errors = tuple(growth(obj, old, around))
        else:
            errors = validate_job(obj, old, group=group, kind=kind, around=around)
    except MisshapenError as error:
        return Decision(denials=(Denial(policy=SPEAKER, message=str(error)),))
    denials = tuple(
        Denial(policy=SPEAKER, message=e.words, path=e.path, reason="Forbidden") for e in errors
    )
    warnings = tuple(_warnings(request, obj, around))
    return Decision(denials=denials, warnings=warnings) if denials or warnings else ALLOWED


def _warnings(request: AdmissionRequest, obj: Json, around: JobContext) -> Iterator[str]:
    if (request.kind.group, request.kind.kind) == POD and is_held_twice(obj, around):
        yield HELD_TWICE
    if (
        request.operation == "CREATE"
        and CLAIMS_GATE not in around.integrations.off
        and (around.integrations.manages_all or labels_of(obj).get(QUEUE_NAME))
        and _claims(obj)
    ):
        yield CLAIMS_WAIT


def _claims(obj: Json) -> int:
    try:
        return claims(obj)
    except PodError:  # the API server says so itself
        return 0

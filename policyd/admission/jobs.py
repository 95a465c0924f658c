"""Queued jobs at admission: suspended or gated when created, refused when they cannot work."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from policyd.admission.decisions import SPEAKER, PendingError, changed, object_of
from policyd.admission.submissions import Submission, submission_of
from policyd.api.admission import AdmissionRequest, UserInfo, decode_object
from policyd.api.kueue.names import GROUP, MANAGED, QUEUE_NAME
from policyd.api.meta import Json
from policyd.engine.model.decision import ALLOWED, Decision, Denial
from policyd.engine.objects.match import labels_of
from policyd.engine.objects.pods import PodError, claims, gpu_parts
from policyd.jobs.integrations import DEVICES_GATE, EVERYTHING, POD, Integrations
from policyd.jobs.pods import SUSPENDING_PARENT
from policyd.jobs.rules.defaults import (
    default_on_create,
    default_parent,
    holds,
    is_held_twice,
    is_marked_on_change,
    is_prepared,
)
from policyd.jobs.rules.hidden import hidden_from_queue
from policyd.jobs.rules.imported import ImportedObject, imported_object
from policyd.jobs.rules.leaving import growth
from policyd.jobs.rules.submission import annotations_of
from policyd.jobs.rules.surroundings import JobContext, Requester, believed, kept
from policyd.jobs.rules.validation import validate_job
from policyd.jobs.shape import MisshapenError
from policyd.patch.draft import Draft

QUEUE_WORDS = b"kueue.x-k8s.io"
"""Text in every object that concerns a queue. The API server never escapes a letter of it, so that
most objects need not be decoded."""

RESIZE = "resize"
"""The subresource that changes the resource requests of a running pod."""

_WRITES = frozenset({"CREATE", "UPDATE"})
_LOOKED_AT = frozenset({"", RESIZE})

HELD_TWICE = f"{SPEAKER}: `{MANAGED}` on a pod whose owner is queued: it may be held for both"
"""The warning for such a pod, which is allowed."""

CLAIMS_GATE = "KueueDRARejectWorkloadsWhenDRADisabled"
CLAIMS_WAIT = (
    f"{SPEAKER}: no quota counts the devices of `resourceClaims`, so that it is held for good: ask"
    " for them by resource in `resources.limits`, such as `nvidia.com/gpu: 1`, or have the"
    " administrator map their device class in `resources.deviceClassMappings`"
)
"""The warning for such a pod; the controller, which never starts it, reports the same."""

GPU_WORD = b'"gpu-'
NO_PARTS = (
    f"{SPEAKER}: the annotations `gpu-fraction` and `gpu-memory` have no effect on the quota, and"
    " the queue gives no part of a GPU, unless the administrator sets `resources.gpuFractions`; for"
    " whole GPUs, request `nvidia.com/gpu` in `resources.limits`"
)
"""The warning for a pod that requests a part of a GPU where none are given."""


class Foresee(Protocol):
    """Says what new jobs can expect."""

    def __call__(self, submitted: Callable[[], Submission | None], *, dry_run: bool) -> str:
        """Say what the job can expect that a call returns; "" if that is not known."""
        ...


HasQuota = Callable[[ImportedObject], bool]
"""Returns whether a Workload has quota for an object that comes into its queue. Raises a
PendingError if that is to be looked up first."""

OwnerExists = Callable[[str, Mapping[str, Any]], bool]
"""Returns whether the owner that an object of a namespace names exists. Raises a PendingError if
that is to be looked up first."""

_ACCOUNTS: Final = "system:serviceaccount"
_SYSTEM: Final = f"{_ACCOUNTS}:kube-system:"
_SYSTEM_USERS: Final = frozenset({"system:kube-controller-manager", "system:kube-scheduler"})
"""The users of Kubernetes' own processes where they have no service accounts."""


class DefaultClass:
    """Whether there is a WorkloadPriorityClass named `default`: jobs that name none get it."""

    def __init__(self) -> None:
        self.there = False


class Requesters:
    """Tells the kind of the user of a request: the queue, Kubernetes, or any other.

    Args:
        own_namespace: The namespace of policyd's own accounts.
        starters: Other users and groups that may start pending jobs.
    """

    def __init__(self, own_namespace: str, starters: Iterable[str] = ()) -> None:
        self._own = f"{_ACCOUNTS}:{own_namespace}:"
        self._starters = {f"{_ACCOUNTS}s:{own_namespace}", *starters}

    def requester_of(self, user: UserInfo) -> Requester:
        """Return which kind of requester a user is."""
        groups, name = user.groups, user.username
        if (
            name.startswith(self._own)
            or name in self._starters
            or not self._starters.isdisjoint(groups)
        ):
            return "queue"
        return "system" if name in _SYSTEM_USERS or name.startswith(_SYSTEM) else "user"

    def include(self, username: str) -> None:
        """Let one more user start pending jobs."""
        self._starters.add(username)


NO_CLASS: Final = DefaultClass()
"""Where jobs that name no priority class get none."""

NO_AUTHORS_KNOWN: Final = Requesters("policyd")
"""The default: only the accounts of policyd may start pending jobs."""


def nowhere(_namespace: str) -> bool:
    """Say that no namespace has a default queue."""
    return False


def keeps_all(_namespace: str, _queue: str) -> bool:
    """Say that the jobs of every queue stay in their cluster."""
    return False


def everywhere(_namespace: str) -> bool:
    """Say that the jobs of every namespace queue."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAdmission:
    """Decides on jobs that queue, and on their pods.

    Attributes:
        integrations: Which kinds of jobs queue.
        covers: Tells whether the jobs of a namespace queue: a policy may have the API server send
            those of others, too.
        gives_queue: Tells whether a namespace has a queue for new jobs that name none.
        default_class: Whether there is a priority class for new jobs that name none.
        sends_away: Tells whether the jobs of a LocalQueue, by namespace and name, go to other
            clusters.
        requesters: Tells which users may start pending jobs.
        owner_exists: Looks owners up, where any user's word for them is taken.
        foresee: Says what a new job can expect; None to say nothing.
        has_quota: Looks up whether what runs has quota in the queue that it comes into; None if
            that cannot be looked up.
    """

    integrations: Integrations = EVERYTHING
    covers: Callable[[str], bool] = everywhere
    gives_queue: Callable[[str], bool] = nowhere
    default_class: DefaultClass = NO_CLASS
    sends_away: Callable[[str, str], bool] = keeps_all
    requesters: Requesters = NO_AUTHORS_KNOWN
    owner_exists: OwnerExists | None = None
    foresee: Foresee | None = None
    has_quota: HasQuota | None = None

    def change(self, request: AdmissionRequest, decision: Decision) -> Decision:
        """Suspend new jobs that queue, gate new pods, and mark kinds that create such pods."""
        kind = request.kind
        if request.sub_resource or not holds(kind.group, kind.kind, self.integrations):
            return decision
        if decision.operations and decision.object is msgspec.UNSET:
            decision = replace(decision, object=object_of(request, decision))
        if decision.denials or not self._may_change(request, decision):
            return decision
        if not self.covers(request.namespace):
            return decision
        return changed(request, decision, self.default)

    def default(self, request: AdmissionRequest, draft: Draft) -> None:
        """Set the defaults of an object; suspend or gate a queued one.

        Raises:
            PolicydError: If its shape does not allow that.
        """
        group, kind = request.kind.group, request.kind.kind
        if request.operation == "CREATE":
            context = self._context(request, defaults=True)
            default_on_create(draft, group=group, kind=kind, surroundings=context)
        else:
            context = self._context(request, defaults=False)
            default_parent(draft, group=group, kind=kind, surroundings=context)

    def check(self, request: AdmissionRequest, decision: Decision) -> Decision:
        """Return the objections to a job or pod that is written, or a pod that is resized.

        Warn of an object that names a queue although its kind does not queue.
        """
        if request.operation not in _WRITES or request.sub_resource not in _LOOKED_AT:
            return ALLOWED
        if not self.covers(request.namespace):
            return ALLOWED
        integrations = self.integrations
        if not holds(request.kind.group, request.kind.kind, integrations):
            return warn_of_hidden(request, decision, integrations=integrations)
        if not (
            integrations.manages_all
            or QUEUE_WORDS in bytes(request.object)
            or QUEUE_WORDS in bytes(request.old_object)
        ):
            return ALLOWED
        requester = self.requesters.requester_of(request.user_info)
        context = self._context(request, defaults=True, requester=requester)
        try:
            found = _with_job_rules(request, decision, context)
            if found.denials and self._is_imported(request, decision, context):
                found = _with_job_rules(request, decision, replace(context, imported=True))
            return found if decision.denials else self._with_verdict(request, decision, found)
        except PendingError:
            return ALLOWED  # thrown away: it is decided again once the owner was looked up

    def _is_imported(
        self, request: AdmissionRequest, decision: Decision, context: JobContext
    ) -> bool:
        """Tell whether an object that was in no queue comes into one where it has quota."""
        if self.has_quota is None or request.operation != "UPDATE" or request.sub_resource:
            return False
        kind = request.kind
        coming = imported_object(
            object_of(request, decision), context.before, group=kind.group, kind=kind.kind
        )
        return coming is not None and self.has_quota(coming)

    def _with_verdict(
        self, request: AdmissionRequest, policies: Decision, found: Decision
    ) -> Decision:
        """Return a decision on a new job with a warning of what the job can expect."""
        if self.foresee is None or request.operation != "CREATE" or found.denials:
            return found
        obj, kind = object_of(request, policies), request.kind
        context = self._context(request, defaults=True)
        verdict = self.foresee(
            partial(submission_of, obj, kind.group, kind.kind, context, request.namespace),
            dry_run=request.dry_run,
        )
        return (
            replace(found, warnings=(*found.warnings, f"{SPEAKER}: {verdict}"))
            if verdict
            else found
        )

    def _may_change(self, request: AdmissionRequest, decision: Decision) -> bool:
        """Tell by the envelope and the decision of the policies, without decoding the object."""
        group, kind = request.kind.group, request.kind.kind
        creates = request.operation == "CREATE"
        changes = request.operation == "UPDATE" and is_marked_on_change(group, kind)
        if not (creates or changes):
            return False
        return (
            self.integrations.manages_all
            or is_prepared(group, kind)
            or _may_queue(request, decision)
            or (creates and self.gives_queue(request.namespace))
        )

    def _context(
        self, request: AdmissionRequest, *, defaults: bool, requester: Requester = "queue"
    ) -> JobContext:
        """Return the context of the object."""
        is_there, namespace = self.owner_exists, request.namespace
        return JobContext(
            integrations=self.integrations,
            account=request.user_info.username,
            requester=requester,
            before=decode_object(request.old_object),
            default_queue=defaults and self.gives_queue(namespace),
            default_class=defaults and self.default_class.there,
            sent_away=partial(self.sends_away, namespace) if defaults else kept,
            is_there=believed if is_there is None else partial(is_there, namespace),
        )


def _may_queue(request: AdmissionRequest, decision: Decision) -> bool:
    obj = decision.object
    if obj is not msgspec.UNSET:
        return QUEUE_NAME in labels_of(obj) or SUSPENDING_PARENT in annotations_of(obj)
    return QUEUE_WORDS in bytes(request.object)


def warn_of_hidden(
    request: AdmissionRequest, policies: Decision, *, integrations: Integrations = EVERYTHING
) -> Decision:
    """Warn of an object that names a queue although its kind is not held for any."""
    kind = request.kind
    if (
        request.sub_resource
        or kind.group == GROUP
        or QUEUE_WORDS not in bytes(request.object)
        or holds(kind.group, kind.kind, integrations)
    ):
        return ALLOWED
    obj = object_of(request, policies)
    message = hidden_from_queue(obj, group=kind.group, kind=kind.kind, integrations=integrations)
    return Decision(warnings=(f"{SPEAKER}: {message}",)) if message else ALLOWED


def _with_job_rules(
    request: AdmissionRequest, policies: Decision, surroundings: JobContext
) -> Decision:
    obj, old = object_of(request, policies), surroundings.before
    group, kind = request.kind.group, request.kind.kind
    try:
        if request.sub_resource:
            errors = tuple(growth(obj, old, surroundings))
        else:
            errors = validate_job(obj, old, group=group, kind=kind, surroundings=surroundings)
    except MisshapenError as error:
        return Decision(denials=(Denial(policy=SPEAKER, message=str(error)),))
    denials = tuple(
        Denial(policy=SPEAKER, message=e.words, path=e.path, reason="Forbidden") for e in errors
    )
    warnings = tuple(_warnings(request, obj, surroundings))
    return Decision(denials=denials, warnings=warnings) if denials or warnings else ALLOWED


def _warnings(request: AdmissionRequest, obj: Json, surroundings: JobContext) -> Iterator[str]:
    if (request.kind.group, request.kind.kind) == POD and is_held_twice(obj, surroundings):
        yield HELD_TWICE
    integrations = surroundings.integrations
    if request.operation != "CREATE" or not (
        integrations.manages_all or labels_of(obj).get(QUEUE_NAME)
    ):
        return
    if _holds_claims(integrations) and _count(claims, obj):
        yield CLAIMS_WAIT
    if (
        not integrations.gpu_fractions
        and GPU_WORD in bytes(request.object)
        and _count(gpu_parts, obj)
    ):
        yield NO_PARTS


def _holds_claims(integrations: Integrations) -> bool:
    """Tell whether jobs with claims are held for good: no quota counts them, and it should."""
    if integrations.counts_devices:
        return False
    return CLAIMS_GATE not in integrations.off or DEVICES_GATE not in integrations.off


def _count(number_in: Callable[[Json], int], obj: Json) -> int:
    try:
        return number_in(obj)
    except PodError:  # the API server says so itself
        return 0

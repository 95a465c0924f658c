"""The types of an admission handler, and how the decisions of its parts become one."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec

from policyd.api.admission import AdmissionRequest, decode_object
from policyd.api.meta import Json
from policyd.engine.model.deadline import OutOfTime
from policyd.engine.model.decision import ALLOWED, Decision, Denial
from policyd.errors import PolicydError
from policyd.patch.draft import Draft
from policyd.patch.json_patch import apply_json_patch

Decide = Callable[[AdmissionRequest, OutOfTime], Decision]
"""Decides on a request, as far as it can before it is out of time."""

Prepare = Callable[[AdmissionRequest], Awaitable[None]]
"""Waits for the data that a decision on a request needs."""

Observe = Callable[[AdmissionRequest, Decision], None]
"""Records the decision on a request; the answer waits for it."""

WithExternalData = Callable[[Decide, AdmissionRequest, OutOfTime], Awaitable[Decision]]
"""Decides on a request; where deciding lacks external data, fetches it and decides again."""

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs work that only computes where it delays no other review."""

SPEAKER = "queue"
"""The name in the place of a policy's in denials by jobs and queues."""


class PendingError(PolicydError):
    """External data is to be fetched first: the request will be decided again."""


def object_of(request: AdmissionRequest, decision: Decision) -> Json:
    """Return the object as a decision leaves it, decoded only if the policies did not.

    Raises:
        ReviewError: If it cannot be decoded.
    """
    if decision.object is not msgspec.UNSET:
        return decision.object
    return apply_json_patch(decode_object(request.object), list(decision.operations))


def changed(
    request: AdmissionRequest, decision: Decision, change: Callable[[AdmissionRequest, Draft], None]
) -> Decision:
    """Return a decision that allows, with further changes of the object it leaves.

    Args:
        request: The request.
        decision: The decision so far.
        change: Changes the object; doing it twice changes nothing. A PolicydError that it raises
            denies the request.
    """
    draft = Draft(object_of(request, decision))
    try:
        change(request, draft)
    except PolicydError as error:
        denial = Denial(policy=SPEAKER, message=str(error))
        return replace(decision, denials=(denial,), operations=())
    changes = decision.operations + tuple(draft.operations)
    return replace(decision, operations=changes, object=draft.object)


def combined(*decisions: Decision) -> Decision:
    """Return one decision with all that several say against a request."""
    effective = [decision for decision in decisions if decision is not ALLOWED]
    if len(effective) <= 1:
        return effective[0] if effective else ALLOWED
    annotations = [decision.audit_annotations.items() for decision in effective]
    return replace(
        effective[0],
        denials=tuple(denial for d in effective for denial in d.denials),
        warnings=tuple(warning for d in effective for warning in d.warnings),
        audit_annotations=dict(pair for pairs in annotations for pair in pairs),
        matched=tuple(name for d in effective for name in d.matched),
        changed=tuple(name for d in effective for name in d.changed),
        failures=tuple(failure for d in effective for failure in d.failures),
        objections=tuple(objection for d in effective for objection in d.objections),
    )

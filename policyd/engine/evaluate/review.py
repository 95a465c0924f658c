"""Write a decision as an AdmissionReview response."""

import json
from collections.abc import Sequence

import msgspec

from policyd.api.admission import (
    AdmissionRequest,
    AdmissionResponse,
    AnsweredReview,
    RefusalStatus,
    ReviewError,
    StatusCause,
    StatusDetails,
    decode_object,
)
from policyd.api.meta import cut
from policyd.engine.model.compiled import VALIDATING
from policyd.engine.model.decision import ALLOWED, Decision, Denial
from policyd.engine.objects.workloads import value_at

LONGEST_NAME_BYTES = 300
"""The length of a name in a response, at most: the API server checks names later."""

LONGEST_MESSAGE_BYTES = 7 * 1024
"""The length of the message of a refusal, at most: it may quote names of any length."""

_LONGEST_KEY = 63
"""Letters that a key of an audit annotation may have."""

_ENCODER = msgspec.json.Encoder()


def answer_review(request: AdmissionRequest, decision: Decision) -> bytes:
    """Answer the review of a request with the decision."""
    return AnsweredReview.encoded(respond(request, decision))


def respond(request: AdmissionRequest, decision: Decision) -> AdmissionResponse:
    """Put a decision in the API server's words; a refusal carries no patch."""
    if decision is ALLOWED:
        return AdmissionResponse(uid=request.uid, allowed=True)
    allowed = not decision.denials
    patched = allowed and decision.operations
    return AdmissionResponse(
        uid=request.uid,
        allowed=allowed,
        status=None if allowed else refusal(request, decision),
        patch=_ENCODER.encode(decision.operations) if patched else None,
        patch_type="JSONPatch" if patched else None,
        audit_annotations={
            _wire_key(key): text for key, text in decision.audit_annotations.items()
        },
        warnings=decision.warnings,
    )


def _wire_key(key: str) -> str:
    """Write a key as a webhook may: the API server puts its name and a slash before it."""
    return key.replace("/", ".")[:_LONGEST_KEY].rstrip("-.")


def refusal(request: AdmissionRequest, decision: Decision) -> RefusalStatus:
    """Say why a request is refused: all denials, the first one's code and reason."""
    first = decision.denials[0]
    lines = "\n".join(map(str, decision.denials))
    more = f"\n{decision.further} more objections are left out" if decision.further else ""
    message = cut(lines, LONGEST_MESSAGE_BYTES - len(more), end="...") + more
    return RefusalStatus(
        code=first.code,
        reason=first.reason,
        message=f"{_forbidden(request)}{message}" if first.kind == VALIDATING else message,
        details=None if more else _details(request, decision.denials),
    )


def _forbidden(request: AdmissionRequest) -> str:
    """Begin a refusal as the API server does those of its own policies: `pods "a" is forbidden: `.

    An object whose name is generated is named by its prefix.
    """
    resource = request.request_resource or request.resource
    group = f".{resource.group}" if resource.group else ""
    name = json.dumps(_short(request.name or _beginning(request)), ensure_ascii=False)
    return f"{resource.resource}{group} {name} is forbidden: "


def _short(name: str) -> str:
    """Return a name, which the API server looks at only after it has asked, as far as it may go."""
    return cut(name, LONGEST_NAME_BYTES, end="...")


def _beginning(request: AdmissionRequest) -> str:
    try:
        metadata = value_at(decode_object(request.object), ("metadata",))
    except ReviewError:
        metadata = None
    given = metadata if isinstance(metadata, dict) else {}
    return str(given.get("name") or given.get("generateName") or "Unknown")


def _details(request: AdmissionRequest, denials: Sequence[Denial]) -> StatusDetails | None:
    """Name the fields at fault, if that is all there is to say, and no path or advice is too long.

    Of an invalid object, kubectl prints the message only if there are no details; else it prints
    the field of each cause, and a colon after an empty field.
    """
    length = sum(len(denial.path) + len(denial.advice) for denial in denials)
    if not all(denial.path for denial in denials) or length > LONGEST_MESSAGE_BYTES:
        return None
    causes = tuple(
        StatusCause(
            reason=denial.policy, message=f"{denial.policy}: {denial.advice}", field=denial.path
        )
        for denial in denials
    )
    return StatusDetails(name=_short(request.name), kind=request.kind.kind, causes=causes)

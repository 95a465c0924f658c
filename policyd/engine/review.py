"""A decision in the API server's words: the body of the answer to a webhook call."""

import base64
from collections.abc import Sequence

import msgspec

from policyd.api.admission import (
    AdmissionRequest,
    AdmissionResponse,
    AnsweredReview,
    Status,
    StatusCause,
    StatusDetails,
)
from policyd.engine.decision import ALLOWED, Decision, Denial

_ENCODER = msgspec.json.Encoder()


def answer_review(request: AdmissionRequest, decision: Decision) -> bytes:
    """Answer the review of a request with the decision."""
    return _ENCODER.encode(
        AnsweredReview(
            api_version="admission.k8s.io/v1",
            kind="AdmissionReview",
            response=respond(request, decision),
        )
    )


def respond(request: AdmissionRequest, decision: Decision) -> AdmissionResponse:
    """Put a decision in the API server's words; a refusal carries no patch."""
    if decision is ALLOWED:
        return AdmissionResponse(uid=request.uid, allowed=True)
    patched = decision.allowed and decision.operations
    return AdmissionResponse(
        uid=request.uid,
        allowed=decision.allowed,
        status=None if decision.allowed else refusal(request, decision),
        patch=base64.b64encode(_ENCODER.encode(decision.operations)).decode() if patched else None,
        patch_type="JSONPatch" if patched else None,
        audit_annotations=dict(decision.audit_annotations),
        warnings=decision.warnings,
    )


def refusal(request: AdmissionRequest, decision: Decision) -> Status:
    """Say why a request is refused: all denials, the first one's code and reason."""
    first = decision.denials[0]
    return Status(
        code=first.code,
        reason=first.reason,
        message="\n".join(map(str, decision.denials)),
        details=_details(request, decision.denials),
    )


def _details(request: AdmissionRequest, denials: Sequence[Denial]) -> StatusDetails | None:
    """Name the fields at fault, if that is all there is to say.

    Of an invalid object, kubectl prints the message only if there are no details; else it prints
    the field of each cause, and would put a colon after nothing.
    """
    if not all(denial.path for denial in denials):
        return None
    causes = tuple(
        StatusCause(
            reason=denial.policy, message=f"{denial.policy}: {denial.advice}", field=denial.path
        )
        for denial in denials
    )
    return StatusDetails(name=request.name, kind=request.kind.kind, causes=causes)

"""A decision in the API server's words: the body of the answer to a webhook call."""

import base64

import msgspec

from policyd.api.admission import (
    AdmissionRequest,
    AdmissionResponse,
    AnsweredReview,
    Status,
    StatusCause,
    StatusDetails,
)
from policyd.engine.decision import ALLOWED, Decision

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
    causes = tuple(
        StatusCause(reason=denial.policy, message=str(denial), field=denial.path)
        for denial in decision.denials
    )
    return Status(
        code=first.code,
        reason=first.reason,
        message="\n".join(map(str, decision.denials)),
        details=StatusDetails(name=request.name, kind=request.kind.kind, causes=causes),
    )

"""Kinds that are questions: they are answered, and not kept."""

from policyd.local.apiserver.requests import ApiRequest, ApiUser, decode
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.status import Object
from policyd.local.apiserver.wire.responses import ServerResponse

EVERYTHING: Object = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}
"""What anybody may do: there is no authorization here."""


async def answer_question(_state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer POST on a review: who somebody is, or whether he may (he may)."""
    given = decode(request.body, request.media_type) if request.body else {}
    kind = {"kind": request.served.kind, "apiVersion": request.served.api_version}
    status = _status(request.served.kind, request.user)
    answer = {**given, **kind, "metadata": given.get("metadata", {}), "status": status}
    return ServerResponse(body=answer, code=201)


def _status(kind: str, user: ApiUser) -> Object:
    match kind:
        case "SelfSubjectReview":
            return {"userInfo": {"username": user.name, "groups": list(user.groups)}}
        case "SelfSubjectRulesReview":
            return EVERYTHING
        case _:
            return {"allowed": True}

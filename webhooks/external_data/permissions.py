"""Permissions of users, for policies with `authorizer`, or Kyverno's `resource.Post`.

The API server is asked.
"""

from functools import partial
from typing import Any, Final

import msgspec

from policyd.admission.decisions import PendingError
from policyd.api.admission import UserInfo
from policyd.api.meta import Json, Wire
from policyd.cel import CelError
from policyd.cel.lib.authorizer import Authorization, AuthorizedAction
from policyd.engine.evaluate.patches import to_json
from policyd.errors import PolicydError
from policyd.kube.client import Writer
from policyd.kube.resources import SUBJECT_ACCESS_REVIEWS
from webhooks.external_data.lookups import (
    ExternalAnswer,
    ExternalLookups,
    UnansweredError,
)

FRESH_SECONDS: Final = 5.0
"""How long an answer counts: the pods of one job ask once, and a right that was taken is gone while
a review that took it still reads it."""

_PENDING: Final = Authorization(error="not answered yet")


class AccessReviewError(PolicydError):
    """A review is not sent."""


class _Status(Wire, frozen=True):
    allowed: bool = False
    reason: str = ""
    evaluation_error: str = ""


class _Answered(Wire, frozen=True):
    status: _Status = _Status()


class Permissions:
    """Answers of the API server about permissions.

    Args of the constructor:
        writer: The API server.
        lookups: Fetches the data of reviews.
    """

    def __init__(self, writer: Writer, lookups: ExternalLookups) -> None:
        self._writer = writer
        self._lookups = lookups

    def authorize(self, user: UserInfo, permission: AuthorizedAction) -> Authorization:
        """Say whether a user may do something, or that it is to be asked first.

        Raises:
            CelError: If it was asked, and there is no answer, or it is one question too many.
        """
        asked = question(user, permission)
        key = b"access" + msgspec.json.encode(asked)
        try:
            answer = self._lookups.answer(key, partial(self._ask, asked))
        except PendingError:
            return _PENDING
        except UnansweredError as error:
            raise CelError(f"the authorizer did not answer: {error}") from error
        assert isinstance(answer, Authorization), "questions of this kind are asked here only"
        return answer

    def review(self, body: Json) -> Json:
        """Return a SubjectAccessReview with the answer of the API server.

        Raises:
            ReviewError: If it asks nothing.
            PendingError: If it is to be asked first.
            UnansweredError: If it was asked, and there is no answer.
        """
        try:
            spec = to_json(body).get("spec")
            key = b"review" + msgspec.json.encode(spec)
        except (AttributeError, PolicydError, TypeError, ValueError) as error:
            raise AccessReviewError(f"the SubjectAccessReview is not JSON: {error}") from error
        if not isinstance(spec, dict):
            raise AccessReviewError("a SubjectAccessReview needs a `spec`")
        return self._lookups.answer(key, partial(self._review, spec, len(key)))

    async def _ask(self, asked: Json) -> ExternalAnswer:
        found = await self._writer.create(SUBJECT_ACCESS_REVIEWS, {"spec": asked}, into=_Answered)
        status = found.status
        answer = Authorization(status.allowed, status.reason, status.evaluation_error)
        return ExternalAnswer(answer, FRESH_SECONDS)

    async def _review(self, spec: Json, size: int) -> ExternalAnswer:
        found = await self._writer.create(
            SUBJECT_ACCESS_REVIEWS, {"spec": spec}, into=dict[str, Any]
        )
        kind = SUBJECT_ACCESS_REVIEWS
        named = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}}
        answer = {**named, "spec": spec, "status": found.get("status") or {}}
        return ExternalAnswer(answer, FRESH_SECONDS, size)


def question(user: UserInfo, permission: AuthorizedAction) -> Json:
    """Return the spec of the SubjectAccessReview, without empty fields."""
    return _given(_user_spec(user, permission.service_account) | _attributes_spec(permission))


def _user_spec(user: UserInfo, service_account: str) -> dict[str, Json]:
    if service_account:
        namespace, _, name = service_account.partition("/")
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        return {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
    return {
        "user": user.username,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }


def _attributes_spec(permission: AuthorizedAction) -> dict[str, Json]:
    if permission.path:
        path = {"path": permission.path, "verb": permission.verb}
        return {"nonResourceAttributes": path}
    names = ("namespace", "verb", "group", "resource", "subresource", "name")
    asked = {name: getattr(permission, name) for name in names} | {"version": "*"}
    if permission.field_selector:
        asked["fieldSelector"] = {"rawSelector": permission.field_selector}
    if permission.label_selector:
        asked["labelSelector"] = {"rawSelector": permission.label_selector}
    return {"resourceAttributes": _given(asked)}


def _given(fields: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if value}

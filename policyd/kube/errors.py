"""The errors that the API server, or the connection to it, can return.

No exception of the HTTP library leaves this package: a caller sees one tree, and the original as
the cause. The classes follow the `reason` of the server's Status first and the HTTP code second,
since one code has several reasons (409: a name that is taken, or a version that is outdated).
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from policyd.api.meta import Wire, cut
from policyd.errors import PolicydError

LONGEST_MESSAGE: Final = 16 * 1024
"""Bytes of a server's message, which goes into logs and conditions."""


class ApiError(PolicydError):
    """A request to the API server did not succeed.

    `code` is the HTTP status, 0 if there was no answer; `reason` is the server's CamelCase word.
    """

    code: int = 0
    reason: str = ""
    retry_after: float | None = None
    """Seconds that the server asks to wait before the next try."""

    @property
    def refused(self) -> bool:
        """Whether the server has refused the request; else it may still carry it out."""
        return 400 <= self.code < 500


class InvalidNameError(PolicydError, ValueError):
    """A name would lead to another path of the API server, so it is not asked."""


class BadRequestError(ApiError):
    """The server does not understand the request."""


class UnauthorizedError(ApiError):
    """The server does not accept the credentials."""


class CredentialsError(UnauthorizedError):
    """There are no credentials to send: a plugin failed, or a provider did not answer."""


class ForbiddenError(ApiError):
    """The credentials do not allow the request, or admission or a quota refused it."""


class NotFoundError(ApiError):
    """The object or the resource does not exist."""


class AlreadyExistsError(ApiError):
    """The name is taken."""


class ConflictError(ApiError):
    """The object changed since it was read, or a precondition does not hold."""


class GoneError(ApiError):
    """The resource version, or the continuation of a list, is too old: list again."""


class InvalidError(ApiError):
    """The object breaks the rules of its kind; `fields` are the paths that the server names."""

    fields: tuple[str, ...] = ()


class ThrottledError(ApiError):
    """The server has too much to do, or refuses for now."""


class InternalError(ApiError):
    """The server failed at the request: any 5xx that is not one of the others."""


class UnavailableError(InternalError):
    """The server cannot answer now (503)."""


class DeadlineError(InternalError):
    """The server took too long (504); the request may have been carried out."""


class UnreachableError(ApiError):
    """There was no answer: no connection, or it broke; the request may have been carried out."""


class UndecodableError(ApiError):
    """An answer does not have the type that was asked for.

    `key` and `resource_version` name the object, as far as they could be read; `deleted` tells
    whether it is the event of a watch for a deletion.
    """

    key: str = ""
    resource_version: str = ""
    deleted: bool = False


class _Cause(Wire, frozen=True):
    field: str = ""


class _Details(Wire, frozen=True):
    retry_after_seconds: int = 0
    causes: tuple[_Cause, ...] | None = None


class ApiStatus(Wire, frozen=True):
    """The API server's answer when it has no object to give."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExistsError,
    "BadRequest": BadRequestError,
    "Conflict": ConflictError,
    "Expired": GoneError,
    "Forbidden": ForbiddenError,
    "Gone": GoneError,
    "InternalError": InternalError,
    "Invalid": InvalidError,
    "NotFound": NotFoundError,
    "ServiceUnavailable": UnavailableError,
    "Timeout": DeadlineError,
    "ServerTimeout": DeadlineError,
    "TooManyRequests": ThrottledError,
    "Unauthorized": UnauthorizedError,
}
_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: ThrottledError,
    503: UnavailableError,
    504: DeadlineError,
}


def error_from_answer(code: int, body: bytes, *, asked: str, retry_after: str = "") -> ApiError:
    """Turn an answer that is not a success into an error.

    Args:
        code: The HTTP status.
        body: The body of the answer: a Status, or anything (a proxy's page, plain text).
        asked: The request, such as `GET /api/v1/pods`, for a body without a message.
        retry_after: The header of that name; whole seconds, or else it is ignored.
    """
    try:
        status = msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.DecodeError, RecursionError):
        status = ApiStatus()
    error = error_from_status(status, code=code, asked=asked)
    if retry_after.strip().isdecimal():
        error.retry_after = float(retry_after)
    return error


def error_from_status(status: ApiStatus, *, code: int = 0, asked: str) -> ApiError:
    """Turn a Status into an error, as a watch needs it: there it comes with HTTP status 200."""
    code = code or status.code
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(code)
    if kind is None:
        kind = InternalError if code >= 500 else ApiError
    sent = cut(status.message, LONGEST_MESSAGE, end=" ...")
    message = sent.rstrip(". \n") or f"`{asked}` was answered with status {code}"
    error = kind(message, hint=_hint(kind, message))
    error.code, error.reason = code, status.reason
    if status.details is not None:
        _add_details(error, status.details)
    return error


def _add_details(error: ApiError, details: _Details) -> None:
    if details.retry_after_seconds:
        error.retry_after = float(details.retry_after_seconds)
    if isinstance(error, InvalidError):
        error.fields = _field_paths(details.causes or ())


def _field_paths(causes: Iterable[_Cause]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cause.field for cause in causes if cause.field))


def _hint(kind: type[ApiError], message: str) -> str | None:
    if kind is UnauthorizedError:
        return "log in again, or check the user of the kubeconfig's context"
    if kind is ForbiddenError and " cannot " in message:
        return "a role that allows it must be bound to this user; see `kubectl auth can-i --list`"
    return None

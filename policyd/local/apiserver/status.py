"""The API server's errors, in the words that kubectl prints and clients compare."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from policyd.api.meta import Json

Object = dict[str, Any]
"""One Kubernetes object as decoded JSON."""

CHANGED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
NOT_ALLOWED = "the server does not allow this method on the requested resource"
UNKNOWN_FORMAT = "the body of the request was in an unknown format - accepted media types include: "


class StatusError(Exception):
    """An answer other than success; `status` is the `Status` object that is sent."""

    def __init__(
        self, code: int, reason: str, message: str, *, details: Object | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = failure(code, reason, message, details=details)


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is wrong with one field, as the API server words it."""

    reason: str
    message: str
    path: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def failure(code: int, reason: str, message: str, *, details: Object | None = None) -> Object:
    """Build a `Status` that says no."""
    status: Object = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    if not reason:
        del status["reason"]
    if details is not None:
        status["details"] = details
    return status


def success(details: Object) -> Object:
    """Build the `Status` of a deletion."""
    kind = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    return kind | {"status": "Success", "details": details}


def bad_request(message: str) -> StatusError:
    """Return that the request itself cannot be understood."""
    return StatusError(400, "BadRequest", message)


def forbidden(resource: str, name: str, why: str) -> StatusError:
    """Return the error of a forbidden action; `resource` is like `jobs.batch`."""
    message = f'{resource} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, details=named(resource, name))


def not_found(resource: str, name: str) -> StatusError:
    """Return that the object does not exist."""
    message = f'{resource} "{name}" not found'
    return StatusError(404, "NotFound", message, details=named(resource, name))


def no_such_resource() -> StatusError:
    """There is nothing at the path, though there is something near it."""
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, details={})


def method_not_allowed() -> StatusError:
    """Return that the kind has no such verb."""
    return StatusError(405, "MethodNotAllowed", NOT_ALLOWED, details={})


def not_acceptable() -> StatusError:
    """None of the formats the client takes can be given."""
    message = "only the following media types are accepted: application/json"
    return StatusError(406, "NotAcceptable", message, details={})


def already_exists(resource: str, name: str) -> StatusError:
    """Return that the name is taken."""
    message = f'{resource} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=named(resource, name))


def conflict(resource: str, name: str, why: str = CHANGED) -> StatusError:
    """Return the error of a write to an object that has changed."""
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=named(resource, name))


def expired(message: str) -> StatusError:
    """Return the error of a request for a version that is too old."""
    return StatusError(410, "Expired", message)


def too_large(limit: int) -> StatusError:
    """Return that the body is longer than `limit` bytes."""
    message = f"Request entity too large: limit is {limit}"
    return StatusError(413, "RequestEntityTooLarge", message)


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """Return that the body's format is not one of `accepted`."""
    return StatusError(415, "UnsupportedMediaType", UNKNOWN_FORMAT + ", ".join(accepted))


def invalid(kind: str, name: str, causes: Sequence[Cause]) -> StatusError:
    """Fields are wrong; `kind` is like `Job.batch`."""
    lines = list(dict.fromkeys(str(cause) for cause in causes))
    what = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    message = f'{kind} "{name}" is invalid: {what}'
    name_of_kind, _, group = kind.partition(".")
    fields = [{"reason": c.reason, "message": c.message, "field": c.path} for c in causes]
    details = {"name": name, "group": group, "kind": name_of_kind, "causes": fields}
    present = {key: value for key, value in details.items() if value}
    return StatusError(422, "Invalid", message, details=present)


def internal_error(message: str) -> StatusError:
    """Something behind the server failed."""
    details = {"causes": [{"message": message}]}
    text = f"Internal error occurred: {message}"
    return StatusError(500, "InternalError", text, details=details)


def named(resource: str, name: str, uid: str = "") -> Object:
    """Describe an object in a status' details."""
    plural, _, group = resource.partition(".")
    details = {"name": name, "group": group, "kind": plural, "uid": uid}
    return {key: value for key, value in details.items() if value}


def required(path: str, detail: str = "") -> Cause:
    """Return that a field must be given."""
    message = f"Required value: {detail}" if detail else "Required value"
    return Cause("FieldValueRequired", message, path)


def wrong(path: str, value: Json, detail: str) -> Cause:
    """Return that a field's value breaks a rule."""
    return Cause("FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}", path)


def not_supported(path: str, value: Json, allowed: Sequence[str]) -> Cause:
    """Return that a field's value is none of the words allowed."""
    words = ", ".join(f'"{word}"' for word in allowed)
    message = f"Unsupported value: {shown(value)}: supported values: {words}"
    return Cause("FieldValueNotSupported", message, path)


def not_permitted(path: str, detail: str) -> Cause:
    """Return that a field may not be given, or may not change."""
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", path)


def duplicate(path: str, value: Json) -> Cause:
    """Return that a value stands twice where it may stand once."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {shown(value)}", path)


def shown(value: Json) -> str:
    """Write a value as the API server quotes it in messages."""
    match value:
        case str():
            return f'"{value}"'
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case int() | float():
            return str(value)
        case _:
            return json_text(value)


def json_text(value: Json) -> str:
    """Write compact JSON with sorted keys, as Go does."""
    return msgspec.json.encode(value, order="sorted").decode()

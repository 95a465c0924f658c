"""AdmissionReview v1: what the API server asks a webhook, and what it is answered.

The envelope is typed; the object and the old object stay bytes until something needs them, since
most reviews are decided without. `Rule` is what both webhook configurations and policies say about
the requests they concern.
"""

import re
from itertools import accumulate
from typing import Literal

import msgspec

from policyd.api.meta import Json, Wire
from policyd.errors import PolicydError

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
Scope = Literal["Cluster", "Namespaced", "*"]
FailurePolicy = Literal["Fail", "Ignore"]
MatchPolicy = Literal["Exact", "Equivalent"]

NO_OBJECT = msgspec.Raw(b"null")
MAXIMUM_REVIEW_BYTES = 64 * 1024 * 1024
"""More than the API server ever sends: an object of 3 MiB, its `<` escaped to six bytes each, and
the old one beside it."""

MAXIMUM_LEVELS = 512
"""How deep a review may be nested: real objects stay below 50. Bounded here, and not by whatever
recursion the interpreter happens to allow."""

_NOT_NESTING = bytes(set(range(256)) - set(b'"[]{}'))
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"')
_STEPS = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")  # 1 down and 1 up, as signed bytes


class ReviewError(PolicydError):
    """A body is no AdmissionReview that could be answered."""


class GroupVersionKind(Wire, frozen=True):
    """A kind, fully named."""

    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(Wire, frozen=True):
    """A resource (the plural of the URL), fully named."""

    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(Wire, frozen=True):
    """Who asks."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class AdmissionRequest(Wire, frozen=True):
    """One request to create, change, delete or connect to an object."""

    uid: str
    kind: GroupVersionKind
    resource: GroupVersionResource
    operation: Operation
    sub_resource: str = ""
    request_kind: GroupVersionKind | None = None
    request_resource: GroupVersionResource | None = None
    request_sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = NO_OBJECT
    old_object: msgspec.Raw = NO_OBJECT
    options: msgspec.Raw = NO_OBJECT
    dry_run: bool = False


class AdmissionReview(Wire, frozen=True):
    """The envelope of a question."""

    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: AdmissionRequest


class StatusCause(Wire, frozen=True):
    """One of several reasons for a refusal."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Wire, frozen=True):
    """What a refusal is about."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()


class Status(Wire, frozen=True):
    """Why a request is refused, as the API server passes it on."""

    code: int
    message: str
    reason: str = ""
    details: StatusDetails | None = None


class AdmissionResponse(Wire, frozen=True):
    """The answer to one request; `patch` is an RFC 6902 document, which is sent as base64."""

    uid: str
    allowed: bool = msgspec.field(default_factory=lambda: False)  # written out even when false
    status: Status | None = None
    patch: bytes | None = None
    patch_type: Literal["JSONPatch"] | None = None
    audit_annotations: dict[str, str] = {}
    warnings: tuple[str, ...] = ()


class AnsweredReview(Wire, frozen=True):
    """The envelope of an answer."""

    api_version: str
    kind: str
    response: AdmissionResponse


class Rule(Wire, frozen=True):
    """Which requests are concerned, by kind and operation; `*` stands for any.

    A subresource is named `pods/status`, `pods/*` or `*/status`; `*` alone names no subresource,
    `*/*` names everything. A list left empty matches nothing. `resource_names` is never set in a
    webhook configuration, and an empty one there means any name.
    """

    operations: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    scope: Scope = "*"
    resource_names: tuple[str, ...] = ()


_REVIEW = msgspec.json.Decoder(AdmissionReview)
_ANY = msgspec.json.Decoder()


def parse_review(body: bytes) -> AdmissionRequest:
    """Read the question out of the body of an HTTP request.

    Raises:
        ReviewError: If `body` is not an AdmissionReview v1 with a request and a uid.
    """
    if len(body) > MAXIMUM_REVIEW_BYTES:
        raise ReviewError(f"the review has {len(body)} bytes, more than {MAXIMUM_REVIEW_BYTES}")
    if nested_deeper(body, MAXIMUM_LEVELS):
        raise ReviewError(f"the review is nested too deep: more than {MAXIMUM_LEVELS} levels")
    try:
        request = _REVIEW.decode(body).request
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReviewError(f"not an AdmissionReview: {error}") from error
    if not request.uid:
        raise ReviewError("not an AdmissionReview: the request has no uid")
    return request


def nested_deeper(text: bytes, levels: int) -> bool:
    """Tell whether JSON is nested more than `levels` deep; text that is no JSON may be either."""
    # Quotes are kept, so that what stands side by side here is closed at once, as most of
    # managedFields are, or is in one string.
    brackets = text.translate(None, _NOT_NESTING)
    if brackets.count(b"{") + brackets.count(b"[") - brackets.count(b"{}") < levels:
        return False  # so few cannot be so deep, wherever they are: nearly every review
    unescaped = _ESCAPE.sub(b"", text)
    kept = unescaped.translate(None, _NOT_NESTING).replace(b'""', b"")
    steps = _STRING.sub(b"", kept).translate(_STEPS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > levels


def decode_object(raw: msgspec.Raw) -> Json:
    """Decode an object of a review to plain JSON values.

    Raises:
        ReviewError: If it cannot be decoded: broken JSON, invalid UTF-8.
    """
    try:
        return _ANY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReviewError(f"the object cannot be read: {error}") from error

"""AdmissionReview v1: the request of the API server to a webhook, and the response.

The envelope is typed; the object and the old object stay bytes until something needs them, since
most reviews are decided without. `Rule` is the form in which webhook configurations and policies
name the requests that they match.
"""

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

import msgspec

from policyd.api.causes import TOO_DEEP, TOO_LARGE, UNREADABLE, UnevaluatedCause
from policyd.api.meta import Json, Wire
from policyd.errors import PolicydError

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
Scope = Literal["Cluster", "Namespaced", "*"]
FailurePolicy = Literal["Fail", "Ignore"]
MatchPolicy = Literal["Exact", "Equivalent"]

NO_OBJECT = msgspec.Raw(b"null")
MAXIMUM_REVIEW_BYTES = 48 * 1024 * 1024
"""How long a review may be that is judged: a third more than the longest that a real API server
(1.36) was seen to send of an object that it could store.

It takes 3 MiB in a request, stores 1.5 MiB, and writes `<`, `>` and `&` as six bytes: 18.9 MB for a
new object, 27.9 MB for one that is replaced, and 36.9 MB where a patch of 3.1 MB is added to a pod
of 1.5 MB, be it a JSON patch, a merge patch or an apply. Aliases of YAML, which it takes in an
apply, make more out of less without end (78 MB out of 1 MB): such objects cannot be stored."""

MAXIMUM_LEVELS = 512
"""How deep a review may be nested: real objects stay below 50, an API server sends up to 10,002.
Bounded here, and not by the recursion limit of the interpreter."""

MAXIMUM_VALUES = 4_000_000
"""How many values, keys counted too, a review may have outside of its texts. Those of 3 MiB in a
request are 3.2 million at most, and take 75 MB of memory. Only aliases and copies make more."""

_FEW_BYTES = 4 * 1024 * 1024
"""The values of a review up to this size are not counted: they take less than 100 MB."""

_NOT_NESTING = bytes(set(range(256)) - set(b'"[]{}'))
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NOT_PARTING = bytes(set(range(256)) - set(b'"[{,:'))
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*(?:"|\Z)')
_PIECE = 1024 * 1024
"""Bytes of a review that are looked at in one go: no other thread gets a turn meanwhile."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPED = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""An escape; in a group if it is half a surrogate pair, without the other half."""
_STEPS = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")  # 1 down and 1 up, as signed bytes


class ReviewError(PolicydError):
    """A body is not an AdmissionReview that can be answered.

    Attributes:
        cause: Why not.
    """

    def __init__(self, message: str, cause: UnevaluatedCause = UNREADABLE) -> None:
        super().__init__(message, hint=cause.advice)
        self.cause = cause


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
    """The user who sends a request."""

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
    """The object that a refusal is about."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()


class RefusalStatus(Wire, frozen=True):
    """Why a request is refused, as the API server passes it on."""

    code: int
    message: str
    reason: str = ""
    details: StatusDetails | None = None


class AdmissionResponse(Wire, frozen=True):
    """The answer to one request; `patch` is an RFC 6902 document, which is sent as base64."""

    uid: str
    allowed: bool = msgspec.field(default_factory=lambda: False)  # written out even when false
    status: RefusalStatus | None = None
    patch: bytes | None = None
    patch_type: Literal["JSONPatch"] | None = None
    audit_annotations: dict[str, str] = {}
    warnings: tuple[str, ...] = ()


class AnsweredReview(Wire, frozen=True):
    """The envelope of an answer."""

    api_version: str
    kind: str
    response: AdmissionResponse

    @classmethod
    def encoded(cls, response: AdmissionResponse) -> bytes:
        """Return the body of an answer."""
        return _ENCODER.encode(cls("admission.k8s.io/v1", "AdmissionReview", response))


class Rule(Wire, frozen=True):
    """The requests that match, by kind and operation; `*` stands for any.

    A subresource is named `pods/status`, `pods/*` or `*/status`; `*` alone names no subresource,
    `*/*` names everything. A list left empty matches nothing. `resource_names` is never set in a
    webhook configuration, and an empty one there means any name.
    """

    operations: tuple[str, ...] = ()
    """`CREATE`, `UPDATE`, `DELETE`, `CONNECT`, or `*` for all."""
    api_groups: tuple[str, ...] = ()
    """API groups; empty text for the core group, `*` for all."""
    api_versions: tuple[str, ...] = ()
    """Versions of the groups; `*` for all."""
    resources: tuple[str, ...] = ()
    """Plural names, with `/` before a subresource; `*` for all but those, `*/*` for all."""
    scope: Scope = "*"
    """`Cluster`, `Namespaced`, or `*` for both."""
    resource_names: tuple[str, ...] = ()
    """Names of objects; every one if left out."""


class Head(NamedTuple):
    """The first fields of a review.

    Attributes:
        request: The request, as far as it was read; its objects never are.
        known: The fields that were read, by their names on the wire.
        whole: Whether a field that was not read is none that the request has.
    """

    request: AdmissionRequest
    known: frozenset[str]
    whole: bool


_ENCODER = msgspec.json.Encoder()
_REVIEW = msgspec.json.Decoder(AdmissionReview)
_ANY = msgspec.json.Decoder()

_UNREAD: Final = frozenset({"object", "oldObject", "options"})
_NEEDED: Final = frozenset({"uid", "kind", "resource", "operation", "userInfo"})
"""The fields of every request. The API server writes them, and all others except the
objects and options, before the first object."""

_NO_WORDS: Final[dict[str, Any]] = {"uid": "", "kind": {}, "resource": {}, "operation": "CREATE"}
_READER: Final = json.JSONDecoder(strict=False)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_UID: Final = re.compile(r"[\w.-]{1,128}", re.ASCII)


def parse_review(body: bytes) -> AdmissionRequest:
    """Read the question out of the body of an HTTP request.

    Raises:
        ReviewError: If `body` is not an AdmissionReview v1 with a request and a uid.
    """
    if len(body) > MAXIMUM_REVIEW_BYTES:
        raise ReviewError(
            f"the review has {len(body)} bytes, more than {MAXIMUM_REVIEW_BYTES}", TOO_LARGE
        )
    if nested_deeper(body, MAXIMUM_LEVELS):
        raise ReviewError(
            f"the review is nested too deep: more than {MAXIMUM_LEVELS} levels", TOO_DEEP
        )
    if len(body) > _FEW_BYTES and has_more_values(body, MAXIMUM_VALUES):
        raise ReviewError(f"the review has too many values: more than {MAXIMUM_VALUES}", TOO_LARGE)
    request = _request_of(body)
    if not request.uid:
        raise ReviewError("not an AdmissionReview: the request has no uid")
    return request


def _request_of(body: bytes) -> AdmissionRequest:
    try:
        return _REVIEW.decode(body).request
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if not _has_invalid_unicode(body):
            raise ReviewError(f"not an AdmissionReview: {error}") from error
    try:
        return _REVIEW.decode(_with_valid_unicode(body)).request
    except msgspec.DecodeError as error:
        raise ReviewError(f"not an AdmissionReview: {error}") from error


def read_head(text: bytes) -> Head:
    """Read the first fields of a review, even if the rest is missing, broken, or too large.

    Raises:
        ReviewError: If they do not say which review it is.
    """
    fields: dict[str, Any] = {}
    whole = False
    with suppress(ValueError, RecursionError):  # at the end of the text, or if it is not JSON
        whole = _read_fields(text.decode(errors="replace"), 0, fields)
    given = {n: value for n, value in fields.items() if n not in _UNREAD and _fits({n: value})}
    request = msgspec.convert(_NO_WORDS | given, AdmissionRequest)
    if not _UID.fullmatch(request.uid):
        raise ReviewError("not an AdmissionReview: the request has no uid")
    return Head(request, frozenset(given), whole and given.keys() >= _NEEDED)


def _fits(fields: dict[str, Any]) -> bool:
    try:
        msgspec.convert(_NO_WORDS | fields, AdmissionRequest)
    except msgspec.ValidationError:
        return False
    return True


def _read_fields(text: str, at: int, fields: dict[str, Any]) -> bool:
    """Read the fields of the object that begins at `at`: of a review, those of its request.

    Returns:
        Whether all were read, or all that come before an object that cannot be read to its end.

    Raises:
        ValueError: Where the text ends before, or cannot be read any further.
    """
    at = _after(text, at, "{")
    while True:
        name, at = _READER.raw_decode(text, _from(text, at))
        at = _from(text, _after(text, at, ":"))
        if name == "request" and text.startswith("{", at):
            fields.clear()
            return _read_fields(text, at, fields)
        try:
            fields[name], at = _READER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return name in _UNREAD
        if text.startswith("}", _from(text, at)):
            return True
        at = _after(text, at, ",")


def _from(text: str, at: int) -> int:
    """Return the position of the next character that is not a space."""
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _after(text: str, at: int, sign: str) -> int:
    """Return where the text goes on after a sign.

    Raises:
        ValueError: If another character follows.
    """
    start = _from(text, at)
    return text.index(sign, start, start + 1) + 1


def nested_deeper(text: bytes, levels: int) -> bool:
    """Tell whether JSON is nested more than `levels` deep; for text that is not JSON, either."""
    nesting = _nesting(text) if len(text) <= _PIECE else sum(map(_nesting, _pieces(text)))
    if nesting < levels:
        return False  # so few cannot be so deep, wherever they are: nearly every review
    depth = 0
    for outside in _outside_texts(text):
        steps = memoryview(outside.translate(_STEPS, _NO_BRACKETS)).cast("b")
        if max(accumulate(steps, initial=depth)) > levels:
            return True
        depth += sum(steps)
    return False


def _nesting(piece: bytes) -> int:
    # Quotes are kept, so that elements side by side here are closed at once, as most of
    # managedFields are, or are in one string.
    brackets = piece.translate(None, _NOT_NESTING)
    return brackets.count(b"{") + brackets.count(b"[") - brackets.count(b"{}")


def has_more_values(text: bytes, most: int) -> bool:
    """Tell whether JSON has more than so many lists, objects, keys and parts of these."""
    parting = sum(len(piece.translate(None, _NOT_PARTING)) for piece in _pieces(text))
    if parting - text.count(b'"') <= most:
        return False  # not even with the contents of strings
    return sum(len(each.translate(None, _NOT_PARTING)) for each in _outside_texts(text)) > most


def _pieces(text: bytes) -> Iterator[bytes]:
    """Yield JSON piece by piece, no escape cut in two: between two, other threads go on."""
    start = 0
    while start < len(text):
        piece = text[start : start + _PIECE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = text[start : start + _PIECE + 1]
        start += len(piece)
        yield piece


def _outside_texts(text: bytes) -> Iterator[bytes]:
    """Yield the pieces of JSON without the contents of its strings."""
    inside = False
    for piece in _pieces(text):
        unescaped = _ESCAPE.sub(b"", piece)
        yield _STRING.sub(b"", b'"' + unescaped if inside else unescaped)
        inside ^= unescaped.count(b'"') % 2 == 1


def decode_object(raw: msgspec.Raw) -> Json:
    """Decode an object of a review to plain JSON values.

    Raises:
        ReviewError: If it cannot be decoded.
    """
    try:
        return _ANY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if not _has_invalid_unicode(bytes(raw)):
            raise ReviewError(f"the object cannot be read: {error}") from error
    try:
        return _ANY.decode(_with_valid_unicode(bytes(raw)))
    except msgspec.DecodeError as error:
        raise ReviewError(f"the object cannot be read: {error}") from error


def _has_invalid_unicode(text: bytes) -> bool:
    """Tell whether anything in JSON is not Unicode; the check takes little memory."""
    if _SURROGATE.search(text):
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in _pieces(text):
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return True
    return False


def _with_valid_unicode(text: bytes) -> bytes:
    """Return JSON with U+FFFD for invalid Unicode, as the API server reads it.

    It sends such bytes and half surrogates where it keeps JSON as it came, as in `data` of a
    ControllerRevision.
    """
    unicode = text.decode(errors="replace").encode()
    return _ESCAPED.sub(lambda found: b"\\ufffd" if found[1] else found[0], unicode)

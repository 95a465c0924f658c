"""Responses, in the format that the client accepts."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from policyd.api.meta import Json

Form = Literal["object", "Table", "PartialObjectMetadata"]

FORMS: dict[str, Form] = {
    "": "object",
    "Table": "Table",
    "PartialObjectMetadata": "PartialObjectMetadata",
    "PartialObjectMetadataList": "PartialObjectMetadata",
}
"""The value of a client's `as=`, and the kind of the answer."""

CONTENT_JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResponse:
    """A complete response; `body` is encoded already, or is decoded JSON."""

    body: Json
    code: int = 200
    content_type: str = CONTENT_JSON

    def encoded(self) -> bytes:
        """Return the bytes to send."""
        if isinstance(self.body, bytes):
            return self.body
        if isinstance(self.body, str):
            return self.body.encode()
        return msgspec.json.encode(self.body) + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An answer that comes in pieces, for as long as the client listens."""

    chunks: AsyncIterator[bytes]
    close: Callable[[], None]
    content_type: str = CONTENT_JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaType:
    """One of the formats a client takes."""

    name: str
    parameters: dict[str, str]


def text(body: str, *, code: int = 200) -> ServerResponse:
    """Answer with plain text."""
    return ServerResponse(body=body, code=code, content_type="text/plain; charset=utf-8")


def accepted(header: str) -> list[MediaType]:
    """Read an Accept header, in the order given (clients of Kubernetes set no weights)."""
    return [_media_type(part) for part in header.split(",") if part.strip()]


def _media_type(part: str) -> MediaType:
    name, *parameters = (word.strip() for word in part.split(";"))
    pairs = (parameter.partition("=") for parameter in parameters)
    return MediaType(name=name, parameters={key: value for key, _, value in pairs})


def wanted_form(header: str) -> Form | None:
    """Return the first form in an Accept header that can be given; None if none can."""
    if not header.strip():
        return "object"
    for media_type in accepted(header):
        if media_type.name not in {CONTENT_JSON, "*/*", "application/*"}:
            continue
        form = FORMS.get(media_type.parameters.get("as", ""))
        if form is not None:
            return form
    return None

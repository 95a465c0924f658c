"""`/convert`: Kueue's objects from one version to the other, as the API server asks for it.

A ConversionReview's bytes in, its answer's bytes out. An object that cannot be converted fails the
review with its name; the API server then refuses the request it was needed for. A list is long:
reviews of admission have their turn between its objects.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Literal

import msgspec

from policyd.admission.unevaluated import HEAD_BYTES
from policyd.api.admission import (
    MAXIMUM_LEVELS,
    ReviewError,
    decode_object,
    nested_deeper,
    read_head,
)
from policyd.api.causes import TOO_DEEP, UnevaluatedCause
from policyd.api.kueue.names import API_VERSION
from policyd.api.kueue.v1beta1 import OLD_API_VERSION, downgraded, title, upgraded
from policyd.api.meta import Json, Wire
from policyd.engine.model.deadline import OutOfTime
from policyd.errors import PolicydError

PATH: Final = "/convert"
Rest = Callable[[], Awaitable[None]]
"""Lets others have their turn."""

AT_ONCE: Final = 20
"""Objects that are converted before others have their turn."""


class ConversionRequest(Wire, frozen=True):
    """Objects that are to be had in another version."""

    uid: str
    version: str = msgspec.field(name="desiredAPIVersion")
    objects: tuple[msgspec.Raw, ...] = ()


class ConversionReview(Wire, frozen=True):
    """The envelope of a question."""

    api_version: Literal["apiextensions.k8s.io/v1"]
    kind: Literal["ConversionReview"]
    request: ConversionRequest


_REVIEW: Final = msgspec.json.Decoder(ConversionReview)


async def convert(body: bytes, out_of_time: OutOfTime, *, rest: Rest) -> bytes:
    """Answer a review of conversion.

    Args:
        body: The review.
        out_of_time: Tells whether the caller is about to stop waiting.
        rest: Waited for now and then, so that other reviews have their turn.

    Raises:
        ReviewError: If it is none.
    """
    request = _parsed(body)
    result: dict[str, Json] = {"status": "Success"}
    converted: list[Json] = []
    try:
        for number, raw in enumerate(request.objects):
            if number % AT_ONCE == 0:
                await rest()
            if out_of_time():
                raise ConversionError("timed out: read the list in smaller pages")
            converted.append(_converted(decode_object(raw), request.version))
    except PolicydError as error:
        result, converted = {"status": "Failure", "message": str(error)}, []
    return _answer(request.uid, result, converted)


def unconverted(head: bytes, reason: str, cause: UnevaluatedCause) -> bytes:
    """Answer a review of conversion that is not read whole, given its first bytes.

    Raises:
        ReviewError: If these do not say which review it is.
    """
    uid = read_head(head[:HEAD_BYTES]).request.uid
    return _answer(uid, {"status": "Failure", "message": f"{reason}; {cause.advice}"}, [])


class ConversionError(PolicydError):
    """An object cannot be had in another version."""


def _answer(uid: str, result: dict[str, Json], converted: list[Json]) -> bytes:
    response = {"uid": uid, "result": result, "convertedObjects": converted}
    envelope = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    return msgspec.json.encode({**envelope, "response": response})


def _parsed(body: bytes) -> ConversionRequest:
    if nested_deeper(body, MAXIMUM_LEVELS):
        raise ReviewError(
            f"the review is nested too deep: more than {MAXIMUM_LEVELS} levels", TOO_DEEP
        )
    try:
        return _REVIEW.decode(body).request
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReviewError(f"not a ConversionReview: {error}") from error


def _converted(obj: Json, version: str) -> Json:
    step = _STEPS.get(version)
    if step is None:
        known = " and ".join(f"`{known}`" for known in _STEPS)
        raise ConversionError(f"cannot convert to `{version}`, only to {known}")
    if not isinstance(obj, dict):
        raise ConversionError("the item to convert is not an object")
    converted = step(obj)
    if converted.get("apiVersion") != version:
        raise ConversionError(
            f"{title(obj)} is of `{obj.get('apiVersion')}`, not convertible to `{version}`"
        )
    return converted


_STEPS: Final[dict[str, Callable[[Json], Json]]] = {
    API_VERSION: upgraded,
    OLD_API_VERSION: downgraded,
}

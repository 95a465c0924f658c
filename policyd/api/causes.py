"""Why reviews are not evaluated, and what can help: one table for all answers to them."""

from http import HTTPStatus
from typing import Final, NamedTuple


class UnevaluatedCause(NamedTuple):
    """A kind of reasons why a review is not evaluated.

    Attributes:
        status: The HTTP status if the first bytes do not identify a review.
        advice: What can help the user of the request.
        lasts: Whether the same request will never be evaluated by the same policies.
    """

    status: HTTPStatus
    advice: str
    lasts: bool = False


_AGAIN: Final = "try again in a moment"

OVERLOADED: Final = UnevaluatedCause(HTTPStatus.SERVICE_UNAVAILABLE, _AGAIN)
SLOW: Final = UnevaluatedCause(HTTPStatus.REQUEST_TIMEOUT, _AGAIN)
OUT_OF_TIME: Final = UnevaluatedCause(
    HTTPStatus.SERVICE_UNAVAILABLE, f"{_AGAIN}, and with a smaller object if that does not help"
)
TOO_LARGE: Final = UnevaluatedCause(
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "make the object smaller", lasts=True
)
NO_LENGTH: Final = UnevaluatedCause(
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "ask the administrator of the cluster to have reviews sent with a Content-Length",
)
TOO_DEEP: Final = UnevaluatedCause(
    HTTPStatus.BAD_REQUEST,
    "write the object with fewer lists and maps inside each other",
    lasts=True,
)
UNREADABLE: Final = UnevaluatedCause(
    HTTPStatus.BAD_REQUEST, "correct the value that cannot be read", lasts=True
)
DEFECT: Final = UnevaluatedCause(
    HTTPStatus.INTERNAL_SERVER_ERROR, "ask the administrator of policyd, whose log has the error"
)

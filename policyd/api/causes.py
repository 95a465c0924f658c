"""Why reviews are not evaluated, and what can help: one table for all answers to them."""

from typing import Final, NamedTuple


class UnevaluatedCause(NamedTuple):
    """A kind of reasons why a review is not evaluated.

    Attributes:
        status: The HTTP status if the first bytes do not identify a review.
        advice: What can help the user of the request.
        lasts: Whether the same request will never be evaluated by the same policies.
    """

    status: int
    advice: str
    lasts: bool = False


_AGAIN: Final = "try again in a moment"

OVERLOADED: Final = UnevaluatedCause(503, _AGAIN)
SLOW: Final = UnevaluatedCause(408, _AGAIN)
OUT_OF_TIME: Final = UnevaluatedCause(
    503, f"{_AGAIN}, and with a smaller object if that does not help"
)
TOO_LARGE: Final = UnevaluatedCause(413, "make the object smaller", lasts=True)
NO_LENGTH: Final = UnevaluatedCause(
    413,
    "ask the administrator of the cluster to have reviews sent with a Content-Length",
)
TOO_DEEP: Final = UnevaluatedCause(
    400,
    "write the object with fewer lists and maps inside each other",
    lasts=True,
)
UNREADABLE: Final = UnevaluatedCause(400, "correct the value that cannot be read", lasts=True)
DEFECT: Final = UnevaluatedCause(500, "ask the administrator of policyd, whose log has the error")

"""Answers to reviews that nobody judges: too large, too slow, too many, or broken.

The API server writes who asks for what before it writes the object, so that the first bytes of a
review say which one it is even where the rest never comes.
"""

from collections.abc import Callable
from typing import Final

from policyd.api.admission import AdmissionResponse, AnsweredReview, RefusalStatus, read_head

HEAD_BYTES: Final = 64 * 1024
"""How much is kept of a review that is not read whole."""

Unjudged = Callable[[bytes, str], bytes]
"""Answers a review that is not judged, given its first bytes (all of it, or `HEAD_BYTES` at least)
and the reason. Raises ReviewError if these do not say which review it is."""


def refuse(head: bytes, reason: str) -> bytes:
    """Refuse what the review is about, whoever would have had a say in it.

    Raises:
        ReviewError: If the review has no uid.
    """
    uid = read_head(head[:HEAD_BYTES]).request.uid
    status = RefusalStatus(
        code=403, reason="Forbidden", message=f"policyd could not evaluate this: {reason}"
    )
    response = AdmissionResponse(uid=uid, allowed=False, status=status)
    return AnsweredReview.encoded(response)

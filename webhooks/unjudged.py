"""Answers to reviews that nobody judges: too large, too slow, too many, or broken.

The API server writes who asks for what before it writes the object, so that the first bytes of a
review say which one it is even where the rest never comes.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from policyd.api.admission import AdmissionResponse, AnsweredReview, ReviewError, Status

HEAD_BYTES: Final = 64 * 1024
"""How much is kept of a review that is not read whole."""

Unjudged = Callable[[bytes, str], bytes]
"""Answers a review that is not judged, given its first bytes (all of it, or `HEAD_BYTES` at least)
and the reason. Raises ReviewError if these do not say which review it is."""

_UID: Final = re.compile(rb'"uid"\s*:\s*"([\w-]{1,128})"')


def uid_in(head: bytes) -> str:
    """Return the uid of the review that begins with `head`.

    Raises:
        ReviewError: If there is none.
    """
    found = _UID.search(head, 0, HEAD_BYTES)
    if found is None:
        raise ReviewError("not an AdmissionReview: the request has no uid")
    return found[1].decode()


def refuse(head: bytes, reason: str) -> bytes:
    """Refuse what the review is about, whoever would have had a say in it.

    Raises:
        ReviewError: If the review has no uid.
    """
    status = Status(code=403, reason="Forbidden", message=f"policyd could not judge this: {reason}")
    response = AdmissionResponse(uid=uid_in(head), allowed=False, status=status)
    return msgspec.json.encode(
        AnsweredReview(api_version="admission.k8s.io/v1", kind="AdmissionReview", response=response)
    )

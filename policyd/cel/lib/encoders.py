"""Base64: `base64.encode(b'text')`."""

import base64
import binascii

from policyd.cel.cost import traverse_twice
from policyd.cel.errors import CelError
from policyd.cel.functions import Overload, Size, function
from policyd.cel.types import BYTES, STRING


def _encode(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _decode(text: str) -> bytes:
    """Decode with or without padding, as cel-go does."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise CelError("illegal base64 data") from None


_TWICE = Size(cost=traverse_twice)

ENCODERS: tuple[Overload, ...] = (
    function("base64.encode", BYTES, returns=STRING, run=_encode, size=_TWICE),
    function("base64.decode", STRING, returns=BYTES, run=_decode, size=_TWICE),
)

"""Write CEL values as JSON, for people and other programs to read."""

import base64
from collections.abc import Callable
from math import isfinite
from typing import Any, Final

from policyd.cel.cost import WORK_LIMIT, deep_size
from policyd.cel.errors import CelError
from policyd.cel.lib.network import Cidr, Ip
from policyd.cel.lib.quantity import CelQuantity
from policyd.cel.lib.standard import double_text
from policyd.cel.lib.time import duration_text, timestamp_text
from policyd.cel.values import CelMap, Duration, Optional, Timestamp, TypeValue, Value, type_name

_DEEPEST: Final = 200
"""The depth of the JSON, at most; its readers have a limit, too."""


def as_json(value: Value, level: int = 0) -> Any:  # noqa: ANN401 - any JSON
    """Return a value as JSON; values that JSON does not have become strings.

    Args:
        value: The value.
        level: How many others it is in.

    Raises:
        CelError: If it nests too deep, or has too many parts.
    """
    if level == 0 and deep_size(value) > WORK_LIMIT:
        raise CelError(f"no JSON for what has more than {WORK_LIMIT:,} parts")
    if level > _DEEPEST:
        raise CelError(f"no JSON for what nests more than {_DEEPEST} levels deep")
    if isinstance(value, dict):
        items = CelMap(value).items() if isinstance(value, CelMap) else value.items()
        return {_key(key): as_json(part, level + 1) for key, part in items}
    if isinstance(value, list):
        return [as_json(part, level + 1) for part in value]
    if isinstance(value, Optional):
        return as_json(value.value, level + 1) if value.present else None
    if isinstance(value, float) and not isfinite(value):
        return double_text(value)
    if value is None or isinstance(value, bool | int | float | str):
        return int(value) if type(value) is not bool and isinstance(value, int) else value
    return _text(value)


def _key(key: Value) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _text(value: Value) -> str:
    write = _WRITERS.get(type(value), type_name)
    return write(value)


_WRITERS: Final[dict[type, Callable[[Any], str]]] = {
    bytes: lambda value: base64.b64encode(value).decode(),
    Timestamp: timestamp_text,
    Duration: duration_text,
    TypeValue: lambda value: value.name,
    CelQuantity: lambda value: str(value.quantity),
    Ip: lambda value: str(value.address),
    Cidr: lambda value: f"{value.address}/{value.prefix}",
}

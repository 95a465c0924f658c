"""Users, lists of objects, and rounding."""

import math
from typing import Any

from policyd.cel.cost import elements, traverse
from policyd.cel.errors import CelError
from policyd.cel.functions import Overload, Size, function
from policyd.cel.types import DOUBLE, DYN, INT, STRING, Type, list_of, map_of
from policyd.cel.values import Struct

SERVICE_ACCOUNT = Type("user.ServiceAccount")
SERVICE_ACCOUNT_FIELDS = {"Name": STRING, "Namespace": STRING}
_PREFIX = "system:serviceaccount:"
# Beyond that, a double has no digits left to round.
_MOST_DIGITS = 300


def _service_account(user: str) -> Struct:
    rest = user.removeprefix(_PREFIX) if user.startswith(_PREFIX) else ""
    namespace, colon, name = rest.partition(":")
    fields = {"Name": name, "Namespace": namespace} if colon else {"Name": "", "Namespace": ""}
    return Struct(SERVICE_ACCOUNT.name, fields)


def _to_map(keys: list[Any], values: list[Any], key: str, value: str) -> dict[str, Any]:
    if len(keys) != len(values):
        raise CelError(f"lists of {len(keys)} and {len(values)} elements cannot be paired")
    if not all(isinstance(entry, dict) for entry in (*keys, *values)):
        raise CelError("listObjToMap takes lists of maps")
    made = {}
    for named, valued in zip(keys, values, strict=True):
        name = named.get(key)
        if not isinstance(name, str):
            raise CelError(f"`{key}` is not a string in every map of the first list")
        made[name] = valued.get(value)
    return made


def _round(number: float, digits: int) -> float:
    if not math.isfinite(number) or abs(digits) > _MOST_DIGITS:
        return number
    shifted = number * 10.0**digits
    if not math.isfinite(shifted):
        return number
    return math.copysign(math.floor(abs(shifted) + 0.5), number) / 10.0**digits


_LISTS = (list_of(DYN), list_of(DYN), STRING, STRING)
_MAP = map_of(STRING, DYN)

OBJECTS: tuple[Overload, ...] = (
    *(
        function(
            name, STRING, returns=SERVICE_ACCOUNT, run=_service_account, size=Size(cost=traverse)
        )
        for name in ("parseServiceAccount", "user.parseServiceAccount")
    ),
    *(
        function(name, *_LISTS, returns=_MAP, run=_to_map, size=Size(work=elements))
        for name in ("listObjToMap", "transform.listObjToMap")
    ),
    function("math.round", DOUBLE, INT, returns=DOUBLE, run=_round),
)

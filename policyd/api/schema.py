"""The meaning of types' annotations to the API server, beside that to Python.

Wire types carry these marks in `Annotated`, so that a field's limits and list semantics stand
beside the field, and the CustomResourceDefinitions are generated from one source. There are two
schemas of each kind: the slim one, and the full one, which also has the rules of `limits`. Where
the slim one is installed, the webhooks check those (`policyd/api/kueue/limits.py`).
"""

from typing import Annotated, Any, Final

import msgspec

from policyd.api.names import (
    KEY_NAME,
    LABEL,
    LONGEST_LABEL,
    LONGEST_SUBDOMAIN,
    SUBDOMAIN,
)

FULL: Final = "x-policyd-full"
"""The key of the parts that only the full schema has."""

QuantityText = str | int
"""A Kubernetes quantity as in an object: `"500m"`, `"8"` or a plain 8."""


def keyed(*keys: str, limit: int | None = None) -> msgspec.Meta:
    """Mark a list whose elements are merged by the fields `keys`; `limit` is its longest length."""
    marks: dict[str, object] = {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
    }
    return msgspec.Meta(extra_json_schema=_limited(marks, limit))


def unordered(*, limit: int | None = None) -> msgspec.Meta:
    """Mark a list of distinct scalars whose order means nothing."""
    return msgspec.Meta(extra_json_schema=_limited({"x-kubernetes-list-type": "set"}, limit))


def at_most(limit: int) -> msgspec.Meta:
    """Bound the length of a list that is replaced as a whole."""
    return msgspec.Meta(extra_json_schema=_limited({"x-kubernetes-list-type": "atomic"}, limit))


def at_least(minimum: int) -> msgspec.Meta:
    """Bound an integer from below, for the API server: reading an object never fails on it."""
    return msgspec.Meta(extra_json_schema={"minimum": minimum})


def limits(**limits: object) -> msgspec.Meta:
    """Bound a value in the full schema, by the names that OpenAPI has for bounds."""
    return msgspec.Meta(extra_json_schema={FULL: limits})


def texts(longest: int, *, shortest: int = 0, pattern: str = "") -> msgspec.Meta:
    """Bound a text in the full schema; `pattern` is for the whole of it."""
    least = {"minLength": shortest} if shortest else {}
    shape = {"pattern": f"^{pattern}$"} if pattern else {}
    return limits(maxLength=longest, **least, **shape)


SubdomainName = Annotated[str, texts(LONGEST_SUBDOMAIN, pattern=SUBDOMAIN)]
"""The name of most objects."""
LabelName = Annotated[str, texts(LONGEST_LABEL, pattern=LABEL)]
"""A name that is part of another, as those of pod sets are."""
LabelKey = Annotated[
    str, texts(LONGEST_SUBDOMAIN + 1 + LONGEST_LABEL, pattern=rf"({SUBDOMAIN}/)?({KEY_NAME})")
]
CheckName = Annotated[str, texts(316, shortest=1)]
Int32 = Annotated[int, limits(format="int32")]
Int64 = Annotated[int, limits(format="int64")]

DEFAULTED = msgspec.Meta(extra_json_schema={"default": {}})
"""Marks an object that is stored with its defaults if it is left out."""

WRITTEN = msgspec.Meta(extra_json_schema={"x-policyd-written": True})
"""Marks a field that the full schema requires of writers, and that reading does not need."""

UNSAID = msgspec.Meta(extra_json_schema={"x-policyd-unsaid": True})
"""Marks a field whose default is not stored."""


def no_items() -> tuple[Any, ...]:
    """Return an empty list; as the factory of a default it makes that the field is written."""
    return ()


def no_amounts() -> dict[str, QuantityText]:
    """Return no amounts; as the factory of a default it makes that the field is written."""
    return {}


REQUIRED = msgspec.Meta(extra_json_schema={"x-policyd-required": True})
"""Marks a field that must be given, though reading an object without it does not fail."""

PRESERVED = msgspec.Meta(
    extra_json_schema={
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "x-policyd-opaque": True,
    }
)
"""Marks a field that the API server stores unread, as pod templates are."""


ATOMIC = msgspec.Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"})
"""Marks an object that is replaced as a whole."""

_NUMBER: Final = r"(\+|-)?([0-9]+(\.[0-9]*)?|\.[0-9]+)"
QUANTITY: Final = f"{_NUMBER}([KMGTPE]i|[numkMGTPE]|[eE]{_NUMBER})?"
"""The pattern of a quantity that is a text."""


def _limited(marks: dict[str, object], limit: int | None) -> dict[str, object]:
    return marks if limit is None else {**marks, "maxItems": limit}

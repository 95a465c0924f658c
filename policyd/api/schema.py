"""What a type's annotations say to the API server, beside what they say to Python.

Wire types carry these marks in `Annotated`, so that a field's limits and list semantics stand
beside the field, and the CustomResourceDefinitions are generated from one source.
"""

import msgspec

QuantityText = str | int
"""A Kubernetes quantity as it stands in an object: `"500m"`, `"8"` or a plain 8."""


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


def _limited(marks: dict[str, object], limit: int | None) -> dict[str, object]:
    return marks if limit is None else {**marks, "maxItems": limit}

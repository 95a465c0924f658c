"""Which pods of a group are alike: a hash of what decides where a pod can run."""

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from policyd.api.meta import Json

DIGITS = 8
SHAPE = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priority",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
)
"""What of a pod's specification decides where it can run, beside its containers."""

_ESCAPED = tuple(
    (character.encode(), f"\\u{ord(character):04x}".encode()) for character in "<>&\u2028\u2029"
)
_ENCODER = msgspec.json.Encoder()


def role_hash(spec: Mapping[str, Json]) -> str:
    """Return the hash that Kueue gives a pod with this specification.

    Args:
        spec: The pod's `spec` as decoded JSON, fields in the API server's order.
    """
    shape: dict[str, Json] = {name: spec.get(name) or None for name in SHAPE}
    shape["priority"] = spec.get("priority")
    shape["initContainers"] = _containers(spec.get("initContainers"))
    shape["containers"] = _containers(spec.get("containers"))
    if spec.get("resources"):
        shape["resources"] = spec["resources"].get("requests")
    text = _ENCODER.encode({"spec": dict(sorted(shape.items()))})
    return sha256(_as_go(text)).hexdigest()[:DIGITS]


def _containers(containers: Json) -> Json:
    if not containers:
        return None
    return [
        {
            "ports": container.get("ports") or None,
            "resources": {"requests": (container.get("resources") or {}).get("requests")},
        }
        for container in containers
    ]


def _as_go(text: bytes) -> bytes:
    """Escape what Go's encoder escapes in strings, for the sake of HTML and JavaScript."""
    for character, escaped in _ESCAPED:
        text = text.replace(character, escaped)
    return text

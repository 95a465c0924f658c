"""Kueue's Configuration of version v1beta1, turned into v1beta2 and back, as decoded JSON."""

from policyd.api.configuration.kinds import API_VERSION, OLD_API_VERSION
from policyd.api.meta import Json

Fields = dict[str, Json]

_STRATEGIES = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]


def upgraded(document: Fields) -> Fields:
    """Return a Configuration as v1beta2 has it: parts that are not enabled are absent."""
    if document.get("apiVersion") != OLD_API_VERSION:
        return document
    converted: Fields = {**document, "apiVersion": API_VERSION}
    converted.pop("queueVisibility", None)
    for name in ("fairSharing", "waitForPodsReady"):
        part = dict(converted.pop(name, None) or {})
        if part.pop("enable", False):
            converted[name] = {**_UNSAID[name], **part}
    if converted.get("integrations"):
        converted["integrations"] = _without(converted["integrations"], "podOptions")
    return converted


def downgraded(document: Fields) -> Fields:
    """Return a Configuration as v1beta1 has it: parts that are set are enabled."""
    if document.get("apiVersion") != API_VERSION:
        return document
    converted = {**document, "apiVersion": OLD_API_VERSION}
    for name in ("fairSharing", "waitForPodsReady"):
        if converted.get(name) is not None:
            # v1beta1 would block where v1beta2 does not.
            unsaid = {"blockAdmission": False} if name == "waitForPodsReady" else {}
            converted[name] = {**unsaid, **converted[name], "enable": True}
    return converted


def _without(fields: Fields, name: str) -> Fields:
    return {key: value for key, value in fields.items() if key != name}


_UNSAID: dict[str, Fields] = {
    "fairSharing": {"preemptionStrategies": _STRATEGIES},
    "waitForPodsReady": {"timeout": "5m0s", "blockAdmission": True},
}
"""The meaning of `enable` alone in v1beta1."""

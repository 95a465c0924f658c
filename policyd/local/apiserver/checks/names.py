"""Names, labels and keys: what they may look like."""

import re
from collections.abc import Iterator

from policyd.api.meta import Json
from policyd.api.names import (
    LABEL,
    LABEL_1035,
    LABEL_1035_RULE,
    LABEL_RULE,
    LABEL_VALUE,
    LABEL_VALUE_RULE,
    LONGEST_LABEL,
    LONGEST_SUBDOMAIN,
    SUBDOMAIN,
    SUBDOMAIN_RULE,
    label_key_problems,
)
from policyd.local.apiserver.status import Cause, wrong


def subdomain(text: str) -> list[str]:
    """Say what keeps a text from being a DNS-1123 subdomain."""
    return _against(text, SUBDOMAIN, SUBDOMAIN_RULE, LONGEST_SUBDOMAIN, unit="characters")


def label(text: str) -> list[str]:
    """Say what keeps a text from being a DNS-1123 label."""
    if "." in text:
        return ["must not contain dots"]
    return _against(text, LABEL, LABEL_RULE, LONGEST_LABEL, unit="characters")


def label_1035(text: str) -> list[str]:
    """Say what keeps a text from being a DNS-1035 label, as services' names are."""
    return _against(text, LABEL_1035, LABEL_1035_RULE, LONGEST_LABEL)


def path_segment(text: str) -> list[str]:
    """Say what keeps a text from being part of a path, as the names of roles are."""
    if text in {".", ".."}:
        return [f"may not be '{text}'"]
    return [f"may not contain '{sign}'" for sign in "/%" if sign in text]


def qualified_name(text: str) -> list[str]:
    """Say what keeps a text from being the key of a label: `prefix/name` or `name`."""
    return label_key_problems(text)


def label_value(text: str) -> list[str]:
    """Say what keeps a text from being the value of a label."""
    return _against(text, LABEL_VALUE, LABEL_VALUE_RULE, LONGEST_LABEL)


def _against(text: str, pattern: str, rule: str, longest: int, *, unit: str = "bytes") -> list[str]:
    found = []
    if len(text) > longest:
        found.append(f"must be no more than {longest} {unit}")
    if not re.fullmatch(pattern, text):
        found.append(rule)
    return found


def check_labels(labels: Json, path: str) -> Iterator[Cause]:
    """Check the keys and values of labels, or of a node selector."""
    for key, value in (labels or {}).items():
        for line in qualified_name(key):
            yield wrong(path, key, line)
        for line in label_value(value):
            yield wrong(path, value, line)


def check_keys(annotations: Json, path: str) -> Iterator[Cause]:
    """Check the keys of annotations, whose letters may be of either case."""
    for key in annotations or {}:
        for line in qualified_name(key.lower()):
            yield wrong(path, key, line)

"""Names, labels and keys: what they may look like."""

import re
from collections.abc import Iterator

from policyd.api.meta import Json
from policyd.local.apiserver.status import Cause, wrong

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME_PART = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used"
    f" for validation is '{_SUBDOMAIN}')"
)
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and"
    " must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used"
    f" for validation is '{_LABEL}')"
)
LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123',"
    f" regex used for validation is '{_LABEL_1035}')"
)
KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    f" validation is '{_NAME_PART}')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or"
    " '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def subdomain(text: str) -> list[str]:
    """Say what keeps a text from being a DNS-1123 subdomain."""
    return _against(text, _SUBDOMAIN, SUBDOMAIN_RULE, 253)


def label(text: str) -> list[str]:
    """Say what keeps a text from being a DNS-1123 label."""
    return _against(text, _LABEL, LABEL_RULE, 63)


def label_1035(text: str) -> list[str]:
    """Say what keeps a text from being a DNS-1035 label, as services' names are."""
    return _against(text, _LABEL_1035, LABEL_1035_RULE, 63)


def path_segment(text: str) -> list[str]:
    """Say what keeps a text from being part of a path, as the names of roles are."""
    if text in {".", ".."}:
        return [f"may not be '{text}'"]
    return [f"may not contain '{sign}'" for sign in "/%" if sign in text]


def qualified_name(text: str) -> list[str]:
    """Say what keeps a text from being the key of a label: `prefix/name` or `name`."""
    prefix, slash, name = text.rpartition("/")
    found = []
    if slash:
        found = [f"prefix part {line}" for line in subdomain(prefix)] if prefix else []
        if not prefix:
            found.append("prefix part must be non-empty")
    if not name:
        return [*found, "name part must be non-empty", KEY_RULE]
    return found + [
        line if line == KEY_RULE else f"name part {line}"
        for line in _against(name, _NAME_PART, KEY_RULE, 63)
    ]


def label_value(text: str) -> list[str]:
    """Say what keeps a text from being the value of a label."""
    return _against(text, f"({_NAME_PART})?", VALUE_RULE, 63)


def _against(text: str, pattern: str, rule: str, longest: int) -> list[str]:
    found = []
    if len(text) > longest:
        found.append(f"must be no more than {longest} bytes")
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

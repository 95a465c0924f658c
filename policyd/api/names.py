"""The syntax of names and labels, and the API server's messages for invalid ones."""

import re
from typing import Final

SYSTEM_NAMESPACES: Final = frozenset({"kube-system", "kube-node-lease", "kube-public"})
"""Namespaces that a cluster cannot be repaired without: no webhook stands before them."""

NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label that the API server gives every namespace."""

RUN_FOR: Final = "policyd.io/run-for"
"""The annotation of a pod that tells how long its containers run, where running is simulated."""

OWNER: Final = "policyd.io/owner"
"""The label or annotation of a job or its pods that names the person who submitted it."""

LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = rf"{LABEL}(\.{LABEL})*"
LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
KEY_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
"""The key of a label or annotation, without the prefix that it may have: a subdomain and a `/`."""
LABEL_VALUE: Final = f"({KEY_NAME})?"

LONGEST_LABEL: Final = 63
"""Letters, also of a key's name and of a label's value."""
LONGEST_SUBDOMAIN: Final = 253

LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and"
    " must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used"
    f" for validation is '{LABEL}')"
)
SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used"
    f" for validation is '{SUBDOMAIN}')"
)
LABEL_1035_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123',"
    f" regex used for validation is '{LABEL_1035}')"
)
KEY_NAME_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
    " alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    f" validation is '{KEY_NAME}')"
)
LABEL_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or"
    f" '12345', regex used for validation is '{LABEL_VALUE}')"
)


def is_subdomain(text: str) -> bool:
    """Tell whether a text is a DNS-1123 subdomain, as most names are."""
    return len(text) <= LONGEST_SUBDOMAIN and re.fullmatch(SUBDOMAIN, text) is not None


def is_label_1035(text: str) -> bool:
    """Tell whether a text is a DNS-1035 label, as versions are, and kinds in lower case."""
    return len(text) <= LONGEST_LABEL and re.fullmatch(LABEL_1035, text) is not None


def is_label_key(text: str) -> bool:
    """Tell whether a text is the key of a label: `name` or `prefix/name`."""
    prefix, slash, name = text.rpartition("/")
    return (not slash or is_subdomain(prefix)) and bool(name) and is_label_value(name)


def is_label_value(text: str) -> bool:
    """Tell whether a text is the value of a label, which may be empty."""
    return len(text) <= LONGEST_LABEL and re.fullmatch(LABEL_VALUE, text) is not None


def label_key_problems(text: str) -> list[str]:
    """Return the API server's messages on an invalid key of a label."""
    prefix, slash, name = text.rpartition("/")
    problems = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        found = name_problems(prefix, SUBDOMAIN, SUBDOMAIN_RULE, LONGEST_SUBDOMAIN)
        problems += [f"prefix part {problem}" for problem in found]
    if not name:
        return [*problems, "name part must be non-empty", f"name part {KEY_NAME_RULE}"]
    found = name_problems(name, KEY_NAME, KEY_NAME_RULE, LONGEST_LABEL)
    return problems + [f"name part {problem}" for problem in found]


def label_value_problems(text: str) -> list[str]:
    """Return the API server's messages on an invalid value of a label."""
    return name_problems(text, LABEL_VALUE, LABEL_VALUE_RULE, LONGEST_LABEL)


def name_problems(
    text: str, pattern: str, rule: str, longest: int, *, unit: str = "bytes"
) -> list[str]:
    """Return the API server's messages on a text that is too long, or does not match a pattern.

    Args:
        text: A name, or a part of one.
        pattern: A regular expression for all of it.
        rule: The message if it does not match.
        longest: How long it may be.
        unit: What the API server counts the length in.
    """
    problems = []
    if len(text) > longest:
        problems.append(f"must be no more than {longest} {unit}")
    if not re.fullmatch(pattern, text):
        problems.append(rule)
    return problems

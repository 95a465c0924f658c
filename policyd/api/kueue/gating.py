"""The gates of a job before it may queue: the names in an annotation, `a.com/b, c.com/d`."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from policyd.api.kueue.names import ADMISSION_GATED_BY
from policyd.api.kueue.validation import FieldError
from policyd.api.names import SUBDOMAIN_RULE, is_subdomain

LONGEST_GATE: Final = 63
"""Letters of a whole name, as for external managers of jobs."""
_PATH: Final = f"metadata.annotations[{ADMISSION_GATED_BY}]"
_OF_URLS: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def gating_errors(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield the errors in the names; an annotation without names gates nothing."""
    text = annotations.get(ADMISSION_GATED_BY, "")
    names = [part.strip() for part in text.split(",")] if text else []
    for index, name in enumerate(names):
        if name and name in names[:index]:
            yield FieldError(_PATH, text, f"must not name the gate `{name}` twice")
            continue
        for problem in _gate_problems(name):
            yield FieldError(_PATH, text, f"gate `{name}`: {problem}")
        if len(name) > LONGEST_GATE:
            detail = f"may not be more than {LONGEST_GATE} bytes"
            yield FieldError(_PATH, text, detail, "TooLong")


def gating_changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield that a gate was added, given the annotations."""
    if not _gates(after) <= _gates(before):
        detail = "can only remove gates, not add new ones"
        yield FieldError(_PATH, after.get(ADMISSION_GATED_BY, ""), detail, "Forbidden")


def _gate_problems(name: str) -> Iterator[str]:
    domain, _, path = name.partition("/")
    if not (domain and path):
        yield "must be a path in a domain, such as `example.com/gate`"
        return
    if not is_subdomain(domain):
        yield SUBDOMAIN_RULE
    if not re.fullmatch(_OF_URLS, path):
        yield "must be a path as in a URL"


def _gates(annotations: Mapping[str, str]) -> set[str]:
    parts = annotations.get(ADMISSION_GATED_BY, "").split(",")
    return {part.strip() for part in parts if part.strip()}

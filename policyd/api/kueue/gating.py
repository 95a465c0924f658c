"""Who is waited for before something may queue: the names in an annotation, `a.com/b, c.com/d`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from policyd.api.kueue.names import ADMISSION_GATED_BY
from policyd.api.kueue.validation import FieldError
from policyd.api.names import label_key_problems

LONGEST_GATE: Final = 63
_PATH: Final = f"metadata.annotations[{ADMISSION_GATED_BY}]"


def gating_errors(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield what is wrong with the names; an annotation without any waits for nobody."""
    text = annotations.get(ADMISSION_GATED_BY, "")
    if not text:
        return
    names = Counter(part.strip() for part in text.split(","))
    if any(name and times > 1 for name, times in names.items()):
        yield FieldError(_PATH, text, "must not name a gate twice")
    for name in names:
        problem = _gate_problem(name)
        if problem is not None:
            yield FieldError(_PATH, text, problem)
        elif len(name.rpartition("/")[2]) > LONGEST_GATE:
            detail = f"may not be more than {LONGEST_GATE} bytes"
            yield FieldError(_PATH, text, detail, "TooLong")


def gating_changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield that somebody new is waited for, given the annotations."""
    if not _gates(after) <= _gates(before):
        detail = "can only remove gates, not add new ones"
        yield FieldError(_PATH, after.get(ADMISSION_GATED_BY, ""), detail, "Forbidden")


def _gate_problem(name: str) -> str | None:
    domain, slash, path = name.partition("/")
    if not slash:
        return f"gate `{name}` must be a path in a domain, such as `example.com/gate`"
    problems = label_key_problems(f"{domain}/{path[:LONGEST_GATE]}")
    return f"gate `{name}`: {problems[0]}" if problems else None


def _gates(annotations: Mapping[str, str]) -> set[str]:
    parts = annotations.get(ADMISSION_GATED_BY, "").split(",")
    return {part.strip() for part in parts if part.strip()}

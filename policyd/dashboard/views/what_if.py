"""What if: the form, the verdicts on manifests, and what would differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from policyd.api.meta import Json, cut
from policyd.dashboard.views.job import FieldRow, field_row
from policyd.patch.recorded import ObjectOrigins
from policyd.questions.what_if_answers import (
    DifferenceAnswer,
    WhatIfAnswer,
    change_text,
    left_out,
    start_text,
)

MOST_NAMES: Final = 20
"""Names in one field of the form."""
MOST_ROWS: Final = 200
LONGEST_NAME: Final = 300
LONGEST_REFUSAL: Final = 4_000
_OF_QUEUE: Final = ("would start", "would wait", "would get quota", "can never start")
"""Words of a warning that tells what the queue would do."""


class WhatIfForm(NamedTuple):
    """The fields of the form.

    Attributes:
        text: Manifests.
        mode: `apply` if they change what is there; else they are new.
        deleted: `kind/name` of objects that go.
        lost_nodes: Nodes that go.
        until: How far to look.
        assume: How long jobs run that declare nothing.
    """

    text: str = ""
    mode: str = "submit"
    deleted: tuple[str, ...] = ()
    lost_nodes: tuple[str, ...] = ()
    until: str = ""
    assume: str = ""


class ReadVerdict(NamedTuple):
    """What becomes of an object.

    Attributes:
        sent: The object.
        refusal: Why it would be refused; "" if it would not.
        warnings: What the API server and webhooks warn of.
        origins: The writers of fields; None if they are unknown.
    """

    sent: Mapping[str, Json]
    refusal: str
    warnings: tuple[str, ...]
    origins: ObjectOrigins | None = None


class WhatIfRead(NamedTuple):
    """What was tried.

    Attributes:
        form: The form, as it was sent.
        verdicts: What becomes of its objects.
        answer: What would differ for the queues; None if they were not asked.
        problem: Why nothing was tried; "" if something was.
        hint: What to do about that.
        notes: What could not be considered.
    """

    form: WhatIfForm = WhatIfForm()
    verdicts: tuple[ReadVerdict, ...] = ()
    answer: WhatIfAnswer | None = None
    problem: str = ""
    hint: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """What becomes of an object."""

    name: str
    accepted: bool
    queue: tuple[str, ...]
    refusal: str
    warnings: tuple[str, ...]
    fields: tuple[FieldRow, ...]
    more: int


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """What differs for a workload."""

    namespace: str
    job: str
    queue: str
    before: str
    after: str
    change: str
    kind: str
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfView:
    """What the view shows."""

    form: WhatIfForm
    deleted: str
    lost_nodes: str
    problem: str
    hint: str
    notes: tuple[str, ...]
    verdicts: tuple[VerdictRow, ...]
    compared: bool
    rows: tuple[DifferenceRow, ...]
    more: int
    left: tuple[str, ...]


def form_of(fields: Mapping[str, str]) -> WhatIfForm:
    """Return the fields of the form, bounded."""
    return WhatIfForm(
        text=fields.get("text", "").replace("\r\n", "\n"),
        mode="apply" if fields.get("mode") == "apply" else "submit",
        deleted=_names(fields.get("deleted", "")),
        lost_nodes=_names(fields.get("nodes", "")),
        until=fields.get("until", "").strip()[:LONGEST_NAME],
        assume=fields.get("assume", "").strip()[:LONGEST_NAME],
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(each[:LONGEST_NAME] for each in text.replace(",", " ").split()[:MOST_NAMES])


def what_if_view(read: WhatIfRead, query: Mapping[str, str], now: float) -> WhatIfView:
    """Return what the view shows."""
    del query, now
    answer = read.answer
    differing = (
        []
        if answer is None
        else [each for each in answer.differences if each.change not in {"Same", "Unknown"}]
    )
    return WhatIfView(
        form=read.form,
        deleted=" ".join(read.form.deleted),
        lost_nodes=" ".join(read.form.lost_nodes),
        problem=read.problem,
        hint=read.hint,
        notes=read.notes,
        verdicts=tuple(map(_verdict, read.verdicts)),
        compared=answer is not None,
        rows=tuple(map(_row, differing[:MOST_ROWS])),
        more=max(0, len(differing) - MOST_ROWS),
        left=() if answer is None else tuple(left_out(answer)),
    )


def _verdict(read: ReadVerdict) -> VerdictRow:
    given: Any = read.sent.get("metadata")
    metadata = given if isinstance(given, dict) else {}
    name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
    origins = read.origins
    queue = tuple(each for each in read.warnings if _is_verdict(each))
    return VerdictRow(
        name=cut(f"{read.sent.get('kind', '')} {name}", LONGEST_NAME, end="..."),
        accepted=not read.refusal,
        queue=queue,
        refusal=cut(read.refusal, LONGEST_REFUSAL, end="..."),
        warnings=tuple(each for each in read.warnings if each not in queue),
        fields=() if origins is None else tuple(map(field_row, origins.fields)),
        more=0 if origins is None else origins.more,
    )


def _is_verdict(warning: str) -> bool:
    """Tell whether a warning is the verdict of the queue."""
    return any(words in warning for words in _OF_QUEUE)


def _row(each: DifferenceAnswer) -> DifferenceRow:
    kind, _, name = each.job.partition("/")
    there = each.before is not None
    return DifferenceRow(
        namespace=each.namespace,
        job=each.job or f"Workload/{each.workload}",
        queue=each.cluster_queue,
        before=start_text(each.before),
        after=start_text(each.after),
        change=change_text(each),
        kind=each.change.lower(),
        link=f"/jobs/{each.namespace}/{kind}/{name}" if there and name else "",
    )

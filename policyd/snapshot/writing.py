"""Writes a snapshot for one reader: what of the queues it sees, and which jobs it has names of."""

from collections.abc import Generator, Iterable, Mapping, Set
from typing import Final

import msgspec
from msgspec.structs import replace

from policyd.api.meta import Json
from policyd.snapshot.explaining import PendingExplanation, reason_for
from policyd.snapshot.taking import STEP, FullQueue, FullSnapshot, Steps
from policyd.snapshot.values import (
    FORMAT,
    NONE,
    BudgetState,
    HoldingRow,
    LocalQueueName,
    Origin,
    PastUsage,
    PendingRow,
    PodShape,
    QueueSnapshot,
    SnapshotReason,
)
from policyd.status.naming import Naming, OtherTeams, team_of

_ENCODER: Final = msgspec.json.Encoder()
_NO_ONE: Final = LocalQueueName("", "")
_OF_JOBS: Final = frozenset(
    {
        *("apiVersion", "kind", "featureGates", "integrations"),
        *("manageJobsWithoutQueueName", "managedJobsNamespaceSelector"),
    }
)
"""The fields of a Configuration that say which jobs queue."""


def write(
    full: FullSnapshot,
    naming: Naming,
    trees: Set[str] | None = None,
    other_teams: OtherTeams | None = None,
) -> Generator[None, None, bytes]:
    """Write a snapshot as JSON, step by step.

    Args:
        full: The queues.
        naming: How jobs are named to the reader.
        trees: The tops of the trees that the reader may see; None for all, and the nodes.
        other_teams: How the reader is to name jobs to others; as they are named to it, if None.

    Yields:
        Nothing, after each step.

    Returns:
        The JSON.
    """
    queues: list[bytes] = []
    for page in full.queues:
        if trees is None or page.tree in trees:
            budgets = full.budgets.get(page.use.name, ())
            yield from _write_queue(page, naming, queues, budgets)
    head = QueueSnapshot(
        format=FORMAT,
        taken_at=full.taken_at,
        generation=full.generation,
        resource_version=full.resource_version,
        version=full.version,
        rules=full.rules,
        other_teams=other_teams or naming.others,
        configuration=_configuration(full, trees),
        usage_order=full.usage_order,
        local_queues=tuple(
            name
            for tree, name in full.local_queues
            if (trees is None or tree in trees) and naming.names(f"{name.namespace}/")
        ),
        cohorts=tuple(use for tree, use in full.cohorts if trees is None or tree in trees),
        nodes=full.nodes if trees is None else (),
    )
    return _filled(_ENCODER.encode(head), [queues])


def _configuration(full: FullSnapshot, trees: Set[str] | None) -> Mapping[str, Json] | None:
    """Return the Configuration; for a reader of a namespace, which jobs queue."""
    if full.configuration is None or trees is None:
        return full.configuration
    return {name: value for name, value in full.configuration.items() if name in _OF_JOBS}


def _write_queue(
    page: FullQueue, naming: Naming, queues: list[bytes], budgets: Iterable[BudgetState]
) -> Steps:
    tables = replace(
        page.use,
        budgets=tuple(
            each for each in budgets if "/" not in each.queue or naming.names(each.queue)
        ),
        local_queues=tuple(
            each if naming.names(f"{each.namespace}/") else _NO_ONE
            for each in page.local_queue_names
        ),
        past=tuple(_past(page, naming)),
        preemptor=page.preemptor,
        backing_off=tuple(page.backing_off),
        origins=tuple(
            origin if naming.names(f"{team}/") else Origin() for team, origin in page.origins
        ),
        requests=tuple(page.requests),
        shapes=tuple(_shapes(page, naming)),
        usages=tuple(page.usages),
        unlisted=page.unlisted,
        lines=tuple(page.lines),
        starts=tuple(page.starts),
        reasons=tuple(_reason(key, reason, naming) for key, reason in page.reasons),
    )
    yield
    pending, holding = [], []
    for start in range(0, len(page.pending), STEP):
        rows = page.pending[start : start + STEP]
        pending.append(_encoded(_pending(row, naming) for row in rows))
        yield
    for start in range(0, len(page.holding), STEP):
        held = page.holding[start : start + STEP]
        holding.append(_encoded(_holding(row, naming) for row in held))
        yield
    queues.append(_filled(_ENCODER.encode(tables), [pending, holding]))


def _past(page: FullQueue, naming: Naming) -> Iterable[PastUsage]:
    """Yield what the LocalQueues in the table used; nothing of those that are not named."""
    if not page.past:
        return
    for name in page.local_queues:
        yield page.past.get(name, PastUsage()) if naming.names(name) else PastUsage()


def _shapes(page: FullQueue, naming: Naming) -> Iterable[tuple[PodShape, ...]]:
    """Yield single pods; node labels that other teams select are theirs to tell."""
    if naming.all_named:
        return page.shapes
    return (tuple(PodShape(each.count, each.requests) for each in shapes) for shapes in page.shapes)


def _reason(
    key: str, reason: PendingExplanation | SnapshotReason, naming: Naming
) -> SnapshotReason:
    """Return a reason as the reader may know it: a condition is written for its own namespace."""
    if isinstance(reason, PendingExplanation):
        return reason_for(reason, naming)
    return reason if naming.names(key) else SnapshotReason(type=reason.type)


def _pending(row: PendingRow, naming: Naming) -> PendingRow:
    if naming.names(row.key):
        return row
    key = _team(row.key, naming)
    return replace(row, key=key, job="", local_queue=NONE, origin=NONE)


def _holding(row: HoldingRow, naming: Naming) -> HoldingRow:
    if naming.names(row.key):
        return row
    return replace(row, key=_team(row.key, naming), job="", local_queue=NONE)


def _team(key: str, naming: Naming) -> str:
    return f"{team_of(key)}/" if naming.others == "team" else ""


def _encoded(rows: Iterable[PendingRow | HoldingRow]) -> bytes:
    return _ENCODER.encode(list(rows))[1:-1]


def _filled(encoded: bytes, lists: list[list[bytes]]) -> bytes:
    """Put encoded items into the lists that are the last fields of an object, and are empty."""
    assert encoded.endswith(b"[]}"), "the last field is an empty list"
    parts: list[bytes] = []
    for items in reversed(lists):
        encoded, _, end = encoded.rpartition(b"[]")
        parts[:0] = [b"[", b",".join(items), b"]", end]
    return b"".join([encoded, *parts])

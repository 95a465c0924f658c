"""Queues and cohorts, what changed, and what needs attention."""

from collections.abc import Mapping
from dataclasses import dataclass

from policyd.snapshot.values import QueueSnapshot


@dataclass(frozen=True, slots=True)
class Overview:
    """What the view shows."""

    queues: int


def overview(snapshot: QueueSnapshot, query: Mapping[str, str], now: float) -> Overview:
    """Return what the view shows."""
    del query, now
    return Overview(queues=len(snapshot.cluster_queues))

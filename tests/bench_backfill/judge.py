"""How long jobs waited, by size, and whether reservations were kept."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Waits:
    """Mean waits in hours, by the GPUs of jobs; reservations, and those that were not kept."""

    one: float
    few: float
    large: float
    all: float
    reserved: int
    late: int
    seconds: float


def waits_of(jobs, starts, *, reserved, late, seconds):
    """Return the waits of jobs, each until its last start."""

    def mean(*classes):
        waits = [starts[job.key] - job.at for job in jobs if job.size_class in classes]
        return sum(waits) / max(1, len(waits)) / 3600

    return Waits(
        mean("1"), mean("2-7"), mean("8+"), mean("1", "2-7", "8+"), reserved, late, seconds
    )


def note_promises(state, promised):
    """Note the earliest start that the first in line was ever promised, by key."""
    state.settle()
    for each in state.extension._starts.of(state.extension.opted):
        if each.start < inf:
            promised[each.key] = min(each.start, promised.get(each.key, each.start))

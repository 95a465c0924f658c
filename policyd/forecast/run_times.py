"""How long jobs run, learnt from jobs that ended: life tables of groups of similar jobs.

A life table counts, for each step of run time, how many jobs reached it and how many of these ended
in it. Steps are a third of a doubling, so that a table is small however much it has seen. Jobs that
still run count for the steps that they reached, so long jobs are not missed because they have not
ended yet. Old observations fade.

Groups go from all jobs to jobs of the same queue, owner, name and shape. A small group is mixed
with the one around it, step by step: where few of its own jobs got that far, the wider group
decides.
"""

import re
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log2

from policyd.alloc.value import Value

STEPS_PER_DOUBLING = 3
STEPS = 24 * STEPS_PER_DOUBLING
"""From one second to half a year."""

ENOUGH = 5.0
"""Jobs that must have ended, faded ones counted in part, before there is a forecast."""

_PRIOR = 20.0
"""Jobs of the wider group that count as much as the jobs of the group itself."""

_TAIL = 3.0
"""How run times end that few reach: one in 2 to this power of them doubles its time. More likely
than 1 by the run times of a part of a trace that judges nothing."""

_FAR = 1.0 - 2.0 ** (-_TAIL / STEPS_PER_DOUBLING)
"""The probability of an end in a step that few reach."""

_SUFFIX = re.compile(r"[-_.](?:\d+|[0-9a-f]{8,}|[bcdfghjklmnpqrstvwxz2456789]{5})$")
"""A number, a hash, or what `generateName` appends, which has no vowels."""


class JobTraits(Value, frozen=True):
    """What similar jobs have in common.

    Attributes:
        queue: The ClusterQueue.
        owner: The user or team; "" if that is not to be remembered.
        stem: The name without its number; "" if that is not to be remembered.
        shape: What all pods request together, in words that are equal for equal requests.
    """

    queue: str = ""
    owner: str = ""
    stem: str = ""
    shape: str = ""

    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Return the groups that the job belongs to, the widest first."""
        queue, owner, stem, shape = self.queue, self.owner, self.stem, self.shape
        groups = [(), ("shape", shape), ("queue", queue, shape)]
        if owner:
            groups.append(("owner", queue, owner, shape))
        if stem:
            groups += [("stem", queue, owner, stem), ("all", queue, owner, stem, shape)]
        return tuple(groups)


def stem_of(name: str) -> str:
    """Return a job's name without the numbers and hashes at its end."""
    shorter = _SUFFIX.sub("", name)
    return name if shorter == name else stem_of(shorter)


class RunTimeCurve:
    """The probability that a job still runs, by how long it has run."""

    def __init__(self, hazards: Sequence[float]) -> None:
        """Take the probability of an end in each step, of jobs that reach it, from 0 to 1 each."""
        self._alive = [1.0]
        for hazard in hazards:
            self._alive.append(self._alive[-1] * (1.0 - hazard))
        self._falling = [-each for each in self._alive]

    def quantile(self, part: float, *, ran: float = 0.0) -> float:
        """Return the run time in seconds that a part of the jobs does not exceed.

        Args:
            part: At least 0 and below 1.
            ran: How long the job has run, in seconds; only jobs that ran as long count.

        Returns:
            At least `ran`.
        """
        left = (self._alive_after(ran) if ran else 1.0) * (1.0 - part)
        if left <= self._alive[-1]:
            longer: float = (1.0 - part) ** (-1.0 / _TAIL)
            return max(ran * longer, _begin(STEPS))
        step = bisect_left(self._falling, -left) - 1
        if step < 0:
            return ran
        above, below = self._alive[step], self._alive[step + 1]
        within = (above - left) / (above - below)
        return max(ran, _begin(step + within) if step else _begin(1) * within)

    def part(self, seconds: float) -> float:
        """Return the part of the jobs that do not outlast a run time."""
        return 1.0 - self._alive_after(seconds) if seconds else 0.0

    def _alive_after(self, ran: float) -> float:
        position = _position(ran)
        step = min(STEPS - 1, int(position))
        above, below = self._alive[step], self._alive[step + 1]
        return above + (below - above) * (position - step)


def _position(seconds: float) -> float:
    """Return the step that a run time is in, and the part of it that has passed."""
    if seconds < _begin(1):
        return max(0.0, seconds / _begin(1))
    return min(float(STEPS), log2(seconds) * STEPS_PER_DOUBLING)


def _begin(step: float) -> float:
    """Return the run time in seconds at which a step begins."""
    return float(2.0 ** (step / STEPS_PER_DOUBLING))


_LENGTHS = [_begin(step + 1) - _begin(step) for step in range(STEPS)]
"""Seconds of each step."""


class GroupRecord(Value, frozen=True):
    """A life table as it is stored.

    Attributes:
        names: Of the group.
        faded_at: Up to when its observations have faded, in seconds.
        ended: Jobs that ended in each step.
        stopped: Jobs that were stopped in each step before their end.
    """

    names: tuple[str, ...]
    faded_at: float
    ended: tuple[float, ...]
    stopped: tuple[float, ...]


class _LifeTable:
    """Jobs that ended, and jobs that were stopped before their end, by step."""

    __slots__ = ("ended", "faded_at", "stopped")

    def __init__(self, at: float) -> None:
        self.faded_at = at
        self.ended = array("d", bytes(8 * STEPS))
        self.stopped = array("d", bytes(8 * STEPS))

    def fade(self, at: float, half_life: float) -> None:
        """Let observations count less; at most once a hundredth of the half-life."""
        passed = at - self.faded_at
        if passed > half_life / 100:
            factor = 0.5 ** (passed / half_life)
            self.ended = array("d", (each * factor for each in self.ended))
            self.stopped = array("d", (each * factor for each in self.stopped))
            self.faded_at = at


class RunTimeHistory:
    """Life tables of groups of jobs, in bounded memory.

    Attributes:
        most_groups: How many groups are remembered; the one not heard of for longest goes first.
            Each takes about 1.3 kB.
        half_life_seconds: After how long an observation counts half.
    """

    def __init__(
        self, *, most_groups: int = 10_000, half_life_seconds: float = 20 * 86_400.0
    ) -> None:
        self.most_groups = most_groups
        self.half_life_seconds = half_life_seconds
        self._tables: OrderedDict[tuple[str, ...], _LifeTable] = OrderedDict()
        self._at = 0.0

    def __len__(self) -> int:
        return len(self._tables)

    def observe(
        self, traits: JobTraits, ran_seconds: float, *, at: float, ended: bool = True
    ) -> None:
        """Remember a run.

        Args:
            traits: Of the job.
            ran_seconds: How long it ran, at least 0.
            at: When the run was over, in seconds.
            ended: Whether it came to its end; else it was stopped before.
        """
        step, self._at = min(STEPS - 1, int(_position(ran_seconds))), max(self._at, at)
        for names in traits.groups():
            table = self._tables.get(names)
            if table is None:
                table = self._tables[names] = _LifeTable(at)
            table.fade(at, self.half_life_seconds)
            (table.ended if ended else table.stopped)[step] += 1.0
            self._tables.move_to_end(names)
        while len(self._tables) > self.most_groups:
            self._tables.popitem(last=False)

    def curves(self, running: Iterable[tuple[JobTraits, float]] = ()) -> "RunTimeCurves":
        """Return what is known now.

        Args:
            running: Jobs that run, and for how many seconds each.
        """
        return RunTimeCurves(
            self._tables, running, at=self._at, half_life_seconds=self.half_life_seconds
        )

    def records(self) -> Iterator[GroupRecord]:
        """Yield what is remembered, to be stored."""
        for names, table in self._tables.items():
            yield GroupRecord(
                names=names,
                faded_at=table.faded_at,
                ended=tuple(table.ended),
                stopped=tuple(table.stopped),
            )

    def restore(self, records: Iterable[GroupRecord]) -> None:
        """Remember what was stored.

        Raises:
            ValueError: If a record has another number of steps than this version.
        """
        for record in records:
            if len(record.ended) != STEPS or len(record.stopped) != STEPS:
                raise ValueError(
                    f"the record of {record.names} has {len(record.ended)} steps, not {STEPS}"
                )
            self._at = max(self._at, record.faded_at)
            table = self._tables[record.names] = _LifeTable(record.faded_at)
            table.ended, table.stopped = array("d", record.ended), array("d", record.stopped)


class RunTimeCurves:
    """Curves of all groups as they are known at one time."""

    def __init__(
        self,
        tables: Mapping[tuple[str, ...], _LifeTable],
        running: Iterable[tuple[JobTraits, float]],
        *,
        at: float,
        half_life_seconds: float,
    ) -> None:
        self._tables, self._at, self._half_life = tables, at, half_life_seconds
        # A job that reached a later step was in an earlier one before, so that this counts less:
        # otherwise those that end would fade, and those that go on would not.
        self._earlier = [0.5 ** (each / half_life_seconds) for each in _LENGTHS]
        self._running: dict[tuple[str, ...], list[float]] = {}
        for traits, ran_seconds in running:
            step = min(STEPS - 1, int(_position(ran_seconds)))
            for names in traits.groups():
                self._running.setdefault(names, [0.0] * STEPS)[step] += 1.0
        self._hazards: dict[tuple[str, ...], list[float]] = {}
        self._curves: dict[JobTraits, RunTimeCurve] = {}
        everything = tables.get(())
        self.known = everything is not None and sum(everything.ended) >= ENOUGH

    def of(self, traits: JobTraits) -> RunTimeCurve | None:
        """Return the curve of jobs like this one; None if hardly any job has ended yet."""
        if not self.known:
            return None
        curve = self._curves.get(traits)
        if curve is None:
            hazards = [_FAR] * STEPS
            for names in traits.groups():
                hazards = self._mixed(names, hazards)
            curve = self._curves[traits] = RunTimeCurve(hazards)
        return curve

    def _mixed(self, names: tuple[str, ...], wider: list[float]) -> list[float]:
        """Return the probability of an end in each step, mixed with that of the wider group."""
        if names in self._hazards:
            return self._hazards[names]
        table, running = self._tables.get(names), self._running.get(names)
        if table is None and running is None:
            return wider
        table = table or _LifeTable(self._at)
        prior = _PRIOR if names else 1.0
        faded = 0.5 ** (max(0.0, self._at - table.faded_at) / self._half_life)
        mixed, reached = [0.0] * STEPS, 0.0
        for step in range(STEPS - 1, -1, -1):
            # A job that was last seen within a step counts for half of the step.
            seen = faded * table.stopped[step] + (running[step] if running else 0.0)
            ends = faded * table.ended[step]
            reached = self._earlier[step] * reached + ends + seen
            mixed[step] = (ends + prior * wider[step]) / (reached - seen / 2 + prior)
        self._hazards[names] = mixed
        return mixed

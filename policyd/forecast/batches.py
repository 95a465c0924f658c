"""Jobs that come together run alike: the jobs of an array, or of one sweep of a user.

Jobs of the same queue, owner, name and shape that come within a minute of each other are one
*batch*. Their run times differ less than those of other such jobs: in each draw the batch has a
common number, and each job one of its own beside it, as two parts of one normally distributed
number. What has ended of a batch, and how long the others have run, tells what its common number
can be.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import erf, exp, inf, sqrt
from operator import mul
from statistics import NormalDist
from typing import NamedTuple

from policyd.forecast.run_times import JobTraits, RunTimeCurve, RunTimeCurves
from policyd.simulate.draws import DrawnNumbers, spread

GAP_SECONDS = 60.0
"""Between two jobs of a batch, at most."""
LIKENESS = 0.98
"""Part of the variance that the jobs of a batch have in common, but for those that are not alike.

On a trace of GPU jobs, half of the run times of one job and the next of its batch differ by less
than 12 %.
"""
UNLIKE = 0.05
"""Part of the jobs that are not like their batch: they failed early, or never came to an end."""
AGAIN, AGAIN_SECONDS = 0.4, 6 * 3_600.0
"""How much of its common number a batch takes from the one before, if it comes soon enough."""
MOST_MEMBERS = 8
"""Members that tell about their batch: more would only repeat it."""

_COMMON, _OWN = sqrt(LIKENESS), sqrt(1.0 - LIKENESS)
_NORMAL = NormalDist()
_WIDTH = 0.06
_GRID = [_WIDTH * step for step in range(-60, 61)]
_LEAST = 1e-6


class _Member(NamedTuple):
    """A job of a batch: its key, "" if it has ended; how long it ran, None if it is pending."""

    at: float
    key: str
    ran_seconds: float | None


class RecentRuns:
    """Jobs that ended lately, in bounded memory.

    Attributes:
        most_streams: How many groups of jobs are remembered.
        most_runs: How many jobs of each.
    """

    def __init__(self, *, most_streams: int = 2_000, most_runs: int = 64) -> None:
        self.most_streams, self.most_runs = most_streams, most_runs
        self._runs: OrderedDict[JobTraits, deque[_Member]] = OrderedDict()

    def observe(self, traits: JobTraits, ran_seconds: float, *, queued_at: float) -> None:
        """Remember a job that came to its end.

        Args:
            traits: Of the job.
            ran_seconds: How long it ran.
            queued_at: When it came, in seconds.
        """
        runs = self._runs.get(traits)
        if runs is None:
            runs = self._runs[traits] = deque(maxlen=self.most_runs)
        runs.append(_Member(queued_at, "", ran_seconds))
        self._runs.move_to_end(traits)
        while len(self._runs) > self.most_streams:
            self._runs.popitem(last=False)

    def of(self, traits: JobTraits) -> Iterable[_Member]:
        """Return the jobs that ended, of those with the same traits."""
        return self._runs.get(traits, ())


class Batches:
    """The batches of jobs that run or are pending, and the numbers of each job in each draw."""

    def __init__(self, recent: RecentRuns, curves: RunTimeCurves, draws: int) -> None:
        """Begin without jobs; the number of draws is a prime."""
        self._recent, self._curves, self._draws = recent, curves, draws
        self._members: dict[JobTraits, list[_Member]] = {}
        self._parts: dict[str, list[float]] = {}

    def add(
        self, key: str, traits: JobTraits, *, queued_at: float, ran_seconds: float | None
    ) -> None:
        """Add a job.

        Args:
            key: Of the job.
            traits: What it has in common with others.
            queued_at: When it came, in seconds.
            ran_seconds: How long it has run; None if it is pending.
        """
        member = _Member(queued_at, key, ran_seconds)
        self._members.setdefault(traits, []).append(member)

    def draw(self) -> Iterator[None]:
        """Draw the numbers of all jobs; yield nothing, after each job."""
        for traits, members in self._members.items():
            curve = self._curves.of(traits)
            if curve is not None:
                yield from self._draw_batches(curve, traits, members)

    def parts(self, key: str) -> list[float]:
        """Return which part of all jobs like it a job does not outlast, in each draw."""
        return self._parts[key]

    def _draw_batches(
        self, curve: RunTimeCurve, traits: JobTraits, members: list[_Member]
    ) -> Iterator[None]:
        first = min(member.at for member in members)
        ended = (each for each in self._recent.of(traits) if each.at > first - AGAIN_SECONDS)
        name = f"{traits.queue} {traits.owner} {traits.stem} {traits.shape}"
        common, last = [0.0] * self._draws, -inf
        for batch in _split(sorted([*ended, *members])):
            again = AGAIN if batch[0].at - last < AGAIN_SECONDS else 0.0
            parts = spread(f"{name} {int(batch[0].at)}", self._draws)
            common = _commons(curve, batch, parts, [again * each for each in common], again)
            last = batch[-1].at
            yield from self._draw_batch(curve, batch, common)

    def _draw_batch(
        self, curve: RunTimeCurve, batch: list[_Member], common: list[float]
    ) -> Iterator[None]:
        for member in batch:
            if not member.key:
                continue
            least = -9.0 if member.ran_seconds is None else _normal_of(curve, member.ran_seconds)
            parts = spread(member.key, self._draws)
            self._parts[member.key] = [
                _part(shared, own, least) for shared, own in zip(common, parts, strict=True)
            ]
            yield


class ForecastBatches:
    """The batches of jobs that come later, in one draw."""

    def __init__(self, drawn: DrawnNumbers) -> None:
        """Begin with the first job; `drawn` gives the numbers."""
        self._drawn = drawn
        self._latest: dict[JobTraits, tuple[float, float]] = {}

    def part(self, traits: JobTraits, *, at: float) -> float:
        """Return which part of all jobs like it the next job does not outlast.

        Args:
            traits: What it has in common with others.
            at: When it comes, in seconds, not before the last one.
        """
        came, common = self._latest.get(traits, (-inf, 0.0))
        if at - came > GAP_SECONDS:
            common = _normal(self._drawn.next())
        self._latest[traits] = at, common
        return _part(common, self._drawn.next(), -9.0)


def _part(common: float, own: float, least: float) -> float:
    """Return the part of jobs that one does not outlast, given what its batch has in common."""
    middle = _COMMON * common
    below = _below((least - middle) / _OWN)
    if own < UNLIKE or below > 1.0 - _LEAST:  # or it has outlasted what its batch tells
        part = own / UNLIKE if own < UNLIKE else (own - UNLIKE) / (1.0 - UNLIKE)
        below = _below(least)
        return below + (1.0 - below) * part
    own = (own - UNLIKE) / (1.0 - UNLIKE)
    return _below(middle + _OWN * _normal(below + (1.0 - below) * own))


def _commons(
    curve: RunTimeCurve,
    batch: list[_Member],
    parts: list[float],
    expected: list[float],
    again: float,
) -> list[float]:
    """Return the common number of a batch in each draw, by what is known of its members.

    Args:
        curve: How long such jobs run.
        batch: The members.
        parts: Which part of what is possible the number is, in each draw.
        expected: What it is on average, by the batch before.
        again: How much it is like that one, from 0 to 1.
    """
    known_runs = _telling(batch)
    own = sqrt(1.0 - again * again)
    if not known_runs:
        return [e + own * _normal(part) for e, part in zip(expected, parts, strict=True)]
    weights = [1.0] * len(_GRID)
    for member, ran in known_runs:
        number, runs = _normal_of(curve, ran), bool(member.key)
        unlike = 1.0 - _below(number) if runs else _OWN * exp(-number * number / 2)
        for place, common in enumerate(_GRID):
            off = (number - _COMMON * common) / _OWN
            alike = 1.0 - _below(off) if runs else exp(-off * off / 2)
            weights[place] *= (1.0 - UNLIKE) * alike + UNLIKE * unlike
        most = max(weights)
        weights = [each / most for each in weights]
    rest = 2.0 * own * own
    found, sums = [], [0.0]
    for draw, (part, middle) in enumerate(zip(parts, expected, strict=True)):
        if again or not draw:
            prior = [exp(-((common - middle) ** 2) / rest) for common in _GRID]
            sums = list(accumulate(map(mul, weights, prior)))
        found.append(_at(sums, part * sums[-1]))
    return found


def _telling(batch: list[_Member]) -> list[tuple[_Member, float]]:
    """Return the members that tell most, with how long they ran: the last ended, the first runs."""
    known = [(each, each.ran_seconds) for each in batch if each.ran_seconds is not None]
    ended = [each for each in known if not each[0].key][-MOST_MEMBERS:]
    running = [each for each in known if each[0].key]
    return [*ended, *running[: MOST_MEMBERS - len(ended)]]


def _at(sums: list[float], target: float) -> float:
    before = 0.0
    for place, until in enumerate(sums):
        if until >= target and until > before:
            return _GRID[place] + _WIDTH * ((target - before) / (until - before) - 0.5)
        before = until
    return _GRID[-1]


def _split(members: list[_Member]) -> Iterator[list[_Member]]:
    batch: list[_Member] = []
    for member in members:
        if batch and member.at - batch[-1].at > GAP_SECONDS:
            yield batch
            batch = []
        batch.append(member)
    if batch:
        yield batch


def _normal_of(curve: RunTimeCurve, seconds: float) -> float:
    return _normal(curve.part(seconds))


def _normal(part: float) -> float:
    return _NORMAL.inv_cdf(min(max(part, _LEAST), 1.0 - _LEAST))


def _below(number: float) -> float:
    return 0.5 + 0.5 * erf(number / 1.4142135623730951)

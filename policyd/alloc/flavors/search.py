"""The search for flavors: which one each pod set gets for each resource, if any.

For every resource group that pod sets need, the flavors are tried in the queue's order. A flavor is
as good as its worst resource. The queue's fungibility says when to stop; if none simply fits, the
best one is kept, since quota of it may come free, or be taken by preemption.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from policyd.alloc.flavors.assignment import (
    Assignment,
    Attempt,
    FlavorOption,
    GroupResult,
    Progress,
    Requests,
    SearchResult,
)
from policyd.alloc.queue import Fungibility, QueueSpec
from policyd.alloc.quota import QuotaTree
from policyd.alloc.reasons import Mode, Unsuitable
from policyd.alloc.settings import QueueingSettings

Found = tuple[Mode, int]
"""How something would be had, and how far up the tree it would borrow."""

Oracle = Callable[[int, int], Found]
"""Tells how an amount of a cell would be had by preemption."""

Pins = tuple[tuple[str, ...], ...]
"""The only flavors to try, by group of pod sets and of resources."""

_FITS: Found = (Mode.FIT, 0)
_NEVER: Found = (Mode.NO_FIT, 0)
_VIABLE = 2


class FlavorScan(NamedTuple):
    """Which flavors to try: on from where the last search came to, and of pins only these."""

    progress: Progress | None = None
    pins: Pins | None = None

    def start(self, group: int, search: int) -> int:
        """Return the place of the first flavor to try."""
        tried = () if self.progress is None else self.progress.tried
        return tried[group][search] + 1 if group < len(tried) and search < len(tried[group]) else 0

    def pin(self, group: int, search: int) -> str | None:
        """Return the only flavor to try, None if all are, "" if none is."""
        if self.pins is None:
            return None
        pins = self.pins[group] if group < len(self.pins) else ()
        return pins[search] if search < len(pins) else ""


EVERYWHERE = FlavorScan()
"""All flavors, from the first."""


class FlavorSearch:
    """The search by the rules of one queue."""

    __slots__ = ("_fungibility", "_preempts_borrowing", "tree")

    in_order = True
    """Whether flavors are tried in the order of the queue."""

    def __init__(self, tree: QuotaTree, queue: QueueSpec, settings: QueueingSettings) -> None:
        policy = queue.preemption
        self.tree = tree
        self._fungibility = queue.fungibility if settings.gates.flavor_fungibility else None
        self._preempts_borrowing = policy.borrow_within_cohort != "Never" or (
            settings.fair_sharing is not None and policy.reclaim_within_cohort != "Never"
        )

    def assign(
        self, requests: Requests, oracle: Oracle | None = None, scan: FlavorScan = EVERYWHERE
    ) -> Assignment:
        """Choose flavors of a scan for a workload; without an oracle it has no targets."""
        plain = requests.plain
        if plain and scan is EVERYWHERE and self.tree.fits(plain.charges, borrowing=False):
            return plain
        assignment = Assignment()
        for number, group in enumerate(requests.groups):
            searches: list[SearchResult] = []
            for place, options in enumerate(group.searches):
                pinned, start = _pinned(options, scan.pin(number, place)), scan.start(number, place)
                searches.append(self._search(pinned, start, assignment.charges, oracle))
                if searches[-1].option is None:
                    break
            assignment.add(GroupResult(group, searches))
            if assignment.mode is Mode.NO_FIT:
                break
        return assignment

    def _search(
        self,
        options: tuple[FlavorOption, ...],
        start: int,
        assumed: Mapping[int, int],
        oracle: Oracle | None,
    ) -> SearchResult:
        """Find the best flavor for a group of resources."""
        result, best = SearchResult(), _NEVER
        options = options if self.in_order else self.arranged(options)
        place = -1
        for place in range(start, len(options)):
            option = options[place]
            if option.barred:
                result.barred.extend(option.obstacles)
                continue
            attempt = self._try(option, assumed, oracle)
            found = _FITS if attempt is None else (attempt.mode, attempt.level)
            if attempt is not None:
                result.attempts.append(attempt)
            stop = self._stops(found)
            if stop or better(self._fungibility, found, best):
                result.option, result.attempt, best = option, attempt, found
            if stop:
                break
        result.tried = -1 if place == len(options) - 1 or not self.in_order else place
        return result

    def arranged(self, options: tuple[FlavorOption, ...]) -> tuple[FlavorOption, ...]:
        """Return flavors in the order in which they are tried, if that is not the queue's."""
        return options

    def _try(
        self, option: FlavorOption, assumed: Mapping[int, int], oracle: Oracle | None
    ) -> Attempt | None:
        """Try one flavor; None if it simply fits."""
        if option.obstacles:
            return Attempt(option, Mode.NO_FIT)
        strained = self.tree.strained(option.charges, assumed)
        if not strained:
            return None
        attempt, worst = Attempt(option, Mode.FIT), _FITS
        for need in strained:
            found = self._weigh(attempt, need, oracle)
            attempt.hardest = min(attempt.hardest, found[0])
            attempt.borrowing = max(attempt.borrowing, found[1])
            if worst is _FITS or better(self._fungibility, worst, found):
                worst = found
            if found[0] is Mode.NO_FIT:
                break
        attempt.mode, attempt.level = worst
        return attempt

    def _weigh(self, attempt: Attempt, need: tuple[int, int], oracle: Oracle | None) -> Found:
        """Return how a resource's need would be met, and note the missing amount."""
        (cell, needed), tree = need, self.tree
        potential = tree.potential[cell]
        if needed > potential:
            attempt.notes.append((cell, needed, potential, False))
            return _NEVER
        level, reclaimable = tree.borrowing_level(cell, needed)
        available = tree.available(cell)
        if needed <= max(0, available):
            return Mode.FIT, level
        attempt.notes.append((cell, needed, available, True))
        if not (reclaimable or self._preempts_borrowing or tree.nominal[cell] >= needed):
            return Mode.NO_FIT, level
        if oracle is None:
            return Mode.BLOCKED, level
        found = oracle(cell, needed)
        return (Mode.BLOCKED, level) if found[0] is Mode.BLOCKED else found

    def _stops(self, found: Found) -> bool:
        """Tell whether a flavor is so good that no further one is tried."""
        (mode, level), fungibility = found, self._fungibility
        if mode is Mode.FIT and (not level or fungibility is None):
            return True
        if mode < Mode.PREEMPT or fungibility is None:
            return False
        if mode is not Mode.FIT and fungibility.when_can_preempt == "TryNextFlavor":
            return False
        return not level or fungibility.when_can_borrow != "TryNextFlavor"


def better(fungibility: Fungibility | None, a: Found, b: Found) -> bool:
    """Tell whether `a` is to be preferred to `b`, by a queue's fungibility; if None, by mode."""
    if fungibility is None:
        return a[0] > b[0]
    if a[0] is b[0]:
        return a[1] < b[1]
    return _rank(fungibility, a) > _rank(fungibility, b)


def _rank(fungibility: Fungibility, found: Found) -> tuple[int, int, int]:
    mode, level = found
    viable = min(mode, _VIABLE)
    if fungibility.preference == "PreemptionOverBorrowing":
        return viable, -level, mode
    return viable, mode, -level


def _pinned(options: tuple[FlavorOption, ...], pin: str | None) -> tuple[FlavorOption, ...]:
    """Bar all flavors but the one that was nominated."""

    def barred(option: FlavorOption) -> FlavorOption:
        why = Unsuitable(kind="NotNominated", name=option.name, detail=option.resources[0])
        return replace(option, obstacles=(why,), barred=True)

    return options if pin is None else tuple(o if o.name == pin else barred(o) for o in options)

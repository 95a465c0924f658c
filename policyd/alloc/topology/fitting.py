"""Fitting: the level and domains that hold a goal, and shares of it down to the lowest level."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from policyd.alloc.topology.feasibility import DomainRoom, Units


class Fit(NamedTuple):
    """Domains of a level that hold everything together."""

    level: int
    domains: list[int]


class Partial(NamedTuple):
    """Nothing holds everything: how much of it would fit where it was looked at last."""

    level: int
    fitting: int


class DomainShare(NamedTuple):
    """The share of a domain."""

    domain: int
    pods: int
    leaders: int


def choose(room: DomainRoom) -> Fit | Partial:
    """Find the lowest level, from the one that was asked for upwards, that holds everything.

    Required pods are in one domain of their level. Preferred ones are in one domain of it, or else
    in one of the next level up, and so on; in several of the highest otherwise.
    Unconstrained ones are in one domain of their level, or else in several of it.
    """
    goal, level = room.goal, room.goal.level
    if room.leaders is None and room.score is None and room.most() < goal.slices:
        return Partial(0 if goal.mode == "Preferred" else level, room.most())
    while True:
        domains = room.leading_order(room.tree.at[level])
        single = _single(room, domains)
        if single is not None:
            return Fit(level, [single])
        if goal.mode == "Required":
            return Partial(level, room.slices[domains[0]])
        if level == 0 or goal.mode == "Unconstrained":
            return _several(room, level, domains)
        level -= 1


def holds(room: DomainRoom) -> bool:
    """Tell whether everything goes somewhere, as `choose` would find."""
    if room.leaders is None:
        return room.most() >= room.goal.slices
    return isinstance(choose(room), Fit)


def distribute(room: DomainRoom, fit: Fit, *, balanced: bool = False) -> list[DomainShare]:
    """Share everything out to domains of the lowest level, as few as the order allows.

    Above the level of slices, the chosen domains are one pool. From there on down every
    domain gives its share to those in it. The shares of `balanced` domains stay with them.
    """
    goal, tree = room.goal, room.tree
    whole = DomainShare(-1, goal.count, goal.leaders)
    slices = (room.slices, room.slices_beside)
    shares = take(room, fit.domains, whole, size=goal.slice_size, units=slices)
    level, last = fit.level, len(tree.levels) - 1
    while level < goal.slice_level and not balanced:
        pool = in_order(room, chain.from_iterable(tree.children[s.domain] for s in shares))
        shares = take(room, room.plain_order(pool), whole, size=goal.slice_size, units=slices)
        level += 1
    while level < last:
        size = goal.slice_size if level < goal.slice_level else goal.inner.get(level + 1, 1)
        shares = [each for share in shares for each in _share_out(room, share, size)]
        level += 1
    return shares


def take(
    room: DomainRoom,
    domains: list[int],
    whole: DomainShare,
    *,
    size: int,
    units: tuple[Units, Units],
) -> list[DomainShare]:
    """Take from domains in their order until the whole has a place.

    The last domain is the one with the least room that suffices, unless domains with little room
    go first. A unit is `size` pods; `units` tells how many go where, and how many beside a leader.
    """
    plain, beside = units
    left, leaders = whole.pods // size, whole.leaders
    domains = _leader_first(room, domains, left, leaders=leaders, units=units)
    shares = []
    for place, first in enumerate(domains):
        domain, rooms = first, beside if leaders else plain
        suffices = rooms[domain] >= left and room.hosts(domain, leaders)
        if suffices and not room.goal.ascending:
            domain = room.best_fit(domains[place:], left, leaders=leaders, units=rooms)
        got = min(rooms[domain], left)
        led = min(leaders, room.leaders[domain]) if room.leaders is not None else 0
        if got or led:
            shares.append(DomainShare(domain, got * size, led))
        left -= got
        leaders -= led
        if not left and not leaders:
            break
    return shares


def is_whole(room: DomainRoom, shares: Iterable[DomainShare]) -> bool:
    """Tell whether all pods were placed."""
    whole = [(share.pods, share.leaders) for share in shares]
    goal = room.goal
    return (sum([n for n, _ in whole]), sum([n for _, n in whole])) == (goal.count, goal.leaders)


def in_order(room: DomainRoom, domains: Iterable[int]) -> list[int]:
    """Return domains of one level in the order of their values."""
    return sorted(domains, key=room.tree.rank.__getitem__)


def _single(room: DomainRoom, domains: list[int]) -> int | None:
    """Return the domain that holds everything, of domains in their order, if one is chosen."""
    goal, units = room.goal, room.slices_beside
    if goal.ascending or (room.score is not None and goal.mode == "Required"):
        searched = range(_first_with(room, domains, goal.slices), len(domains))
    else:
        searched = range(1)
    for place in searched:
        if units[domains[place]] >= goal.slices and room.hosts(domains[place], goal.leaders):
            if goal.ascending:
                return domains[place]
            rest = domains[place:]
            return room.best_fit(rest, goal.slices, leaders=goal.leaders, units=units)
    return None


def _first_with(room: DomainRoom, domains: list[int], units: int) -> int:
    """Return a place in domains in their order, before which all have less room than `units`."""
    if not room.goal.ascending or room.score is not None or room.leaders is not None:
        return 0
    return bisect_left(domains, units, key=room.slices.__getitem__)


def _several(room: DomainRoom, level: int, domains: list[int]) -> Fit | Partial:
    goal, units = room.goal, (room.slices, room.slices_beside)
    left, leaders = goal.slices, goal.leaders
    domains = _leader_first(room, domains, left, leaders=leaders, units=units)
    chosen: list[int] = []
    while leaders and len(chosen) < len(domains) and room.hosts(domains[len(chosen)], 1):
        domain = _last_or_first(room, domains[len(chosen) :], left, leaders=leaders)
        chosen.append(domain)
        leaders -= 1
        left -= room.slices_beside[domain]
    if leaders:
        return Partial(level, goal.leaders - leaders)
    rest = room.plain_order(in_order(room, domains[len(chosen) :])) if goal.leaders else domains
    for place in range(_first_with(room, rest, 1), len(rest)):
        if left <= 0:
            break
        domain = rest[place]
        if room.slices[domain] >= left:
            domain = _last_or_first(room, rest[place:], left, leaders=0)
        if room.slices[domain]:
            chosen.append(domain)
            left -= room.slices[domain]
    return Partial(level, goal.slices - left) if left > 0 else Fit(level, chosen)


def _last_or_first(room: DomainRoom, domains: list[int], left: int, *, leaders: int) -> int:
    """Return the best domain to hold all that is left, if the first could; else the first."""
    units = room.slices_beside if leaders else room.slices
    if room.goal.ascending or units[domains[0]] < left:
        return domains[0]
    return room.best_fit(domains, left, leaders=leaders, units=units)


def _leader_first(
    room: DomainRoom, domains: list[int], needed: int, *, leaders: int, units: tuple[Units, Units]
) -> list[int]:
    """Move the first domain to the front that can host the leader so that the rest still fits."""
    if not leaders or len(domains) < 2:
        return domains
    plain, beside = units
    spare = sum([plain[domain] for domain in domains]) - needed
    for place, domain in enumerate(domains):
        if room.hosts(domain, leaders) and plain[domain] - beside[domain] <= spare:
            return [domain, *domains[:place], *domains[place + 1 :]]
    return domains


def _share_out(room: DomainRoom, share: DomainShare, size: int) -> Sequence[DomainShare]:
    kids = room.plain_order(room.tree.children[share.domain])
    units: tuple[Units, Units] = (room.pods, room.beside)
    if size > 1:
        units = (
            {kid: room.pods[kid] // size for kid in kids},
            {kid: room.beside[kid] // size for kid in kids},
        )
    return take(room, kids, share, size=size, units=units)

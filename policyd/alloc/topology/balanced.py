"""Balanced placement: as few domains as possible, with about as many slices in each.

Of sets of siblings, one is chosen in which the domain that gets least gets most: the *threshold*.
Domains with less room than that are left out, and every one that is used gets as much at least.
"""

from collections.abc import Iterable
from math import log2
from typing import NamedTuple

from policyd.alloc.topology.feasibility import DomainRoom, Units
from policyd.alloc.topology.fitting import Fit, in_order

Chosen = tuple[int, "Chosen"] | None
"""Domains, the last one first."""


class Greedy(NamedTuple):
    """How many domains are used one after the other; the last without, and with, a leader."""

    used: int
    last: int | None
    last_led: int | None


class Balance(NamedTuple):
    """The best that was found: room with only domains that reach the threshold."""

    threshold: int
    used: int
    domains: list[int]
    room: DomainRoom


def balance(room: DomainRoom) -> tuple[Fit, DomainRoom] | None:
    """Place slices evenly: return domains, and exactly the room that they get; None if it fails."""
    found = best_balance(room)
    if found is None:
        return None
    goal, level, domains = room.goal, room.goal.level, found.domains
    if level < goal.slice_level:
        above = fewest_domains(found.room, domains, by_entropy=True)
        if above is None:
            return None
        domains = [child for domain in above for child in room.tree.children[domain]]
        level += 1
    shared = share_evenly(found.room, domains, threshold=found.threshold)
    return None if shared is None else (Fit(level, shared), found.room)


def best_balance(room: DomainRoom) -> Balance | None:
    """Return the set of siblings with the highest threshold; of equals, with fewest domains."""
    tree, level = room.tree, room.goal.level
    sets = [tree.children[d] for d in tree.at[level - 1]] if level else [tree.at[0]]
    best: Balance | None = None
    for siblings in sets:
        for threshold in _thresholds(room, siblings):
            if best is not None and threshold < best.threshold:
                break
            pruned = pruned_room(room, siblings, threshold)
            fits = greedy(pruned, siblings)
            if fits is not None:
                found = Balance(threshold, fits.used, siblings, pruned)
                if best is None or (threshold, -fits.used) > (best.threshold, -best.used):
                    best = found
                break
    return best


def greedy(room: DomainRoom, domains: Iterable[int]) -> Greedy | None:
    """Fill domains from the one with most room on; None if they do not hold everything."""
    left, leaders = room.goal.slices, room.goal.leaders
    used, last, last_led = 0, None, None
    order = room.leading_order(in_order(room, domains))
    while leaders and used < len(order) and room.hosts(order[used], 1):
        last_led = order[used]
        leaders -= 1
        left -= room.slices_beside[last_led]
        used += 1
    if leaders:
        return None
    for domain in room.plain_order(in_order(room, order[used:])):
        if left <= 0:
            break
        last = domain
        left -= room.slices[domain]
        used += 1
    return None if left > 0 else Greedy(used, last, last_led)


def pruned_room(room: DomainRoom, siblings: list[int], threshold: int) -> DomainRoom:
    """Return room in which only domains that reach the threshold have any."""
    pruned = room.copy(siblings)
    for domain in siblings:
        for child in room.tree.children[domain]:
            _prune(pruned, child, threshold)
    pruned.bubble(siblings, inner=False)
    for domain in siblings:
        _prune(pruned, domain, threshold)
    return pruned


def fewest_domains(room: DomainRoom, domains: list[int], *, by_entropy: bool) -> list[int] | None:
    """Choose as many domains as greed would need, so that the least room is left over in them.

    Domains are looked at in the order of their values or, `by_entropy`, of their room, those first
    whose children share it most evenly. None if not even all of them hold everything.
    """
    fits = greedy(room, domains)
    if fits is None:
        return None
    order = _by_entropy(room, domains) if by_entropy else in_order(room, domains)
    goal, wanted = room.goal, fits.used
    reached: list[dict[tuple[int, int], Chosen]] = [{} for _ in range(wanted + 1)]
    reached[0][goal.leaders, goal.slices * goal.slice_size] = None
    for place, domain in enumerate(order):
        fewest = max(1, wanted - (len(order) - 1 - place))
        for used in range(min(wanted, place + 1), fewest - 1, -1):
            _extend(room, domain, reached[used - 1], reached[used])
    ends = [(pods, ends) for (led, pods), ends in reached[wanted].items() if not led and pods <= 0]
    if not ends:
        return None
    return _listed(max(ends, key=lambda end: end[0])[1])


def share_evenly(room: DomainRoom, domains: list[int], *, threshold: int) -> list[int] | None:
    """Give domains the threshold each, and the rest to the first ones; change the room to that."""
    goal = room.goal
    chosen = fewest_domains(room, domains, by_entropy=False)
    if chosen is None or goal.slices < len(chosen) * threshold:
        return None
    chosen = room.leading_order(in_order(room, chosen))
    extra, leaders = goal.slices - len(chosen) * threshold, goal.leaders
    for domain in chosen:
        units = room.slices_beside if leaders else room.slices
        more = min(units[domain] - threshold, extra) if leaders or extra else 0
        _give(room, domain, threshold + more, leaders=min(leaders, 1))
        extra -= more
        leaders -= min(leaders, 1)
    return None if extra or leaders else chosen


def _thresholds(room: DomainRoom, siblings: list[int]) -> list[int]:
    """Return the least that every domain could get: at best, and so that a leader has room too."""
    goal, tree = room.goal, room.tree
    lower = siblings
    if goal.level < goal.slice_level:
        lower = [child for domain in siblings for child in tree.children[domain]]
    fits = greedy(room, lower)
    if fits is None or not fits.used:
        return []
    threshold = goal.slices // fits.used
    if fits.last_led is not None:
        threshold = min(threshold, room.slices_beside[fits.last_led])
    if fits.last is None:
        return [threshold] if threshold > 0 else []
    threshold = min(threshold, room.slices[fits.last])
    lesser = min(threshold, room.slices_beside[fits.last]) if goal.leaders else threshold
    return [each for each in dict.fromkeys((threshold, lesser)) if each > 0]


def _prune(room: DomainRoom, domain: int, threshold: int) -> None:
    if room.slices[domain] < threshold:
        _clear(room, domain, (room.pods, room.slices))
    elif room.leaders is None or not room.leaders[domain]:
        return
    if room.slices_beside[domain] < threshold and room.leaders is not None:
        _clear(room, domain, (room.beside, room.slices_beside, room.leaders))


def _clear(room: DomainRoom, domain: int, columns: Iterable[Units]) -> None:
    for column in columns:
        column[domain] = 0
    for child in room.tree.children[domain]:
        _clear(room, child, columns)


def _extend(
    room: DomainRoom,
    domain: int,
    before: dict[tuple[int, int], Chosen],
    after: dict[tuple[int, int], Chosen],
) -> None:
    for (leaders, pods), chosen in sorted(before.items(), key=lambda item: item[0]):
        if leaders <= 0 and pods <= 0:
            continue
        longer: Chosen = (domain, chosen)
        if leaders and room.leaders is not None and room.leaders[domain]:
            after.setdefault((leaders - 1, pods - room.beside[domain]), longer)
        if room.slices[domain]:
            after.setdefault((leaders, pods - room.pods[domain]), longer)


def _listed(chosen: Chosen) -> list[int]:
    found = []
    while chosen is not None:
        domain, chosen = chosen
        found.append(domain)
    return found[::-1]


def _by_entropy(room: DomainRoom, domains: list[int]) -> list[int]:
    leaders, units, rank = room.leaders, room.slices_beside, room.tree.rank
    return sorted(
        domains,
        key=lambda domain: (
            0 if leaders is None else -leaders[domain],
            -units[domain],
            -_entropy([room.pods[child] for child in room.tree.children[domain]]),
            rank[domain],
        ),
    )


def _entropy(pods: list[int]) -> float:
    total = sum(pods)
    parts = [n / total for n in pods if n] if total else []
    return sum([-part * log2(part) for part in parts])


def _give(room: DomainRoom, domain: int, slices: int, *, leaders: int) -> None:
    room.slices[domain] = slices
    room.pods[domain] = slices * room.goal.slice_size
    if room.leaders is not None:
        room.slices_beside[domain] = slices
        room.beside[domain] = room.pods[domain] - leaders
        room.leaders[domain] = leaders

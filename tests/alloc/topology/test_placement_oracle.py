"""What is placed and what is not, against every placement there is."""

from hypothesis import assume, given, settings

from policyd.alloc.settings import DEFAULTS, Gates
from policyd.alloc.topology.placement import fits, place
from policyd.alloc.topology.values import HOSTNAME, SliceLayer, TopologyPlacement
from tests.alloc.choices import scenarios
from tests.alloc.topology.builders import FLAVOR, cluster, node, request
from tests.alloc.topology.oracle import Exhaustive, host_of

RATE = settings(deadline=None, max_examples=2 * settings().max_examples)
MOST_PODS = 6 * 9
LEVELS = ("zone", "block", "rack", HOSTNAME)


def fleet(choose, least_depth, spare):
    """Up to six nodes in a topology of up to four levels, with what is left of each.

    With something to `spare` there is more left of each, and there are at least so many more nodes.
    """
    depth = choose.number(least_depth, 4)
    levels = LEVELS[-depth:]
    return levels, [hosting(choose, levels, n, spare) for n in range(choose.number(1 + spare, 6))]


def hosting(choose, levels, number, spare):
    return node(
        "/".join([*(choose.one("ab") for _ in levels[:-1]), f"x{number}"]),
        levels=levels,
        gpu=spare + choose.number(0, 5),
        cpu=spare + choose.number(0, 6),
        pods=choose.one((9, 3 + spare, 1 + spare)),
    )


SIZES = ((), (), (2,), (3,), (4, 2), (6, 3), (8, 4, 2))


def layers(choose, levels, at_least):
    """Slices of up to three layers, each of a finer level and of a size that divides the last."""
    sizes = choose.one(SIZES)
    below = choose.shuffled(range(at_least, len(levels)))[: choose.number(0, len(sizes))]
    return tuple(
        SliceLayer(level=levels[level], size=size)
        for level, size in zip(sorted(below), sizes, strict=False)
    )


MODES = ("Required", "Preferred", "Unconstrained")


def gang(choose, levels, modes, above):
    """What is asked for, and its slices: whole ones, each `above` levels below at least."""
    level = choose.number(0, len(levels) - 1 - above)
    slices = layers(choose, levels, level + above)
    size = slices[0].size if slices else 1
    asked = request(
        size * choose.number(1, max(1, 8 // size)),
        choose.one(modes),
        levels[level],
        gpu=choose.number(0, 2),
        cpu=choose.number(0, 2),
    )
    return asked, slices


def leading(choose, asked):
    gpu = choose.maybe(0, 3)
    if gpu is None:
        return None
    return request(1, asked.mode, asked.level, pod_set="leader", gpu=gpu)


def question(choose, modes=MODES, *, led=True, above=0, spare=0):
    levels, nodes = fleet(choose, 1 + above, spare)
    asked, slices = gang(choose, levels, modes, above)
    leader = leading(choose, asked) if led else None
    group = "g" if leader is not None else ""
    asked, *others = [_grouped(each, slices, group) for each in (asked, leader) if each is not None]
    return levels, nodes, asked, others[0] if others else None


def roomy(choose):
    """A question to which there is an answer, most often."""
    return question(choose, modes=choose.one((MODES, MODES[:2])), spare=3)


def without_leader(choose):
    """One whose slices are below the level that is asked for."""
    return question(choose, modes=MODES[:2], led=False, above=1, spare=3)


QUESTIONS = scenarios(question, 60)


def _grouped(asked, slices, group):
    return request(
        asked.count, asked.mode, asked.level, pod_set=asked.pod_set, group=group,
        slices=[(layer.level, layer.size) for layer in slices], **asked.requests,
    )  # fmt: skip


def ask(question, gates=DEFAULTS.gates):
    """Return the places of workers and leader by path, None for what is not placed; and all."""
    levels, nodes, asked, leader = question
    there = cluster(*nodes, levels=levels)
    pod_sets = [asked] if leader is None else [asked, leader]
    may = fits(there, {FLAVOR: pod_sets}, gates=gates)
    found = place(there, {FLAVOR: pod_sets}, gates=gates)
    assert may == all(isinstance(outcome, TopologyPlacement) for outcome in found.values())
    ways = Exhaustive(nodes, levels, lambda node: node.allocatable, asked, leader)
    paths = {host_of(node): tuple(node.labels[level] for level in levels) for node in nodes}
    outcomes = [found[each.pod_set] for each in pod_sets]
    if not all(isinstance(outcome, TopologyPlacement) for outcome in outcomes):
        return None, None, ways
    workers, *led = [{paths[v[0]]: n for v, n in outcome.domains} for outcome in outcomes]
    return workers, led[0] if led else {}, ways


def expected_level(ways, level, mode):
    """Return at which level a single domain holds everything; -1 if only all together do."""
    tried = range(level, -1, -1) if mode == "Preferred" else [level]
    for each in tried:
        if ways.holding(each):
            return each
    return -1 if mode != "Required" and ways.holds(ways.everywhere()) else None


@given(QUESTIONS)
@RATE
def test_it_is_placed_exactly_where_the_level_asked_for_has_a_placement(question):
    levels, _, asked, _ = question
    level = levels.index(asked.level)

    workers, led, ways = ask(question)

    at = expected_level(ways, level, asked.mode)
    assert (workers is None) == (at is None)
    if workers is not None:
        assert_sound(question, workers, led, ways)
        assert at < 0 or len({path[: at + 1] for path in (*workers, *led)}) == 1


@given(QUESTIONS)
@RATE
def test_balanced_placements_are_sound_and_leave_nobody_out(question):
    asked = question[2]

    workers, led, ways = ask(question, Gates(tas_balanced_placement=True))

    assert (workers is None) == (ask(question)[0] is None)
    if workers is not None:
        assert_sound(question, workers, led, ways)
    assert asked.mode == "Preferred" or workers == ask(question)[0]


def assert_sound(question, workers, led, ways):
    levels, _, asked, leader = question
    assert sum(workers.values()) == asked.count
    assert sum(led.values()) == (leader is not None)
    for depth in range(1, len(levels) + 1):
        for path, known in ways.domains[depth - 1].items():
            there = [
                sum(n for p, n in each.items() if p[:depth] == path) for each in (workers, led)
            ]
            assert tuple(there) in known


@given(scenarios(roomy, 60))
@RATE
def test_of_domains_that_hold_everything_one_with_the_least_room_is_taken(question):
    levels, _, asked, _leader = question
    level = levels.index(asked.level)
    workers, _led, ways = ask(question)
    at = expected_level(ways, level, asked.mode)
    assume(workers is not None and at >= 0)

    taken = next(iter(workers))[: at + 1]

    rooms = without_end(question)
    assert rooms.most(at, taken) == min(rooms.most(at, path) for path in ways.holding(at))


def without_end(question):
    """Return the ways of more pods than there could be."""
    levels, nodes, asked, leader = question
    size = asked.slices[0].size if asked.slices else 1
    many = request(
        size * (MOST_PODS // size), asked.mode, asked.level, pod_set=asked.pod_set,
        slices=[(layer.level, layer.size) for layer in asked.slices], **asked.requests,
    )  # fmt: skip
    return Exhaustive(nodes, levels, lambda node: node.allocatable, many, leader)


@given(scenarios(without_leader, 60))
@RATE
def test_below_the_chosen_domain_the_fewest_domains_are_taken_and_the_last_fits_best(question):
    levels, _, asked, _ = question
    level = levels.index(asked.level)
    slice_level = levels.index(asked.slices[0].level) if asked.slices else len(levels) - 1
    workers, _, ways = ask(question)
    at = expected_level(ways, level, asked.mode)
    assume(workers is not None and at + 1 <= slice_level)

    inside = next(iter(workers))[: at + 1]
    many = without_end(question)
    rooms = {p: many.most(at + 1, p) for p in many.domains[at + 1] if p[: at + 1] == inside}
    used = sorted(rooms[path] for path in {path[: at + 2] for path in workers})
    slices = asked.count // (asked.slices[0].size if asked.slices else 1)
    assert used == sorted(best_fit(list(rooms.values()), slices))


def best_fit(rooms, left):
    """Yield the rooms that are taken: the largest, but of those that hold the rest the smallest."""
    while max(rooms) < left:
        rooms.remove(room := max(rooms))
        left -= room
        yield room
    yield min(room for room in rooms if room >= left)

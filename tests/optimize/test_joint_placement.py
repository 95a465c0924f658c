"""Places for several workloads at once, against every placement there is of all of them."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.alloc.settings import DEFAULTS
from policyd.alloc.topology.values import HOSTNAME
from policyd.optimize.joint_placement import MOST_LEAVES, SearchBudget, place_jointly
from tests.alloc.topology.builders import FLAVOR, assignment, cluster, hosts, node, request

LEVELS = ("rack", HOSTNAME)
ENOUGH = 200_000


def together(nodes, *asked, steps=ENOUGH):
    """Return where each goes, by host, and whether the search gave up."""
    budget = SearchBudget(steps)
    names = {f"w{number}": {FLAVOR: [each]} for number, each in enumerate(asked)}
    found = place_jointly(nodes, names, gates=DEFAULTS.gates, budget=budget)
    if found is None:
        return None, budget.exhausted
    placements = [dict(places["main"].assignment.domains) for places in map(found.get, names)]
    return [{name: n for (name,), n in each.items()} for each in placements], budget.exhausted


@st.composite
def questions(draw):
    """Up to four nodes in two racks, and up to three workloads that want something of them."""
    nodes = [
        node(f"{draw(st.sampled_from('rs'))}/x{n}", levels=LEVELS, gpu=draw(st.integers(0, 4)))
        for n in range(draw(st.integers(1, 4)))
    ]
    how = [
        ("Required", "rack"),
        ("Required", HOSTNAME),
        ("Preferred", "rack"),
        ("Unconstrained", ""),
    ]
    asked = [
        request(
            2 * draw(st.integers(1, 2)) if sliced else draw(st.integers(1, 4)),
            *draw(st.sampled_from(how[:1] if sliced else how)),
            gpu=draw(st.integers(1, 3)),
            slices=[(draw(st.sampled_from(LEVELS)), 2)] if sliced else (),
        )
        for sliced in draw(st.lists(st.sampled_from([False, False, True]), max_size=3, min_size=1))
    ]
    return nodes, asked


def ways(nodes, asked):
    """Every way to spread one, by node; the slow and obvious way."""
    room = [range(each.allocatable["gpu"] // asked.requests["gpu"] + 1) for each in nodes]
    for counts in product(*room):
        if sum(counts) == asked.count and sound(nodes, asked, counts):
            yield counts


def sound(nodes, asked, counts):
    def inside(level):
        found = {}
        for each, count in zip(nodes, counts, strict=True):
            found[each.labels[level]] = found.get(each.labels[level], 0) + count
        return found.values()

    if asked.mode == "Required" and asked.count not in inside(asked.level):
        return False
    return all(n % layer.size == 0 for layer in asked.slices for n in inside(layer.level))


def has_places(nodes, asked):
    gpus = [each.allocatable["gpu"] for each in nodes]
    for chosen in product(*(list(ways(nodes, each)) for each in asked)):
        used = [
            sum(c[n] * each.requests["gpu"] for c, each in zip(chosen, asked, strict=True))
            for n in range(len(nodes))
        ]
        if all(u <= g for u, g in zip(used, gpus, strict=True)):
            return True
    return False


@settings(deadline=None)
@given(questions())
def test_there_are_places_for_all_exactly_if_every_placement_there_is_says_so(question):
    nodes, asked = question

    found, gave_up = together(cluster(*nodes, levels=LEVELS), *asked)

    assert not gave_up
    assert (found is not None) == has_places(nodes, asked)
    for each, places in zip(asked, found or (), strict=False):
        counts = [places.get(of.labels[HOSTNAME], 0) for of in nodes]
        assert sum(counts) == each.count
        assert sound(nodes, each, counts)
    for of in nodes if found else ():
        used = [p.get(of.labels[HOSTNAME], 0) * a.requests["gpu"] for p, a in zip(found, asked)]  # noqa: B905
        assert sum(used) <= of.allocatable["gpu"]


def test_a_later_workload_keeps_the_first_from_its_only_place():
    """Alone, the first would go where it fits exactly."""
    nodes = hosts(b_r_a=2, b_s_b=4)
    first = request(2, "Required", HOSTNAME)
    later = request(2, "Required", HOSTNAME, node_selector={"rack": "r"})

    assert together(nodes, first, later) == ([{"b": 2}, {"a": 2}], False)


def test_spreading_pods_finds_places_that_no_order_finds():
    """One after the other, the first keeps together what the second needs in halves."""
    nodes = hosts(b_r_x=3, b_r_y=3)

    found, _ = together(nodes, request(4), request(2, gpu=1, mode="Required", level=HOSTNAME))

    assert found is not None


def test_a_search_says_that_it_gave_up():
    nodes = hosts(b_r_x=3, b_r_y=3, b_r_z=3)

    assert together(nodes, request(3, gpu=2), request(1, gpu=2), steps=0) == (None, True)


def test_an_unplaceable_workload_ends_the_search_at_once():
    assert together(hosts(b_r_x=4), request(5), request(1), steps=0) == (None, False)


def test_there_is_too_little_for_all():
    assert together(hosts(b_r_x=4), request(3), request(2), steps=0) == (None, False)


def test_a_large_cluster_is_searched_in_some_orders_only():
    nodes = hosts(**{f"b_r_x{number}": 3 for number in range(MOST_LEAVES + 1)})

    assert together(nodes, request(64, gpu=2), request(1, gpu=2))[0] is not None
    assert together(nodes, request(64, gpu=2), request(2, gpu=2)) == (None, True)


def test_nothing_is_charged():
    nodes = hosts(b_r_x=4)
    together(nodes, request(2), request(2))

    assert nodes.held == {}
    assert nodes.trees[FLAVOR].free.columns["gpu"][nodes.trees[FLAVOR].leaves[("x",)]] == 4
    assert assignment(x=1).count == 1

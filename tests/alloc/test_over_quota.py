"""Over-quota weights: fair sharing divides what is left over as KAI and Run:ai do."""

from fractions import Fraction

from hypothesis import given, settings

from policyd.alloc.queue import PreemptionPolicy
from policyd.alloc.settings import FairSharingRules, QueueingSettings
from policyd.simulate.scenario import Arrival, Simulation
from tests.alloc.builders import cohort, queue, state, workload
from tests.alloc.choices import scenarios

ANY = PreemptionPolicy(reclaim_within_cohort="Any")


def fair_shares(total, queues):
    """KAI's formula for one resource, of (quota, weight, asked) by name, before it is rounded."""
    share = {name: Fraction(min(quota, asked)) for name, (quota, _, asked) in queues.items()}
    while True:
        left = total - sum(share.values())
        short = {n: weight for n, (_, weight, asked) in queues.items() if share[n] < asked}
        if not (left and short):
            return share
        for name, weight in short.items():
            part = left * weight / sum(short.values())
            share[name] = min(Fraction(queues[name][2]), share[name] + part)


def teams(choose):
    """Teams whose parts are whole: each borrows its weight so many times over, or has enough."""
    level, found = choose.number(0, 3), {}
    for name in choose.shuffled("abcd")[: choose.number(1, 4)]:
        quota, weight = choose.number(0, 3), choose.number(1, 3)
        most = quota + weight * level
        short = choose.yes()
        asked = most + choose.number(1, 3) if short else choose.number(quota, most)
        found[name] = (quota, weight, asked)
    lent = sum(min(asked - quota, weight * level) for quota, weight, asked in found.values())
    return found, lent, choose.shuffled(sorted(found))


@settings(deadline=None)
@given(scenarios(teams, 30))
def test_the_rest_is_divided_by_weight(drawn):
    found, lent, order = drawn
    specs = [
        queue(name, "all", gpu=quota, weight=float(weight), preemption=ANY)
        for name, (quota, weight, _) in found.items()
    ]
    of = state(
        cohort("all", gpu=lent), *specs, rules=QueueingSettings(fair_sharing=FairSharingRules())
    )
    coming = [
        Arrival(workload=workload(f"{name}{n}", name, gpu=1))
        for name in order
        for n in range(found[name][2])
    ]

    list(Simulation(of, coming).steps())

    used = {name: len(of.queues[name].holdings) for name in found}
    total = lent + sum(quota for quota, _, _ in found.values())
    assert used == fair_shares(total, found)

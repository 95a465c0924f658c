"""The numbers of docs/concepts/preemption.md are those that the allocator computes."""

import re
from pathlib import Path

from policyd.alloc.fair_sharing import share_of
from policyd.alloc.preemption.targets import find_targets
from policyd.alloc.settings import FairSharingRules, QueueingSettings
from policyd.status.shares import rounded_share
from tests.alloc.builders import queue, state
from tests.alloc.preemption.test_preemption import RECLAIM, claim, running

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "preemption.md"


def rows(columns):
    """The rows of the page's tables with so many columns that begin with a queue's name."""
    found = re.findall(r"^\| `(team-.)` \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    cells = [[name, *(cell.strip() for cell in rest.split("|"))] for name, rest in found]
    return [row for row in cells if len(row) == columns]


def teams():
    queues, jobs = [], []
    for name, nominal, weight, uses, *_ in rows(6):
        queues.append(
            queue(name, "all", gpu=int(nominal), weight=float(weight), preemption=RECLAIM)
        )
        jobs += [running(f"{name}-{n}", name, at=n, gpu=1) for n in range(int(uses))]
    of = state(*queues, *jobs)
    of.settings = QueueingSettings(fair_sharing=FairSharingRules())
    of.settle()
    return of


def test_the_shares_are_as_the_page_says():
    of = teams()

    assert len(rows(6)) == len(rows(4)) == 3
    for name, _, _, _, borrows, share in rows(6):
        found = share_of(of.tree, of.queues[name].node)
        assert rounded_share(found) == int(share)
        assert sum(found.borrowed.values()) == int(borrows)


def test_so_is_what_may_be_taken():
    of = teams()

    for name, asks, share, takes in rows(4):
        wanted = claim(of, name, gpu=int(asks))
        with of.tree.trial():
            of.tree.charge(wanted.charges)
            assert rounded_share(share_of(of.tree, of.queues[name].node)) == int(share)
        documented = {team: int(n) for n, team in re.findall(r"(\d+) of `(team-.)`", takes)}
        found = [t.workload.cluster_queue for t in find_targets(of, wanted)]
        assert {team: found.count(team) for team in set(found)} == documented

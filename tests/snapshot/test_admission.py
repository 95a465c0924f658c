"""A snapshot for the webhooks lists the first in line, and counts all."""

from hypothesis import given, settings

from policyd.snapshot.reading import read
from policyd.snapshot.taking import FullSnapshot, SnapshotTaker
from policyd.snapshot.values import NONE
from policyd.snapshot.writing import write
from policyd.status.naming import Naming
from policyd.status.queues import places
from tests.alloc.choices import scenarios
from tests.alloc.test_properties import made, until_settled
from tests.alloc.worlds import world
from tests.snapshot.taking import NOW, Jobs, finished

MOST = 2


def counted(of):
    taker = SnapshotTaker(of, Jobs(), most=MOST)
    full = finished(taker.take(FullSnapshot(NOW, of.revision, version="v"), ()))
    return read(finished(write(full, Naming())), "test")


@settings(deadline=None)
@given(scenarios(world, 180))
def test_the_counts_and_the_first_are_those_of_the_queue(things):
    of = made(things)
    until_settled(of)

    for found in counted(of).cluster_queues:
        order = [each.workload for each in places(of, found.name)]
        active = {ticket.workload.key for ticket in of.queues[found.name].pending.active}
        lines = {}
        for each in order:
            lines.setdefault((each.priority, each.local_queue), []).append(each)
        assert [row.key for row in found.pending] == [each.key for each in order[:MOST]]
        assert found.unlisted == len(order[MOST:])
        assert len(found.lines) == len(lines)
        for line in found.lines:
            queue = None if line.local_queue == NONE else found.local_queues[line.local_queue]
            those = lines[line.priority, f"{queue.namespace}/{queue.name}" if queue else ""]
            assert line.count == len(those)
            assert line.trying == sum(each.key in active for each in those)
            assert line.since == min(int(each.queued_at) for each in those)
            totals = [pod_set.totals() for each in those for pod_set in each.pod_sets]
            resources = {resource for each in totals for resource in each}
            assert line.requests == {r: sum(each.get(r, 0) for each in totals) for r in resources}

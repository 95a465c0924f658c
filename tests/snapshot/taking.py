"""Takes snapshots of states: values, JSON and back, as a reader gets them."""

from policyd.snapshot.reading import read
from policyd.snapshot.taking import FullSnapshot, QueueOfNamespace, SnapshotTaker
from policyd.snapshot.values import Origin, SnapshotReason
from policyd.snapshot.writing import write
from policyd.status.naming import Naming

NOW = 1_000.0


class Jobs:
    """Each workload `job-NAME` is of the Job NAME, and its condition says so much."""

    def __init__(self, **starts):
        """Begin with forecasts by the names of the workloads in namespace `ns`."""
        self.starts = {f"ns/{name}": row for name, row in starts.items()}

    def job(self, key):
        name = key.partition("/")[2]
        return f"Job/{name.removeprefix('job-')}" if name.startswith("job-") else ""

    def start(self, key):
        return self.starts.get(key)

    def condition(self, key):
        return SnapshotReason(type="Told", message=f"told to {key}")

    def origin(self, key):
        team, _, name = key.partition("/")
        owner = f"ann-of-{team}".removesuffix("-of-ns") if name.startswith("job-") else ""
        return Origin(owner, "PriorityClass/high" if "high" in key else "", 0)


def finished(work, between=lambda: None):
    """Do work step by step; `between` happens after each step."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
        between()


def taken(of, *, taker=None, queues=(), between=lambda: None):
    """Take a full snapshot; `queues` are pairs of a namespace and a ClusterQueue."""
    taker = taker or SnapshotTaker(of, Jobs())
    empty = FullSnapshot(NOW, of.revision, "7")
    return finished(taker.take(empty, [QueueOfNamespace(*each) for each in queues]), between)


def body_for(full, *, reader="", others="names", scope=""):
    trees = full.trees.get(scope, set()) if scope else None
    return finished(write(full, Naming(namespace=reader, others=others), trees))


def snapshot(of, *, queues=(), between=lambda: None, **reader):
    return read(body_for(taken(of, queues=queues, between=between), **reader), "test")


def queue_of(found, name="q"):
    (only,) = (each for each in found.cluster_queues if each.name == name)
    return only


def keys(found, name="q"):
    return [row.key for row in queue_of(found, name).pending]

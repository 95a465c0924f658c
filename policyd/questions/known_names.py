"""Names by which users filter answers: one that there is not is an error, with the nearest."""

from collections.abc import Awaitable, Callable, Iterable, Set
from typing import Final, NamedTuple

from policyd.api.kueue import LocalQueue
from policyd.errors import PolicydError, did_you_mean
from policyd.kube.client import Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import LOCAL_QUEUES
from policyd.snapshot.answers import origin_of
from policyd.snapshot.values import ClusterQueueUse, CohortUse, QueueSnapshot
from policyd.status.naming import team_of

MOST_SHOWN: Final = 10
"""Names that a hint lists."""
QUEUE: Final = "ClusterQueue or LocalQueue"
MOST_READ: Final = 10_000
"""LocalQueues whose names are read."""


class UnknownNameError(PolicydError):
    """There is nothing of a name that a user has given."""


def near_names(word: str, known: Iterable[str], *, more: bool = False) -> str:
    """Return the name that was probably meant, or those that there are, as a hint.

    Args:
        word: The name that there is not.
        known: Those that there are.
        more: Whether there are others.
    """
    names = sorted(known)
    if not names:
        return "there are none"
    cut = more or len(names) > MOST_SHOWN
    listed = ", ".join(names[:MOST_SHOWN]) + (" and others" if cut else "")
    return did_you_mean(word, names) or f"there are {listed}"


More = Callable[[Reader, str], Awaitable[Set[str] | None]]
"""Reads names that a snapshot has not got, for a namespace; None if they cannot be read."""


class NameFilter(NamedTuple):
    """A name by which an answer is filtered.

    Attributes:
        word: As the user gave it; "" for no filter.
        what: The kinds of objects that may have it.
        known: The names that the snapshot has.
        more: Reads the names that it has not got; None if it has all.
    """

    word: str
    what: str
    known: Set[str]
    more: More | None = None


async def check_names(
    reader: Reader, namespace: str, filters: Iterable[NameFilter]
) -> list[NameFilter]:
    """Return the names of which it cannot be known whether there is something of them.

    Args:
        reader: The API server.
        namespace: Whose queues the answer is about; "" for the whole cluster.
        filters: The names by which the answer is filtered.

    Raises:
        UnknownNameError: If there is nothing of a name.
        ApiError: If the API server does not answer.
    """
    unknown = []
    for each in unknown_names(filters):
        assert each.more is not None, "the others are known"
        more = await each.more(reader, namespace)
        if more is None:
            unknown.append(each)
        else:
            require(each._replace(known={*each.known, *more}))
    return unknown


def unknown_names(filters: Iterable[NameFilter]) -> list[NameFilter]:
    """Return the names of which a snapshot does not tell whether there is something of them.

    Raises:
        UnknownNameError: If there is nothing of a name.
    """
    missing = [each for each in filters if each.word not in {"", *each.known}]
    for each in missing:
        if each.more is None:
            require(each)
    return missing


def require(name: NameFilter) -> None:
    """Check that there is something of a name, all names being known.

    Raises:
        UnknownNameError: If there is not.
    """
    if name.word not in name.known:
        raise UnknownNameError(
            f"no {name.what} here is named `{name.word}`", hint=near_names(name.word, name.known)
        )


def of_queue(word: str, snapshot: QueueSnapshot) -> NameFilter:
    """Filter by a ClusterQueue or LocalQueue: a snapshot has only LocalQueues with workloads."""
    known = {queue.name for queue in snapshot.cluster_queues}
    known |= {local.name for queue in snapshot.cluster_queues for local in queue.local_queues}
    return NameFilter(word, QUEUE, known - {""}, queues_read)


def of_tree(word: str, snapshot: QueueSnapshot) -> NameFilter:
    """Filter by a ClusterQueue or Cohort."""
    known = {name for queue in snapshot.cluster_queues for name in (queue.name, queue.cohort)}
    known |= {cohort.name for cohort in snapshot.cohorts}
    return NameFilter(word, "ClusterQueue or Cohort", known - {""})


def of_resource(word: str, snapshot: QueueSnapshot) -> NameFilter:
    """Filter by a resource of quotas."""
    found: tuple[CohortUse | ClusterQueueUse, ...] = (
        *snapshot.cluster_queues,
        *snapshot.cohorts,
    )
    return NameFilter(word, "resource", {quota.resource for each in found for quota in each.quotas})


def of_team(word: str, snapshot: QueueSnapshot) -> NameFilter:
    """Filter by a namespace: one whose LocalQueues have no workloads is not in a snapshot."""
    known = {team_of(row.key) for queue in snapshot.cluster_queues for row in queue.pending}
    known |= {team_of(row.key) for queue in snapshot.cluster_queues for row in queue.holding}

    async def more(reader: Reader, _namespace: str) -> Set[str] | None:
        there = await queues_read(reader, word)
        return there if there is None else {word} if there else frozenset()

    return NameFilter(word, "namespace with LocalQueues", known - {""}, more)


def of_owner(word: str, snapshot: QueueSnapshot) -> NameFilter:
    """Filter by a person: one who has nothing pending is not in a snapshot."""
    known = {
        origin_of(queue, row).owner for queue in snapshot.cluster_queues for row in queue.pending
    }
    return owner_filter(word, known)


def owner_filter(word: str, owners: Set[str]) -> NameFilter:
    """Filter by a person, given the owners of jobs that are known."""

    async def more(_reader: Reader, _namespace: str) -> None:
        return None

    return NameFilter(word, "owner of jobs", owners - {""}, more)


async def queues_read(reader: Reader, namespace: str) -> Set[str] | None:
    """Return the names of the LocalQueues of a namespace, "" for all, and of their ClusterQueues.

    Returns:
        None if they may not be listed, or are too many.

    Raises:
        ApiError: If the API server does not answer.
    """
    found: set[str] = set()
    try:
        async for page in pages(reader, LOCAL_QUEUES, into=LocalQueue, namespace=namespace):
            for each in page.items:
                found |= {each.metadata.name, each.spec.cluster_queue}
            if len(found) >= MOST_READ:
                return None
    except (ForbiddenError, NotFoundError):
        return None
    return found

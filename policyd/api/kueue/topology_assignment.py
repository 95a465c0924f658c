"""A topology assignment as its domains and their pods, and as the API writes it.

Adjacent domains share the common parts of their names: one text for all, or a
prefix and suffix around the differences. Names of nodes of one pool begin alike, so that an
assignment by host name may be cheaper in several runs, one a prefix, than in one. The API bounds
the number of runs and their length, which bounds how many runs are worth trying.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Final, NamedTuple

import msgspec

from policyd.api.kueue.workload import (
    Admission,
    IndividualValues,
    LevelValues,
    PodCounts,
    PodSetAssignment,
    TopologyAssignment,
    TopologySlice,
)

HOSTNAME: Final = "kubernetes.io/hostname"
"""The level whose domains are nodes."""

SLICE_LIMIT: Final = 1_000
DOMAIN_LIMIT: Final = 100_000
"""Domains of one slice."""


class DomainPods(NamedTuple):
    """How many pods go to a domain, known by a value a level."""

    values: tuple[str, ...]
    pods: int


Run = Sequence[DomainPods]


def encode_topology(
    levels: Sequence[str], domains: Sequence[DomainPods], *, by_prefix: bool = True
) -> TopologyAssignment:
    """Write domains in the shortest way.

    Args:
        levels: Node labels, of which each domain has a value.
        domains: Where pods go; they keep their order, by which pods with an index are placed.
        by_prefix: Whether to consider a slice for each prefix of host names
            (gate TASAssignmentsEncodingByHostnamePrefix).
    """
    if not domains:
        return TopologyAssignment(levels=tuple(levels))
    whole = _assignment(levels, _pieces(domains))
    if not by_prefix or len(domains) == 1 or tuple(levels) != (HOSTNAME,):
        return whole
    by_runs = _assignment(levels, _runs(domains))
    if len(by_runs.slices) <= 1 or len(domains) > DOMAIN_LIMIT:
        return by_runs
    return by_runs if _size(by_runs) <= _size(whole) else whole


def _size(assignment: TopologyAssignment) -> int:
    return len(msgspec.json.encode(assignment))


def _assignment(levels: Sequence[str], runs: Sequence[Run]) -> TopologyAssignment:
    return TopologyAssignment(levels=tuple(levels), slices=tuple(_slice(run) for run in runs))


def _slice(run: Run) -> TopologySlice:
    counts = tuple(domain.pods for domain in run)
    same = counts.count(counts[0]) == len(counts)
    columns = zip(*(domain.values for domain in run), strict=True)
    return TopologySlice(
        domain_count=len(run),
        values_per_level=tuple(_values(column) for column in columns),
        pod_counts=PodCounts(universal=counts[0]) if same else PodCounts(individual=counts),
    )


def _values(column: Sequence[str]) -> LevelValues:
    """Write the common parts of a level's values once; if both ends overlap, at the end."""
    if all(value == column[0] for value in column):
        return LevelValues(universal=column[0])
    shortest, end = min(map(len, column)), _shared([value[::-1] for value in column])
    start = min(_shared(column), shortest - end)
    return LevelValues(
        individual=IndividualValues(
            roots=tuple(value[start : len(value) - end] for value in column),
            prefix=column[0][:start],
            suffix=column[0][len(column[0]) - end :],
        )
    )


def _shared(texts: Sequence[str]) -> int:
    """Return how many letters texts begin with alike: as many as the first and last in order do."""
    first, last = min(texts), max(texts)
    same = (at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return next(same, len(first))


def _runs(domains: Run) -> list[Run]:
    """Split host names into runs that share a prefix worth sharing, as few as must be."""
    prefixes = [_prefixes(domain.values[0]) for domain in domains]
    often = Counter(chain.from_iterable(prefixes))
    for depth in range(max(map(len, prefixes)), 0, -1):
        shared = [_longest(each[:depth], often) for each in prefixes]
        runs = [
            piece
            for _, run in groupby(zip(shared, domains, strict=True), key=lambda pair: pair[0])
            for piece in _pieces([domain for _, domain in run])
        ]
        if any(shared) and len(runs) <= SLICE_LIMIT:
            return runs
    return _pieces(domains)


def _prefixes(name: str) -> list[str]:
    """Return the parts of a name that end in a dash, the shortest first."""
    return [name[: at + 1] for at, letter in enumerate(name[:-1]) if letter == "-"]


def _longest(prefixes: Sequence[str], often: Counter[str]) -> str:
    return next((prefix for prefix in reversed(prefixes) if often[prefix] > 1), "")


def _pieces(domains: Run) -> list[Run]:
    return [domains[at : at + DOMAIN_LIMIT] for at in range(0, len(domains), DOMAIN_LIMIT)]


def decode_topology(assignment: TopologyAssignment) -> Iterator[DomainPods]:
    """Yield the domains of an assignment, in its order."""
    for part in assignment.slices:
        columns = [_column(values, part.domain_count) for values in part.values_per_level]
        yield from map(DomainPods, zip(*columns, strict=True), _counts(part))


def _column(values: LevelValues, count: int) -> Sequence[str]:
    if values.universal is not None:
        return (values.universal,) * count
    each = values.individual
    return [] if each is None else [f"{each.prefix}{root}{each.suffix}" for root in each.roots]


def _counts(part: TopologySlice) -> Sequence[int]:
    counts = part.pod_counts
    return (
        counts.individual if counts.universal is None else (counts.universal,) * part.domain_count
    )


def pod_counts(assignment: TopologyAssignment) -> list[int]:
    """Return how many pods go to each domain."""
    return [count for part in assignment.slices for count in _counts(part)]


def domain_count(assignment: TopologyAssignment) -> int:
    """Return how many domains there are, without reading them."""
    return sum(part.domain_count for part in assignment.slices)


def lowest_values(assignment: TopologyAssignment) -> Iterator[str]:
    """Yield the value of the narrowest level of each domain: a node's name, if it is that."""
    for part in assignment.slices:
        if part.values_per_level:
            yield from _column(part.values_per_level[-1], part.domain_count)


def nodes_of(assignment: PodSetAssignment) -> dict[str, int]:
    """Return how many pods of a pod set go to each node; none where levels end above nodes."""
    topology = assignment.topology_assignment
    if topology is None or topology.levels[-1:] != (HOSTNAME,):
        return {}
    nodes: Counter[str] = Counter()
    for name, count in zip(lowest_values(topology), pod_counts(topology), strict=True):
        nodes[name] += count
    return {name: count for name, count in nodes.items() if count}


def assigned_nodes(admission: Admission | None) -> set[str]:
    """Return the nodes to which an admission sends pods."""
    pod_sets = () if admission is None else admission.pod_set_assignments
    return {name for each in pod_sets for name in nodes_of(each)}

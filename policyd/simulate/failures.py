"""Failures of nodes: when each fails and is repaired, the same for the same seed."""

from collections.abc import Iterable, Iterator
from math import log

from msgspec.structs import replace

from policyd.alloc.topology.values import TopologyNode
from policyd.alloc.value import Value
from policyd.simulate.draws import DrawnNumbers
from policyd.simulate.scenario import NodeChange


class FailureRates(Value, frozen=True):
    """How often nodes fail, and how long each is away.

    Attributes:
        between_seconds: Mean time of one node between a repair and the next failure.
        repair_seconds: Mean time until it is repaired.
    """

    between_seconds: float
    repair_seconds: float


def failures(
    nodes: Iterable[TopologyNode], rates: FailureRates, *, seed: int, until: float
) -> Iterator[NodeChange]:
    """Yield the failures and repairs of nodes; the times between them are exponential.

    Args:
        nodes: All usable at the beginning.
        rates: Of each node.
        seed: Each gives other times.
        until: Before when a node fails, in seconds; those that have failed are repaired later.
    """
    for node in nodes:
        numbers = DrawnNumbers(f"{seed}/failure/{node.name}")
        at = _exponential(numbers, rates.between_seconds)
        while at < until:
            yield NodeChange(at=at, node=replace(node, ready=False))
            at += _exponential(numbers, rates.repair_seconds)
            yield NodeChange(at=at, node=node)
            at += _exponential(numbers, rates.between_seconds)


def _exponential(numbers: DrawnNumbers, mean: float) -> float:
    return -mean * log(1.0 - numbers.next())

"""The figures of one attack: what was tried, what got through, and what it cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one attack came to.

    Attributes:
        tried: How many inputs were sent.
        bypasses: How many were admitted although a policy or the queue would have stopped them.
        reads: How many read what is not the author's own: another namespace, a cluster's object.
        worst_seconds: CPU of the dearest input, or the longest review while the attack lasted.
        median_seconds: The median review of others while the attack lasted.
        peak_bytes: Memory above the idle process.
        faults: What broke a bound, in sentences; empty if the attack did no harm.
    """

    tried: int
    bypasses: int = 0
    reads: int = 0
    worst_seconds: float | None = None
    median_seconds: float | None = None
    peak_bytes: int | None = None
    faults: tuple[str, ...] = ()

    @property
    def harmless(self) -> bool:
        """Tell whether nothing got through and every bound held."""
        return not (self.bypasses or self.reads or self.faults)


Attack = Callable[[], Figures]
"""Runs one attack to its end. A module of this folder lists its own as `ATTACKS`, by name."""

Attacks = Mapping[str, Attack]

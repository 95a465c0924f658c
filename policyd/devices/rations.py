"""How much work the counting of claims may take at a time, shared between namespaces.

Users write as many claims and templates as they like, and each may take as much work as one claim
may. So a namespace that has had its share waits for its next turn, while others go on. What was
begun is finished: a namespace may be in debt, and waits until that is repaid.
"""

from collections.abc import Callable
from typing import Final

from policyd.devices.matching import COST_LIMIT

TURN: Final = COST_LIMIT
"""Work of all namespaces in one turn: a fifth of a second."""


class Rations:
    """The work of each namespace in this turn, and what it has had beyond that."""

    def __init__(self, begun: Callable[[], None] = lambda: None, *, turn: int = TURN) -> None:
        """Begin the first turn.

        Args:
            begun: Called when there is something to be repaid by turns.
            turn: Work of all namespaces in one turn.
        """
        self._begun, self._turn = begun, turn
        self._spent: dict[str, int] = {}
        self._waiting: dict[str, None] = {}
        self.refused = 0
        """How often something was not allowed."""

    @property
    def busy(self) -> bool:
        """Whether there is something to be repaid, so that turns have to go on."""
        return bool(self._spent)

    def allows(self, namespace: str) -> bool:
        """Tell whether a namespace may have something counted; note that it waits if not."""
        if self._spent.get(namespace, 0) < self._share:
            return True
        self._waiting[namespace] = None
        self.refused += 1
        return False

    def spend(self, namespace: str, work: int) -> None:
        """Take in that something was counted for a namespace."""
        if work <= 0:
            return
        if not self._spent:
            self._begun()
        self._spent[namespace] = self._spent.get(namespace, 0) + work

    def next_turn(self) -> list[str]:
        """Begin the next turn; return the namespaces that waited and may go on, as they came."""
        share = self._share
        self._spent = {name: left - share for name, left in self._spent.items() if left > share}
        waiting = [name for name in self._waiting if self._spent.get(name, 0) < self._share]
        for each in waiting:
            del self._waiting[each]
        return waiting

    @property
    def _share(self) -> int:
        return max(1, self._turn // max(1, len(self._spent)))

"""What changed since somebody looked last, so that looking again costs what changed."""

_LONGEST = 65_536

Mark = tuple[int, int]
"""How far somebody has read."""

UNREAD: Mark = (-1, 0)
"""The mark of somebody who has read nothing."""


class ChangeLog:
    """Numbers of what changed, in order. Forgotten when there are too many of them."""

    __slots__ = ("_entries", "_era")

    def __init__(self) -> None:
        self._entries: list[int] = []
        self._era = 0

    @property
    def mark(self) -> Mark:
        """How far one has read who has read everything."""
        return self._era, len(self._entries)

    def add(self, number: int) -> None:
        """Note that something changed."""
        if len(self._entries) >= _LONGEST:
            self.forget()
        self._entries.append(number)

    def extend(self, numbers: list[int]) -> None:
        """Note that some changed."""
        if len(self._entries) + len(numbers) > _LONGEST:
            self.forget()
        self._entries += numbers

    def forget(self) -> None:
        """Make everybody look at everything again."""
        self._entries.clear()
        self._era += 1

    def since(self, mark: Mark) -> set[int] | None:
        """Return what changed since, once each; None if that may be anything."""
        era, position = mark
        return set(self._entries[position:]) if era == self._era else None

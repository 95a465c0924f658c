"""The tree of the fields that are looked at."""

from typing import Final

LABELS: Final = ("metadata", "labels")
ANNOTATIONS: Final = ("metadata", "annotations")
BEGINNING: Final = "*^"
"""Stands, before some text, for the fields of a map whose names begin with that."""


class UnboundedError(Exception):
    """The reads of a policy in a pod cannot be determined."""


class Footprint:
    """A field that is looked at: some fields in it, or its items, or all of it."""

    __slots__ = ("devices", "fields", "valued", "whole")

    def __init__(self) -> None:
        self.fields: dict[str, Footprint] = {}
        """By name; EACH stands for the items of a list. None is as good as all."""
        self.whole = False
        self.devices = False
        """Whether all of it is looked at but how much of ordinary resources it says."""
        self.valued = False
        """Whether EACH stands for the values of a map, too: else for their names alone."""

    @property
    def text(self) -> str:
        """The reads, as a text that is equal for equal reads."""
        if self.whole or not (self.fields or self.devices):
            return "*"
        inner = ",".join(f"{name!r}:{self.fields[name].text}" for name in sorted(self.fields))
        return f"{'devices' * self.devices}{'values' * self.valued}{{{inner}}}"

    def at(self, *path: str) -> "Footprint":
        """Return the footprint of something in it, which is looked at from now on."""
        node = self
        for step in path:
            node = node.fields.setdefault(step, Footprint())
        return node

    def join(self, other: "Footprint") -> None:
        """Look at all that another looks at, too."""
        self.whole = self.whole or other.whole
        self.devices = self.devices or other.devices
        self.valued = self.valued or other.valued
        for step, node in other.fields.items():
            self.at(step).join(node)

    def take(self) -> None:
        """Look at all of it."""
        self.whole = True

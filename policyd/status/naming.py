"""How workloads are named to a person: those of other teams only as far as that is wanted.

A team is a namespace. Its own jobs are always named.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

OtherTeams = Literal["names", "team", "hidden"]
"""Whether jobs of other namespaces are named, their namespaces alone, or neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Names workloads, given by their keys, to readers of one namespace.

    Attributes:
        namespace: Whose jobs are named in any case.
        others: How far workloads of others are named.
        path: The displayed name of a workload: that of its job.
    """

    namespace: str = ""
    others: OtherTeams = "names"
    path: Callable[[str], str] = str

    def one(self, key: str) -> str:
        """Return the displayed name of a single workload."""
        if self.names(key):
            return self.path(key)
        return f"a job of {team_of(key)}" if self.others == "team" else "a job of another team"

    def several(self, keys: Iterable[str]) -> str:
        """Return the displayed names of some workloads, each name once."""
        return ", ".join(dict.fromkeys(map(self.one, keys)))

    def sums(self, amounts: Iterable[tuple[str, int]]) -> dict[str, int]:
        """Return amounts by the name of the holder, summed up."""
        found: dict[str, int] = {}
        for key, amount in amounts:
            name = self.path(key) if self.names(key) else self._holder(key)
            found[name] = found.get(name, 0) + amount
        return found

    def names(self, key: str) -> bool:
        """Tell whether a workload is called by its name: the only place that decides it."""
        return self.all_named or team_of(key) == self.namespace

    @property
    def all_named(self) -> bool:
        """Whether all workloads are called by their names, to readers of any namespace."""
        return self.others == "names"

    def _holder(self, key: str) -> str:
        return team_of(key) if self.others == "team" else "other teams"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """How workloads are named in messages about several of them.

    Attributes:
        others: How far those of other teams than the reader's are.
        reader: The reader's namespace; "" to name in each message those of its own workload.
    """

    others: OtherTeams = "names"
    reader: str = ""

    def to(self, key: str) -> Naming:
        """Return how others are named in the messages of the workload of this key."""
        return Naming(namespace=self.reader or team_of(key), others=self.others)

    def of(self, key: str) -> str:
        """Return the displayed name of the workload of this key itself."""
        return self.to(key).one(key)


def team_of(key: str) -> str:
    """Return the namespace of a workload, by its key."""
    return key.partition("/")[0]


PLAIN = Naming()
"""Names all workloads by their keys."""

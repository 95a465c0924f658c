"""Declare the variables by which policies read the queues: `queue`, `clusterQueue` and `cluster`.

A fact is known, absent or unknown. An absent one (an object without a queue, a queue in which
nothing waits) is a field that is not there, for `has` and `?`. An unknown one fails, also under
`has` and `?`: the policy's `failurePolicy` decides then. Only `cluster.known` never fails.
"""

from collections.abc import Callable, Container, Mapping
from typing import Any, Final, Protocol

from policyd.cel import CelError
from policyd.cel.environment import Fields
from policyd.cel.types import BOOL, INT, STRING, TIMESTAMP, Type, list_of, map_of

_AMOUNTS = map_of(STRING, INT)
_Facts = Mapping[str, tuple[Type, str]]
_LINE: Final[_Facts] = {
    "pending": (INT, "Pending workloads."),
    "requested": (_AMOUNTS, "Requests of pending workloads, by resource."),
    "oldestPending": (
        TIMESTAMP,
        "Since when the oldest of them is pending; absent if none is pending.",
    ),
    "holding": (INT, "Workloads with quota."),
}
_QUOTAS: Final[_Facts] = {
    "nominal": (_AMOUNTS, "Nominal quota, by resource."),
    "used": (_AMOUNTS, "Quota in use, by resource."),
    "available": (
        _AMOUNTS,
        "The amount that could still be used, borrowing included; may be negative.",
    ),
}
_SUMS: Final[_Facts] = {
    "nominal": (_AMOUNTS, "Nominal quota of all queues and cohorts in it, by resource."),
    "used": (_AMOUNTS, "Quota in use, by resource."),
    "idle": (_AMOUNTS, "The part of `nominal` that is not in use, by resource."),
    "pending": _LINE["pending"],
    "requested": _LINE["requested"],
}

QUEUE_FACTS: Final[Mapping[str, _Facts]] = {
    "policyd.LocalQueue": {
        "name": (STRING, "The LocalQueue that the object names."),
        "namespace": (STRING, "Its namespace."),
        "clusterQueue": (STRING, "The name of the ClusterQueue behind it."),
        **_LINE,
        "used": (_AMOUNTS, "Quota that its workloads hold, by resource."),
    },
    "policyd.ClusterQueue": {
        "name": (STRING, "Its name."),
        "cohort": (STRING, "Its cohort; empty for none."),
        "active": (BOOL, "Whether it admits workloads."),
        "strict": (BOOL, "Whether the first workload holds up those behind it (`StrictFIFO`)."),
        **_LINE,
        **_QUOTAS,
        "borrowed": (_AMOUNTS, "The part of `used` beyond its own quota, by resource."),
        "flavors": (map_of(STRING, Type("policyd.Flavor")), "The same for each flavor."),
        "waiting": (
            list_of(Type("policyd.Waiting")),
            "The first 50 pending workloads, in the order in which they are tried.",
        ),
    },
    "policyd.Flavor": _QUOTAS,
    "policyd.Waiting": {
        "namespace": (STRING, "Its namespace."),
        "job": (STRING, "Kind and name of its job, as `Job/train`; absent if there is none."),
        "priority": (INT, "Its priority."),
        "since": (TIMESTAMP, "Since when it is pending."),
        "requests": (_AMOUNTS, "Its requests, by resource."),
    },
    "policyd.Cohort": {
        "name": (STRING, "Its name."),
        "parent": (STRING, "The cohort above it; empty for none."),
        **_SUMS,
    },
    "policyd.Cluster": {
        "known": (BOOL, "Whether facts are known; this never fails."),
        "takenAt": (TIMESTAMP, "The moment of the facts, for comparisons and for the time of day."),
        "clusterQueues": (
            map_of(STRING, Type("policyd.ClusterQueue")),
            "All ClusterQueues, by name.",
        ),
        "cohorts": (map_of(STRING, Type("policyd.Cohort")), "All cohorts, by name."),
        **_SUMS,
    },
}
"""The types that the variables are made of: each field's type and meaning. Amounts are whole
devices, milli-CPU and bytes."""

QUEUE_STRUCTS: Final[Mapping[str, Fields]] = {
    struct: {name: kind for name, (kind, _) in fields.items()}
    for struct, fields in QUEUE_FACTS.items()
}

QUEUE_VARIABLES: Final[Mapping[str, Type]] = {
    "queue": Type("policyd.LocalQueue"),
    "clusterQueue": Type("policyd.ClusterQueue"),
    "cluster": Type("policyd.Cluster"),
}

OF_THE_OBJECT: Final = frozenset(("queue", "clusterQueue"))
"""Variables that depend on the queue that the object names."""


class FactStruct(dict[str, Any]):
    """A struct whose fields are computed when an expression selects them."""

    __slots__ = ("_absent", "_fields", "_missing", "_of", "_unknown")

    def __init__(
        self,
        fields: Mapping[str, Callable[[Any], object]],
        of: object = None,
        *,
        absent: Container[object] = (),
        missing: str = "",
        unknown: bool = False,
    ) -> None:
        """Begin with nothing computed.

        Args:
            fields: How each field is computed, shared by all structs of a type.
            of: What it is computed from.
            absent: Those of the fields that are not there.
            missing: Why these and others are not there, for messages.
            unknown: Whether it is not known that they are not there.
        """
        self._fields = fields
        self._of = of
        self._absent = absent
        self._missing = missing
        self._unknown = unknown

    def __missing__(self, name: str) -> object:
        if name not in self:
            raise CelError(self._missing or f"no such key: {name}")
        value = self[name] = self._fields[name](self._of)
        return value

    def __contains__(self, name: object) -> bool:
        """Tell whether a field is there.

        Raises:
            CelError: If that is unknown.
        """
        there = name in self._fields and name not in self._absent
        if self._unknown and not there:
            raise CelError(self._missing)
        return there

    def __iter__(self) -> Any:  # noqa: ANN401 - it never returns
        """Refuse: what has been computed so far is no result.

        Raises:
            CelError: Always.
        """
        raise CelError("the facts of a queue are not a map: select their fields")


class QueueFacts(Protocol):
    """The facts of the queues at one moment."""

    def variables(self, namespace: str, queue: str, /) -> Mapping[str, object]:
        """Return the values of `queue`, `clusterQueue` and `cluster`.

        Args:
            namespace: Of the request.
            queue: The LocalQueue that the object names; "" for none.
        """
        ...

    def within(self, namespace: str, /) -> "QueueFacts":
        """Return the facts that policies of a namespace may know."""
        ...


class UnknownFacts:
    """No facts: every field but `cluster.known` fails."""

    def __init__(self, reason: str) -> None:
        """Begin.

        Args:
            reason: Why nothing is known, for messages.
        """
        self._message = f"the queues are unknown: {reason}"

    def variables(self, _namespace: str, _queue: str) -> Mapping[str, object]:
        """Return values of which nothing can be selected."""
        nothing = FactStruct({}, missing=self._message, unknown=True)
        cluster = FactStruct({"known": lambda _: False}, missing=self._message, unknown=True)
        return {"queue": nothing, "clusterQueue": nothing, "cluster": cluster}

    def within(self, _namespace: str) -> "UnknownFacts":
        """Return the same: there is nothing to hide."""
        return self


NOT_GIVEN: Final = UnknownFacts("no snapshot of them was given")


def no_queue_facts() -> QueueFacts:
    """Return facts of which nothing is known."""
    return NOT_GIVEN

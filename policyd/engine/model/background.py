"""Define policies that act by themselves: they generate, mutate or delete objects in a cluster.

Such a policy has a compiled policy for its matching, conditions, variables and exceptions.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from policyd.api.meta import Json
from policyd.cel import Budget, CelError, Program
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.confinement import Confinable, ElsewhereError

MOST_OBJECTS: Final = 100
"""Objects that one trigger may have generated."""

TOO_MANY: Final = f"more than {MOST_OBJECTS} objects are generated for one trigger"

MOST_BYTES: Final = 1024 * 1024
"""Bytes of the objects that one trigger may have generated, as JSON: what one may have."""

IsNamespaced = Callable[[str, str], bool | None]
"""Tells whether objects of an apiVersion and kind live in namespaces; None if it is unknown."""

Propagation = Literal["Foreground", "Background", "Orphan"]
"""What happens to the dependents of a deleted object."""


@dataclass(frozen=True, slots=True)
class GeneratedSource:
    """An object as an expression gave it, and the namespace that it is for.

    `namespace` is None if the expression did not say one: then it is the object's own.
    """

    namespace: str | None
    value: Json


class ObjectCollector(Confinable):
    """The value of `generator`: collects the objects of one evaluation."""

    __slots__ = ("_namespace", "_taken", "failure")

    cel_type_name = "generator.Context"

    def __init__(self, namespace: str = "") -> None:
        """Begin with no object; those of a namespaced policy are all for its namespace."""
        self._taken: list[GeneratedSource] = []
        self._namespace = namespace
        self.failure: CelError | None = None
        """The error of a call, which an expression may have absorbed."""

    @property
    def taken(self) -> tuple[GeneratedSource, ...]:
        """The objects so far, in order."""
        return tuple(self._taken)

    def within(self, namespace: str) -> "ObjectCollector":
        """Return it for a policy of a namespace."""
        return self if namespace == self._namespace else ObjectCollector(namespace)

    def take(self, namespace: str | None, objects: Iterable[Json]) -> None:
        """Take objects.

        Raises:
            CelError: If there are too many, or the policy may not generate there.
        """
        if self._namespace and namespace not in (None, self._namespace):
            error = ElsewhereError(self._namespace, f"namespace `{namespace}`")
            raise self._failed(CelError(str(error)))
        where = self._namespace or namespace
        for each in objects:
            if len(self._taken) >= MOST_OBJECTS:
                raise self._failed(CelError(TOO_MANY))
            self._taken.append(GeneratedSource(where, each))

    def _failed(self, error: CelError) -> CelError:
        self.failure = error
        return error


Produce = Callable[[Mapping[str, object], Budget, ObjectCollector], None]
"""Evaluates one entry of `generate`: its objects are taken by the generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What a policy generates.

    Attributes:
        entries: The entries of `generate`, in order.
        synchronize: Whether generated objects follow their trigger, policy and sources.
        existing: Whether objects that exist before the policy are triggers, too.
        orphan: Whether generated objects stay when the policy is deleted.
        at_requests: Whether objects that are created or changed are triggers.
        unknown: What its expressions read of requests that is not known of an object; empty if
            there is nothing of that kind.
    """

    entries: tuple[Produce, ...]
    synchronize: bool = False
    existing: bool = False
    orphan: bool = False
    at_requests: bool = True
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """When a policy deletes the objects that it matches.

    Attributes:
        schedule: The schedule, in cron's format.
        due: Returns the first time after another, in seconds since the epoch; None for never.
        propagation: What happens to the dependents; as the kind says if it is None.
    """

    schedule: str
    due: Callable[[float], float | None] = field(repr=False)
    propagation: Propagation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingMutation:
    """What a policy mutates in objects that exist.

    Attributes:
        targets: The policy as its targets see it: with their constraints and conditions.
        triggered: Whether its triggers are other objects than its targets, whose requests its
            expressions see.
        named: Names the targets of a trigger; None if the constraints do.
        unknown: What its expressions read of requests that is not known of an object; empty if
            there is nothing of that kind.
    """

    targets: CompiledPolicy
    triggered: bool = False
    named: Program | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundPolicy:
    """A policy that acts by itself.

    Attributes:
        policy: Its matching, conditions, variables and exceptions.
        action: What it does.
    """

    policy: CompiledPolicy
    action: Generation | Deletion | ExistingMutation

    @property
    def id(self) -> str:
        """Its unique identifier."""
        return self.policy.id

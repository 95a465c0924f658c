"""Define compiled policies: every expression compiled, every default set.

Policies of all kinds come to the same: policyd's own, the API server's, and those of other engines.
Their differences are fields: the wording of a denial, and the additions of a binding.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from policyd.api.policy import (
    Enforcement,
    ExceptionTerms,
    MatchConstraints,
    MatchResources,
    ParamRef,
    Policy,
    Reason,
)
from policyd.api.rollout import RolloutStep
from policyd.cel import Environment, Program
from policyd.engine.inject.operations import InjectedField
from policyd.engine.inject.templates import ValueTemplate
from policyd.engine.model.environments import PolicyEnvironments
from policyd.engine.model.facts import Facts
from policyd.engine.model.functions import COUNTS_CLAIMS
from policyd.engine.model.queue_facts import QUEUE_VARIABLES
from policyd.engine.objects.match import selects_all

OWN = "Policy"
VALIDATING = "ValidatingAdmissionPolicy"
MUTATING = "MutatingAdmissionPolicy"
NATIVE = frozenset((VALIDATING, MUTATING))
"""The API server's own kinds of policies."""

PatchType = Literal["ApplyConfiguration", "JSONPatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledValidation:
    """One validation; `place` is its name, or where it stands."""

    place: str
    program: Program
    message: str
    message_program: Program | None
    remedy: ValueTemplate
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMutation:
    """One mutation by CEL; `place` is where it stands."""

    place: str
    program: Program
    patch_type: PatchType


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledBinding:
    """A binding: where a policy applies.

    Attributes:
        name: The binding's name; empty for the policy's own.
        policy: The name of the policy it is for.
        constraints: The constraints that it adds to the policy, if any.
        param_ref: The reference to params.
        actions: The effects of a validation that is not true; empty for the policy's own.
        policy_kind: The kind of that policy.
        place: Its place in a file.
        rollout: The requests for which the enforcement differs.
        actions_for: Returns the actions for a request, if they depend on its namespace.
        unusable: Why it cannot be asked, if it cannot: its policy then cannot be, either.
    """

    name: str = ""
    policy: str = ""
    constraints: MatchResources | None = None
    param_ref: ParamRef | None = None
    actions: tuple[Enforcement, ...] = ("Deny",)
    policy_kind: str = OWN
    place: str = ""
    rollout: tuple[RolloutStep, ...] = ()
    actions_for: Callable[[Facts], tuple[Enforcement, ...]] | None = None
    unusable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledException:
    """An exception: the policies that do not apply, and to which requests.

    Attributes:
        name: The exception's name.
        policies: Kind and name of the policies; an empty kind stands for any.
        conditions: All must be true of the request.
        images: Images that the policy is to allow, while it applies.
        values: Values that it is to allow.
        terms: Its users, places, end and reason, if it is part of the policy.
        picks: Returns whether it is for a request of a policy, if conditions do not decide.
        until: When it ends, in seconds since the epoch.
        place: Where it was read.
        namespace: The only namespace that its conditions see, if it is a namespaced kind.
        missing: The values of variables that its conditions may name, where the caller gives none.
    """

    name: str
    policies: frozenset[tuple[str, str]]
    conditions: tuple[Program, ...]
    images: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    terms: ExceptionTerms | None = None
    picks: "Callable[[CompiledPolicy, Facts], bool] | None" = None
    until: float = math.inf
    place: str = ""
    namespace: str = ""
    missing: Mapping[str, object] = field(default_factory=dict)

    @property
    def uses(self) -> frozenset[str]:
        """The variables that its conditions name."""
        return frozenset().union(*(program.variables_used for program in self.conditions))

    @property
    def exempts(self) -> bool:
        """Whether the policy does not apply, rather than only getting allowed values."""
        return not self.images and not self.values

    @property
    def words(self) -> str:
        """Why and until when it holds, for the audit log."""
        if self.terms is None:
            return self.name
        terms = self.terms
        until = f" until {terms.until}" if terms.until else ""
        return f"{terms.reason}{until}" + (f" ({terms.owner})" if terms.owner else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPolicy:
    """A policy that can be evaluated.

    Attributes:
        policy: The author's policy, as an object of policyd's own kind.
        kind: The kind it was written as.
        name: Its name.
        place: Where it was read: `file:line:column`, or the name of the object.
        constraints: Which requests it concerns.
        conditions: The match conditions, by name.
        variables: The variables' programs, in order.
        steps: Its injections.
        mutations: Its changes by CEL.
        validations: Its validations.
        annotations: Its entries for the audit log, by key.
        programs: All expressions that are evaluated for each request, except variables: the values
            that are injected are among them, messages and remedies are not.
        uses: The variables that its expressions name, `pod` and `request` among them.
        reads: The names of the object's fields that decide what it changes.
        writes: The names of the object's fields that it changes.
        named_only: Whether it concerns everything of the resources and operations it names, as far
            as its rules go.
        bindings: Its bindings; one of its own if it needs none.
        environments: The environments of its expressions, without the types of its own variables.
        namespace: The only namespace it concerns, if it is a namespaced kind.
        part: The part of the author's policy that this is, if it was split.
        templates: Whether expressions see a pod template as if it were a pod.
        applies: Decides parts of its matching that rules cannot express.
        exceptions: Exemptions from it.
        background: Whether it may be evaluated for existing objects.
        unusable: The reason if it cannot be evaluated: it is a placeholder then.
        own: Whether it is of policyd's own kind, with the features that only this kind has.
        id: Its unique identifier: its name, and its kind unless that is policyd's own.
        unconditional: Whether its rules alone decide which requests match.
        by_template: Whether it is evaluated once for each pod template, not for the whole object.
    """

    policy: Policy
    name: str
    place: str
    constraints: MatchConstraints
    conditions: tuple[tuple[str, Program], ...]
    variables: dict[str, Program]
    steps: tuple[InjectedField, ...]
    mutations: tuple[CompiledMutation, ...]
    validations: tuple[CompiledValidation, ...]
    annotations: tuple[tuple[str, Program], ...]
    programs: tuple[Program, ...]
    uses: frozenset[str]
    reads: frozenset[str]
    writes: frozenset[str]
    named_only: bool
    bindings: tuple[CompiledBinding, ...]
    environments: PolicyEnvironments = field(repr=False, compare=False)
    kind: str = OWN
    namespace: str = ""
    part: str = ""
    templates: bool = False
    applies: Callable[[Facts], bool] | None = None
    exceptions: tuple[CompiledException, ...] = ()
    background: bool = True
    unusable: str = ""
    own: bool = field(init=False)
    id: str = field(init=False)
    unconditional: bool = field(init=False)
    by_template: bool = field(init=False)

    def __post_init__(self) -> None:
        """Compute once the values that each review needs several times."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        whole = name if self.kind == OWN else f"{self.kind}/{name}"
        object.__setattr__(self, "own", self.kind == OWN)
        object.__setattr__(self, "id", f"{whole}#{self.part}" if self.part else whole)
        object.__setattr__(self, "unconditional", self._is_unconditional())
        object.__setattr__(self, "by_template", self.templates or "pod" in self.uses)

    def _is_unconditional(self) -> bool:
        constraints, spec = self.constraints, self.policy.spec
        selectors = (constraints.namespace_selector, constraints.object_selector)
        return (
            self.named_only
            and not self.namespace
            and self.applies is None
            and all(map(selects_all, selectors))
            and spec.param_kind is None
            and all(b.constraints is None and b.actions_for is None for b in self.bindings)
        )

    @property
    def changes(self) -> bool:
        """Whether it mutates objects."""
        return bool(self.steps or self.mutations)

    @property
    def checks(self) -> bool:
        """Whether it validates requests."""
        return bool(self.validations or self.annotations or self.unusable)

    @property
    def shadow_of(self) -> str:
        """The policy that it may replace; empty if it is in force itself."""
        return self.policy.spec.shadow_of

    @property
    def staged(self) -> bool:
        """Whether its enforcement differs for some requests."""
        return any(binding.rollout for binding in self.bindings)

    @property
    def reads_queues(self) -> bool:
        """Whether an expression reads the facts of queues."""
        return not self.uses.isdisjoint(QUEUE_VARIABLES)

    @property
    def counts_claims(self) -> bool:
        """Whether an expression counts the devices of claims, which are other objects."""
        programs = (*self.programs, *self.variables.values())
        return any(COUNTS_CLAIMS in program.source for program in programs)

    @property
    def ignores_failures(self) -> bool:
        """Whether it is skipped when it cannot be evaluated."""
        return self.policy.spec.failure_policy == "Ignore"


def environments_of(policy: CompiledPolicy) -> PolicyEnvironments:
    """Return the environments that a policy's expressions were compiled in."""
    types = {name: program.result_type for name, program in policy.variables.items()}
    return policy.environments.with_variables(types)


def expressions_of(policy: CompiledPolicy) -> Iterator[tuple[str, Program, Environment]]:
    """Yield the expressions of a policy, by name or by where they stand, and their environments."""
    environments = environments_of(policy)
    for name, program in policy.conditions:
        yield name, program, environments.conditions
    for name, program in policy.variables.items():
        yield name, program, environments.expressions
    for validation in policy.validations:
        yield validation.place, validation.program, environments.expressions
    for mutation in policy.mutations:
        yield mutation.place, mutation.program, environments.mutations

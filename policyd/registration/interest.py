"""What each policy asks to be sent to the webhooks, and what must not pass if nobody answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from policyd.api.admission import FailurePolicy, Rule
from policyd.api.policy import MatchConstraints, MatchResources
from policyd.engine.evaluate.unjudged import stops_unasked
from policyd.engine.model.compiled import (
    MUTATING,
    OWN,
    VALIDATING,
    CompiledBinding,
    CompiledPolicy,
)
from policyd.jobs.integrations import Integrations
from policyd.registration.atoms import RuleAtom, atoms_of, coarser
from policyd.registration.conditions import exported, label_condition, name_condition
from policyd.registration.implied import implied_labels
from policyd.registration.queue_atoms import (
    HELD_FOR_A_SET,
    IN_A_QUEUE,
    IN_NO_QUEUE,
    NEW_QUEUES,
    OF_A_SET,
    QUEUES,
    checked_jobs,
    held_jobs,
    members,
    namespaces_of_jobs,
    new_jobs,
    prepared_jobs,
)
from policyd.registration.requirements import (
    Requirements,
    in_order,
    named,
    namespaces_of,
    requirements_of,
    text_of,
)

_PLAIN: Final = frozenset({OWN, VALIDATING, MUTATING})
"""Kinds whose conditions see the object itself. Kyverno's may see a template of it."""

MOST_NAMED: Final = 100
"""Namespaces that a selector names: the API server goes through them at each request."""


MOST_ATOMS: Final = 256
"""Combinations that the rules of one policy name, or of all policies of one namespace; beyond that,
wildcards stand in the place of lists."""

MOST_OF_NAMESPACES: Final = 1024
"""Combinations that the policies of all namespaces name together. Deriving what is sent compares
each with each; wildcards come first in the namespaces that name the most."""


@dataclass(frozen=True, slots=True)
class Interest:
    """What one rule of a policy, or of the queue, asks of the requests of its atoms."""

    failure_policy: FailurePolicy
    namespaces: Requirements = frozenset()
    objects: Requirements = frozenset()
    conditions: frozenset[str] = frozenset()
    narrow: bool = False
    """Whether no more may be sent than this, as all that is sent is refused in an outage."""

    @property
    def rank(self) -> tuple[bool, int, str]:
        """Puts whatever includes others before them, and everything in a fixed order."""
        size = len(self.namespaces) + len(self.objects) + len(self.conditions)
        parts = (*map(text_of, (self.namespaces, self.objects)), *sorted(self.conditions))
        return self.failure_policy == "Ignore", size, "\n".join(parts)

    def includes(self, other: "Interest") -> bool:
        """Tell whether whatever `other` sends is sent by this as well, given the same atom."""
        return (
            self.failure_policy in {"Fail", other.failure_policy}
            and self.namespaces <= other.namespaces
            and self.objects <= other.objects
            and self.conditions <= other.conditions
        )


Given = tuple[Interest, Iterable[RuleAtom]]
Interests = Mapping[Interest, frozenset[RuleAtom]]


def queue_interests(
    queue: Integrations,
    *,
    defaulted: frozenset[str] = frozenset(),
    failure_policy: FailurePolicy = "Fail",
) -> tuple[list[Given], list[Given]]:
    """Return what is to be held for the queue's sake, and what is to be checked.

    Args:
        queue: Which jobs are held.
        defaulted: Namespaces with a queue for jobs that name none.
        failure_policy: What becomes of jobs that queue, and of queues, if nobody answers. What
            names no queue passes, but where all jobs are to have one.
    """
    selected = namespaces_of_jobs(queue)
    named = frozenset() if queue.manages_all else frozenset({IN_A_QUEUE})
    queued = Interest(failure_policy, namespaces=selected, objects=named, narrow=True)
    everything = Interest(failure_policy, narrow=True)
    held: list[Given] = [
        (queued, held_jobs(queue)),
        (Interest("Ignore", namespaces=selected), prepared_jobs(queue)),
        (everything, NEW_QUEUES),
    ]
    if not queue.manages_all:
        of_a_set = frozenset({OF_A_SET, IN_NO_QUEUE})
        member = replace(queued, objects=of_a_set, conditions=frozenset({HELD_FOR_A_SET}))
        held.append((member, members(queue)))
    if defaulted:
        within = _within(defaulted)
        # What is not narrow would have an outage stop all pods of the cluster.
        there = replace(queued, objects=frozenset()) if within else Interest("Ignore")
        held.append((replace(there, namespaces=selected | within), new_jobs(queue)))
    return held, [(queued, checked_jobs(queue)), (everything, QUEUES)]


def _within(namespaces: frozenset[str]) -> Requirements:
    """Return what selects namespaces by name; all, where a selector of them would be too long."""
    return named(*sorted(namespaces)) if len(namespaces) <= MOST_NAMED else frozenset()


def named_too_much(policies: Iterable[CompiledPolicy]) -> frozenset[str]:
    """Return the namespaces whose own policies name too many combinations, alone or together."""
    found: dict[str, set[RuleAtom]] = {}
    for policy in policies:
        atoms = found.setdefault(policy.namespace, set())
        for binding in policy.bindings if policy.namespace and len(atoms) <= MOST_ATOMS else ():
            rules = coarser(_rules(_constraints(policy, binding)), MOST_ATOMS)
            atoms.update(atom for rule in rules for atom in atoms_of(rule))
    left = sum(map(len, found.values()))
    greedy = set()
    for namespace, atoms in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):
        if len(atoms) <= MOST_ATOMS and left <= MOST_OF_NAMESPACES:
            break
        greedy.add(namespace)
        left -= len(atoms)
    return frozenset(greedy)


def checks_of(
    policy: CompiledPolicy, binding: CompiledBinding, *, coarse: bool = False
) -> Iterable[Given]:
    """Return what is to be asked, and what must be: of a roll-out, where a step refuses.

    Args:
        policy: The policy.
        binding: By which it is applied.
        coarse: Whether wildcards stand in the place of what its rules name.
    """
    stops = stops_unasked(policy)
    refuses = stops and "Deny" in binding.actions
    most = 0 if coarse else MOST_ATOMS
    yield from interests_of(policy, binding, "Fail" if refuses else "Ignore", most=most)
    for step in binding.rollout if stops and not refuses else ():
        if step.enforcement == "Deny":
            within = namespaces_of(step)
            yield from interests_of(policy, binding, "Fail", within=within, most=most)


def interests_of(
    policy: CompiledPolicy,
    binding: CompiledBinding,
    failure_policy: FailurePolicy,
    *,
    within: Requirements = frozenset(),
    most: int = MOST_ATOMS,
) -> Iterable[Given]:
    """Return what a policy asks for where one binding has it applied, rule by rule."""
    constraints = _constraints(policy, binding)
    conditions_as_said = policy.policy.spec.match_conditions if policy.kind in _PLAIN else ()
    expressions = [condition.expression for condition in conditions_as_said]
    namespaces = (requirements_of(c.namespace_selector) for c in constraints)
    # One may select an object as it is, and another as it was: only the first is the webhook's.
    selectors = [s for c in constraints if (s := requirements_of(c.object_selector))]
    interest = Interest(
        failure_policy,
        namespaces=frozenset().union(*namespaces, named(policy.namespace), within),
        objects=selectors[0] if selectors else frozenset(),
    )
    others = [label_condition(in_order(selector)) for selector in selectors[1:]]
    for rule in coarser(_rules(constraints), most):
        conditions = {*exported(expressions, rule), *others}
        if rule.resource_names:
            conditions.add(name_condition(rule.resource_names))
        objects = interest.objects or implied_labels(expressions, rule)
        asked = replace(interest, objects=objects, conditions=frozenset(conditions))
        yield asked, frozenset(atoms_of(rule))


def _constraints(
    policy: CompiledPolicy, binding: CompiledBinding
) -> list[MatchConstraints | MatchResources]:
    return [c for c in (policy.constraints, binding.constraints) if c is not None]


def _rules(constraints: Iterable[MatchConstraints | MatchResources]) -> tuple[Rule, ...]:
    """Return the rules of a policy, or of its binding where it has none."""
    return next((c.resource_rules for c in constraints if c.resource_rules), ())

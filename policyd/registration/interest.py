"""The requests that each policy needs to see, and those that need an answer to pass."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from policyd.api.admission import FailurePolicy, Rule
from policyd.api.policy import MatchConstraints, MatchResources
from policyd.api.selectors import Requirement
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.engine.documents.findings import Finding
from policyd.engine.evaluate.unevaluated import fails_closed
from policyd.engine.model.compiled import (
    MUTATING,
    NATIVE,
    OWN,
    VALIDATING,
    CompiledBinding,
    CompiledPolicy,
)
from policyd.jobs.integrations import Integrations
from policyd.registration.atoms import RuleAtom, atoms_of, coarser, combinations
from policyd.registration.conditions import exported, label_condition, name_condition
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

_OBJECTS: Final = frozenset({"object", "oldObject"})

_PLAIN: Final = frozenset({OWN, VALIDATING, MUTATING})
"""Kinds whose conditions see the object itself. Kyverno's may see a template of it."""

MOST_NAMED: Final = 100
"""Namespaces that a selector names: the API server goes through them at each request."""


MOST_ATOMS: Final = 256
"""Combinations that the rules of one policy name, or of all policies of one namespace; beyond that,
wildcards replace lists."""

MOST_OF_NAMESPACES: Final = 1024
"""Combinations that the policies of all namespaces name together. The derivation compares
each with each; wildcards come first in the namespaces that name the most."""


@dataclass(frozen=True, slots=True)
class Interest:
    """The selectors and conditions of one rule of a policy, or of the queue."""

    failure_policy: FailurePolicy
    namespaces: Requirements = frozenset()
    objects: Requirements = frozenset()
    conditions: frozenset[str] = frozenset()
    narrow: bool = False
    """Whether no more may be sent than this, as all that is sent is refused in an outage."""

    @property
    def rank(self) -> tuple[bool, int, str]:
        """Sorts interests that include others before these, in a fixed order."""
        size = len(self.namespaces) + len(self.objects) + len(self.conditions)
        parts = (*map(text_of, (self.namespaces, self.objects)), *sorted(self.conditions))
        return self.failure_policy == "Ignore", size, "\n".join(parts)

    def includes(self, other: "Interest") -> bool:
        """Tell whether this includes all requests of `other`, given the same atom."""
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
    """Return the interests of the queue: objects to hold, and objects to check.

    Args:
        queue: Which jobs are held.
        defaulted: Namespaces with a queue for jobs that name none.
        failure_policy: The failurePolicy for jobs that queue, and for queues, if no webhook
            answers. A job without a queue passes, unless all jobs are to have one.
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
        # Otherwise, an outage would stop all pods of the cluster.
        there = replace(queued, objects=frozenset()) if within else Interest("Ignore")
        held.append((replace(there, namespaces=selected | within), new_jobs(queue)))
    return held, [(queued, checked_jobs(queue)), (everything, QUEUES)]


def _within(namespaces: frozenset[str]) -> Requirements:
    """Return a selector of namespaces by name; of all, if it would be too long."""
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
    """Return the wanted requests, and the required ones: of a roll-out, those that a step refuses.

    Args:
        policy: The policy.
        binding: By which it is applied.
        coarse: Whether wildcards replace the names of its rules.
    """
    stops = fails_closed(policy)
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
    """Return the interests of a policy under one binding, rule by rule."""
    constraints = _constraints(policy, binding)
    own_conditions = policy.policy.spec.match_conditions if policy.kind in _PLAIN else ()
    expressions = [condition.expression for condition in own_conditions]
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


def widened_rules(policy: CompiledPolicy) -> Iterator[Finding]:
    """Warn if more requests are sent to the webhooks than the rules of a policy name."""
    number = max(
        (combinations(_rules(_constraints(policy, each))) for each in policy.bindings), default=0
    )
    if number > MOST_ATOMS and policy.kind not in NATIVE:
        yield Finding(
            source=policy.place,
            message=f"the rules name {number:,} combinations of group, version, resource and"
            f" operation: with more than {MOST_ATOMS}, wildcards replace lists, and the webhooks"
            " are called for more objects",
            hint="write a rule for each group, with the resources of that group only",
            severity="warning",
            rule="wide-rules",
        )


def _constraints(
    policy: CompiledPolicy, binding: CompiledBinding
) -> list[MatchConstraints | MatchResources]:
    return [c for c in (policy.constraints, binding.constraints) if c is not None]


def _rules(constraints: Iterable[MatchConstraints | MatchResources]) -> tuple[Rule, ...]:
    """Return the rules of a policy, or of its binding where it has none."""
    return next((c.resource_rules for c in constraints if c.resource_rules), ())


def implied_labels(expressions: Iterable[str], rule: Rule) -> Requirements:
    """Return a label that there is, before or after, where all conditions hold; empty if none.

    A selector of labels costs the API server next to nothing, where a condition costs half a
    millisecond. One label at most: a selector asks for all that it names of one object, either the
    old or the new one.

    Args:
        expressions: CEL that compiles, and that is asked of the request as a whole.
        rule: The requests that they are asked about.
    """
    keys = frozenset().union(*(_keys(parse(text), rule) for text in expressions))
    return frozenset(Requirement(key=key, operator="Exists") for key in sorted(keys)[:1])


def _keys(node: ast.ExpressionNode, rule: Rule) -> frozenset[str]:
    match node:
        case ast.Logic(conjunction=True, operands=operands):
            return frozenset().union(*(_keys(each, rule) for each in operands))
        case ast.Logic(operands=operands):
            left = [each for each in operands if not _never(each, rule)]
            found = [_keys(each, rule) for each in left]
            return frozenset.intersection(*found) if found else frozenset()
        case ast.Call(function="_!=_", arguments=(value, ast.Literal(value=""))):
            return _key(value)
        case _:
            return frozenset()


def _never(node: ast.ExpressionNode, rule: Rule) -> bool:
    """Tell whether a node is true of no request of the rule: by its operation, or its resource."""
    match node:
        case ast.Logic(conjunction=True, operands=operands):
            return any(_never(each, rule) for each in operands)
        case ast.Call(
            function="_==_",
            arguments=(
                ast.Select(operand=ast.Identifier(name="request"), field="operation"),
                ast.Literal(value=str() as operation),
            ),
        ):
            return operation not in rule.operations and "*" not in rule.operations
        case ast.Call(
            function="_!=_",
            arguments=(
                ast.Select(
                    operand=ast.Select(operand=ast.Identifier(name="request"), field="resource"),
                    field="resource",
                ),
                ast.Literal(value=str() as resource),
            ),
        ):
            return set(rule.resources) == {resource}
        case _:
            return False


def _key(node: ast.ExpressionNode) -> frozenset[str]:
    """Return the label that `object.metadata.?labels[?'key'].orValue('')` is the value of."""
    match node:
        case ast.Call(
            function="orValue",
            target=ast.Index(
                operand=ast.Select(
                    operand=ast.Select(operand=ast.Identifier(name=name), field="metadata"),
                    field="labels",
                ),
                index=ast.Literal(value=str() as key),
            ),
            arguments=(ast.Literal(value=""),),
        ) if name in _OBJECTS:
            return frozenset({key})
        case _:
            return frozenset()

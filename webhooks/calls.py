"""Which requests are sent to the door: derived from the policies, as narrow as webhooks can say.

Every call is decided by all policies, whichever webhook sent it: so mutations keep their order, no
answer leaves out what another webhook's policy has to say, and replicas that know different
policies for a moment can answer each other's calls. A webhook only says what is worth a call, and
what happens to that if nobody answers. Namespaces are cut into pieces that have nothing in common:
what is to be changed is sent once, so that a policy that is not idempotent does its work once, and
what is to be checked once for each failurePolicy, or twice with the same answer if that would make
too many pieces.

A webhook has one namespace selector and one failurePolicy. Within these, what the policies ask of
labels, of names, and by match conditions becomes the object selector if all ask the same, and else
one match condition: that one of the policies may want the request. What stands in the way of that
is dropped, not guessed: a condition that only the door can ask is asked there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from policyd.api.admission import FailurePolicy, Rule
from policyd.api.policy import MatchConstraints, MatchResources
from policyd.engine.compiled import (
    MUTATING,
    OWN,
    VALIDATING,
    CompiledBinding,
    CompiledPolicy,
)
from policyd.jobs.integrations import Integrations
from webhooks.cells import Cell, cells_of, connected, rules_of, uncovered
from webhooks.conditions import all_of, any_of, exported, label_condition, name_condition
from webhooks.queue_cells import (
    IN_A_QUEUE,
    NEW_QUEUES,
    QUEUES,
    checked_jobs,
    held_jobs,
    namespaces_of_jobs,
)
from webhooks.requirements import (
    Requirements,
    apart,
    common,
    in_order,
    named,
    namespaces_of,
    requirements_of,
    text_of,
)

MOST_WEBHOOKS: Final = 16
"""Webhooks in one configuration. The API server looks at the selectors of all for each request, so
that beyond this many, calls for nothing are the cheaper evil: first everything is sent that the
selected namespaces have of the kinds, then whatever has a label in common with these namespaces."""

MOST_ALTERNATIVES: Final = 16
"""Policies whose conditions are joined into one."""

LONGEST_CONDITION: Final = 8192
"""Characters of such a condition, so that a configuration stays one that people can read."""

_PLAIN: Final = frozenset({OWN, VALIDATING, MUTATING})
"""Kinds whose conditions see the object itself. Kyverno's may see a template of it."""

MUTATING_OPERATIONS: Final = frozenset({"CREATE", "UPDATE"})
"""What can be changed on its way: not what is deleted, nor a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One webhook: what it sends to the door, and whether that is refused if nobody answers."""

    failure_policy: FailurePolicy
    rules: tuple[Rule, ...]
    namespaces: Requirements = frozenset()
    objects: Requirements = frozenset()
    condition: str = ""
    """CEL of what is sent; empty for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorRules:
    """Which requests are sent to the door."""

    mutate: tuple[Call, ...] = ()
    validate: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class _Demand:
    """What one rule of a policy asks of the requests of its cells."""

    failure_policy: FailurePolicy
    namespaces: Requirements = frozenset()
    objects: Requirements = frozenset()
    conditions: frozenset[str] = frozenset()

    @property
    def rank(self) -> tuple[bool, int, str]:
        """Puts whatever includes others before them, and everything in a fixed order."""
        size = len(self.namespaces) + len(self.objects) + len(self.conditions)
        parts = (*map(text_of, (self.namespaces, self.objects)), *sorted(self.conditions))
        return self.failure_policy == "Ignore", size, "\n".join(parts)

    def includes(self, other: "_Demand") -> bool:
        """Tell whether whatever `other` sends is sent by this as well, given the same cell."""
        return (
            self.failure_policy in {"Fail", other.failure_policy}
            and self.namespaces <= other.namespaces
            and self.objects <= other.objects
            and self.conditions <= other.conditions
        )


_Given = tuple[_Demand, Iterable[Cell]]
_Demands = Mapping[_Demand, frozenset[Cell]]


def door_rules(policies: Iterable[CompiledPolicy], *, queue: Integrations | None) -> DoorRules:
    """Derive what is sent from the policies: what can matter to one of them, and little else.

    Nothing is sent for mutation that must not pass if nobody answers: what slipped past unchanged
    is refused by validation, or found by the controller. Validation follows the policies that
    refuse; those that only warn or note stop nothing. Exclude rules are left to the engine.

    Args:
        policies: Those in force.
        queue: Which jobs are held for their queue, while Kueue's objects are checked; None if
            nothing is done for the queue.
    """
    mutate: list[_Given] = []
    validate: list[_Given] = []
    applied = [(policy, binding) for policy in policies for binding in policy.bindings]
    for policy, binding in applied:
        if policy.steps or policy.mutations:
            mutate += _demands(policy, binding, "Ignore")
        if policy.validations or policy.annotations:
            validate += _checks(policy, binding)
    if queue is not None:
        held, checked = _of_queue(queue)
        mutate += held
        validate += checked
    changeable = [
        (demand, [cell for cell in cells if cell.operation in MUTATING_OPERATIONS])
        for demand, cells in mutate
    ]
    return DoorRules(mutate=_bounded(changeable, once=True), validate=_bounded(validate))


def _of_queue(queue: Integrations) -> tuple[list[_Given], list[_Given]]:
    """Return what is to be held for the queue's sake, and what is to be checked."""
    named = frozenset() if queue.manages_all else frozenset({IN_A_QUEUE})
    queued = _Demand("Ignore", namespaces=namespaces_of_jobs(queue), objects=named)
    everything = _Demand("Ignore")
    held: list[_Given] = [(queued, held_jobs(queue)), (everything, NEW_QUEUES)]
    return held, [(queued, checked_jobs(queue)), (everything, QUEUES)]


def _checks(policy: CompiledPolicy, binding: CompiledBinding) -> Iterable[_Given]:
    """Return what is to be checked, and what must be: of a roll-out, where a step refuses."""
    stops = not policy.shadow_of and not policy.ignores_failures
    refuses = stops and "Deny" in binding.actions
    yield from _demands(policy, binding, "Fail" if refuses else "Ignore")
    for step in binding.rollout if stops and not refuses else ():
        if step.enforcement == "Deny":
            yield from _demands(policy, binding, "Fail", within=namespaces_of(step))


def _demands(
    policy: CompiledPolicy,
    binding: CompiledBinding,
    failure_policy: FailurePolicy,
    *,
    within: Requirements = frozenset(),
) -> Iterable[_Given]:
    """Return what a policy asks for where one binding has it applied, rule by rule."""
    constraints = [c for c in (policy.constraints, binding.constraints) if c is not None]
    conditions_as_said = policy.policy.spec.match_conditions if policy.kind in _PLAIN else ()
    expressions = [condition.expression for condition in conditions_as_said]
    namespaces = (requirements_of(c.namespace_selector) for c in constraints)
    # One may select an object as it is, and another as it was: only the first is the webhook's.
    selectors = [s for c in constraints if (s := requirements_of(c.object_selector))]
    demand = _Demand(
        failure_policy,
        namespaces=frozenset().union(*namespaces, named(policy.namespace), within),
        objects=selectors[0] if selectors else frozenset(),
    )
    others = [label_condition(in_order(selector)) for selector in selectors[1:]]
    for rule in _rules(constraints):
        conditions = {*exported(expressions, rule), *others}
        if rule.resource_names:
            conditions.add(name_condition(rule.resource_names))
        yield replace(demand, conditions=frozenset(conditions)), cells_of(rule)


def _rules(constraints: Iterable[MatchConstraints | MatchResources]) -> tuple[Rule, ...]:
    """Return the rules of a policy, or of its binding where it has none."""
    return next((c.resource_rules for c in constraints if c.resource_rules), ())


def _bounded(given: Iterable[_Given], *, once: bool = False) -> tuple[Call, ...]:
    """Return the calls, widened until they are few enough.

    Args:
        given: What is asked for.
        once: Whether no request may be sent by two of them, at any price.
    """
    demands, sets = [], []
    for demand, cells in given:
        demands.append(demand)
        sets.append(frozenset(cells))
    calls: tuple[Call, ...] = ()
    for widen in (_as_they_are, _all_objects, _all_namespaces):
        demands = widen(demands)
        calls = _calls(_needed(zip(demands, sets, strict=True)), once=once)
        if len(calls) <= MOST_WEBHOOKS:
            break
    return calls


def _as_they_are(demands: list[_Demand]) -> list[_Demand]:
    return demands


def _all_objects(demands: list[_Demand]) -> list[_Demand]:
    return [replace(d, objects=frozenset(), conditions=frozenset()) for d in demands]


def _all_namespaces(demands: list[_Demand]) -> list[_Demand]:
    selected: dict[FailurePolicy, list[Requirements]] = {}
    for demand in demands:
        selected.setdefault(demand.failure_policy, []).append(demand.namespaces)
    unions = {failure_policy: common(selectors) for failure_policy, selectors in selected.items()}
    return [replace(demand, namespaces=unions[demand.failure_policy]) for demand in demands]


def _needed(given: Iterable[tuple[_Demand, frozenset[Cell]]]) -> _Demands:
    """Leave out what another demand has sent anyway; the widest come first."""
    together: dict[_Demand, frozenset[Cell]] = {}
    for demand, cells in given:
        together[demand] = together.get(demand, frozenset()) | cells
    needed: dict[_Demand, frozenset[Cell]] = {}
    for demand in sorted(together, key=lambda d: d.rank):
        sent = [cell for other in needed if other.includes(demand) for cell in needed[other]]
        needed[demand] = frozenset(uncovered(together[demand], sent))
    return needed


def _apart(demands: _Demands, *, once: bool) -> _Demands:
    """Cut namespaces into pieces that have nothing in common, wherever the same may be sent.

    Args:
        demands: What is asked for, with one failurePolicy.
        once: What to do if there are too many pieces: send more, but once, or else some things
            twice, but no more.
    """
    cut: dict[_Demand, frozenset[Cell]] = {}
    for cells in connected(frozenset().union(*demands.values())):
        asking = {demand: its & cells for demand, its in demands.items() if its & cells}
        selectors = {demand.namespaces for demand in asking}
        pieces = apart(selectors)
        if pieces is None:
            together = common(selectors) if once else None
            pieces = {s: (s if together is None else together,) for s in selectors}
        for demand, its in asking.items():
            for piece in pieces[demand.namespaces]:
                there = replace(demand, namespaces=piece)
                cut[there] = cut.get(there, frozenset()) | its
    return cut


def _calls(demands: _Demands, *, once: bool) -> tuple[Call, ...]:
    """Return the calls, one or more for each failurePolicy and namespace selector."""
    groups: dict[tuple[FailurePolicy, Requirements], dict[_Demand, frozenset[Cell]]] = {}
    for failure_policy in ("Fail", "Ignore"):
        alike = {d: cells for d, cells in demands.items() if d.failure_policy == failure_policy}
        cut = _apart(alike, once=once)
        for demand in sorted(cut, key=lambda d: d.rank):
            groups.setdefault((failure_policy, demand.namespaces), {})[demand] = cut[demand]
    return tuple(call for group in groups.values() for call in _group_calls(group))


def _group_calls(demands: _Demands) -> Iterable[Call]:
    """Split what is sent of the same namespaces by what is asked of it; nothing is sent twice."""
    split: dict[tuple[_Demand, ...], frozenset[Cell]] = {}
    for cells in connected(frozenset().union(*demands.values())):
        asking = tuple(demand for demand, its in demands.items() if its & cells)
        split[asking] = split.get(asking, frozenset()) | cells
    joined: dict[tuple[Requirements, str], frozenset[Cell]] = {}
    for asking, cells in split.items():
        narrowed = _narrowed(asking)
        joined[narrowed] = joined.get(narrowed, frozenset()) | cells
    first = next(iter(demands))
    for objects, condition in sorted(joined, key=lambda key: (key[1], text_of(key[0]))):
        yield Call(
            failure_policy=first.failure_policy,
            rules=rules_of(joined[objects, condition]),
            namespaces=first.namespaces,
            objects=objects,
            condition=condition,
        )


def _narrowed(asking: tuple[_Demand, ...]) -> tuple[Requirements, str]:
    """Return the object selector and the condition under which one of the demands is met."""
    objects = frozenset.intersection(*(demand.objects for demand in asking))
    alternatives = [_alternative(demand, besides=objects) for demand in asking]
    if not all(alternatives) or len(alternatives) > MOST_ALTERNATIVES:
        return objects, ""
    condition = alternatives[0] if len(alternatives) == 1 else any_of(alternatives)
    return objects, condition if len(condition) <= LONGEST_CONDITION else ""


def _alternative(demand: _Demand, *, besides: Requirements) -> str:
    """Write a demand as CEL, without what the object selector sees to."""
    parts = sorted(demand.conditions)
    if demand.objects != besides:
        parts = [label_condition(in_order(demand.objects)), *parts]
    return all_of(parts)

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

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from policyd.api.admission import FailurePolicy, Rule
from policyd.engine.compiled import CompiledPolicy
from policyd.jobs.integrations import Integrations
from webhooks.cells import Cell, connected, rules_of, uncovered
from webhooks.conditions import all_of, any_of, label_condition
from webhooks.demands import Demand, Demands, Given, checks_of, demands_of, queue_demands
from webhooks.requirements import Requirements, apart, common, in_order, text_of

MOST_WEBHOOKS: Final = 16
"""Webhooks in one configuration. The API server looks at the selectors of all for each request, so
that beyond this many, calls for nothing are the cheaper evil: first everything is sent that the
selected namespaces have of the kinds, then whatever has a label in common with these namespaces."""

MOST_ALTERNATIVES: Final = 16
"""Policies whose conditions are joined into one."""

LONGEST_CONDITION: Final = 8192
"""Characters of such a condition, so that a configuration stays one that people can read."""

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
    left_out: tuple[str, ...] = ()
    """Names of what is covered by a wildcard, and not sent all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorRules:
    """Which requests are sent to the door."""

    mutate: tuple[Call, ...] = ()
    validate: tuple[Call, ...] = ()


def door_rules(
    policies: Iterable[CompiledPolicy],
    *,
    queue: Integrations | None,
    defaulted: frozenset[str] = frozenset(),
) -> DoorRules:
    """Derive what is sent from the policies: what can matter to one of them, and little else.

    Nothing is sent for mutation that must not pass if nobody answers: what slipped past unchanged
    is refused by validation, or found by the controller. Validation follows the policies that
    refuse; those that only warn or note stop nothing. Exclude rules are left to the engine.

    Args:
        policies: Those in force.
        queue: Which jobs are held for their queue, while Kueue's objects are checked; None if
            nothing is done for the queue.
        defaulted: Namespaces with a queue for jobs that name none.
    """
    mutate: list[Given] = []
    validate: list[Given] = []
    applied = [(policy, binding) for policy in policies for binding in policy.bindings]
    for policy, binding in applied:
        if policy.steps or policy.mutations:
            mutate += demands_of(policy, binding, "Ignore")
        if policy.validations or policy.annotations:
            validate += checks_of(policy, binding)
    if queue is not None:
        held, checked = queue_demands(queue, defaulted=defaulted)
        mutate += held
        validate += checked
    changeable = [
        (demand, [cell for cell in cells if cell.operation in MUTATING_OPERATIONS])
        for demand, cells in mutate
    ]
    return DoorRules(mutate=_bounded(changeable, once=True), validate=_bounded(validate))


def _bounded(given: Iterable[Given], *, once: bool = False) -> tuple[Call, ...]:
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


def _as_they_are(demands: list[Demand]) -> list[Demand]:
    return demands


def _all_objects(demands: list[Demand]) -> list[Demand]:
    return [replace(d, objects=frozenset(), conditions=frozenset()) for d in demands]


def _all_namespaces(demands: list[Demand]) -> list[Demand]:
    selected: dict[FailurePolicy, list[Requirements]] = {}
    for demand in demands:
        selected.setdefault(demand.failure_policy, []).append(demand.namespaces)
    unions = {failure_policy: common(selectors) for failure_policy, selectors in selected.items()}
    return [replace(demand, namespaces=unions[demand.failure_policy]) for demand in demands]


def _needed(given: Iterable[tuple[Demand, frozenset[Cell]]]) -> Demands:
    """Leave out what another demand has sent anyway; the widest come first."""
    together: dict[Demand, frozenset[Cell]] = {}
    for demand, cells in given:
        together[demand] = together.get(demand, frozenset()) | cells
    needed: dict[Demand, frozenset[Cell]] = {}
    for demand in sorted(together, key=lambda d: d.rank):
        sent = [cell for other in needed if other.includes(demand) for cell in needed[other]]
        needed[demand] = frozenset(uncovered(together[demand], sent))
    return needed


def _apart(demands: Demands, *, once: bool) -> Demands:
    """Cut namespaces into pieces that have nothing in common, wherever the same may be sent.

    Args:
        demands: What is asked for, with one failurePolicy.
        once: What to do if there are too many pieces: send more, but once, or else some things
            twice, but no more.
    """
    cut: dict[Demand, frozenset[Cell]] = {}
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


def _calls(demands: Demands, *, once: bool) -> tuple[Call, ...]:
    """Return the calls, one or more for each failurePolicy and namespace selector."""
    groups: dict[tuple[FailurePolicy, Requirements], dict[Demand, frozenset[Cell]]] = {}
    for failure_policy in ("Fail", "Ignore"):
        alike = {d: cells for d, cells in demands.items() if d.failure_policy == failure_policy}
        cut = _apart(alike, once=once)
        for demand in sorted(cut, key=lambda d: d.rank):
            groups.setdefault((failure_policy, demand.namespaces), {})[demand] = cut[demand]
    return tuple(call for group in groups.values() for call in _group_calls(group))


def _group_calls(demands: Demands) -> Iterable[Call]:
    """Split what is sent of the same namespaces by what is asked of it; nothing is sent twice."""
    split: dict[tuple[Demand, ...], frozenset[Cell]] = {}
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


def _narrowed(asking: tuple[Demand, ...]) -> tuple[Requirements, str]:
    """Return the object selector and the condition under which one of the demands is met."""
    objects = frozenset.intersection(*(demand.objects for demand in asking))
    alternatives = [_alternative(demand, besides=objects) for demand in asking]
    if not all(alternatives) or len(alternatives) > MOST_ALTERNATIVES:
        return objects, ""
    condition = alternatives[0] if len(alternatives) == 1 else any_of(alternatives)
    return objects, condition if len(condition) <= LONGEST_CONDITION else ""


def _alternative(demand: Demand, *, besides: Requirements) -> str:
    """Write a demand as CEL, without what the object selector sees to."""
    parts = sorted(demand.conditions)
    if demand.objects != besides:
        parts = [label_condition(in_order(demand.objects)), *parts]
    return all_of(parts)

"""What policies mean: formulas about an unknown request.

A policy that is evaluated for pod templates has a formula for each place where an object of the
kind may have one.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from policyd.api.admission import Operation
from policyd.cel.environment import Environment
from policyd.engine.model.bindings import needs_binding
from policyd.engine.model.compiled import CompiledPolicy, environments_of
from policyd.prove import values as v
from policyd.prove.encoder import Encoder
from policyd.prove.outcomes import truth
from policyd.prove.requests import Side, UnknownRequest, facts_of, operations_of, places_of
from policyd.prove.templates import as_pod, pods_at
from policyd.prove.values import (
    FALSE,
    TRUE,
    Alternative,
    Outcome,
    UnencodableError,
    all_of,
    any_of,
    negation,
    sure,
    text_term,
)
from policyd.prove.world import UnknownValue, World

_MOST_ROUNDS: Final = 5


class Meaning(NamedTuple):
    """The formulas of a policy.

    Attributes:
        matches: It matches the request.
        fails: One of its expressions fails.
        reasons: For each reason to deny a request: it denies the request for this reason.
    """

    matches: Any
    fails: Any
    reasons: tuple[Any, ...] = ()

    @property
    def denies(self) -> Any:  # noqa: ANN401 - a term of z3
        """It denies the request, for whichever reason."""
        return any_of(self.reasons)


def together(meanings: Iterable[Meaning]) -> Meaning:
    """Return what policies mean that are in force together."""
    matches, fails, reasons = zip(*meanings, strict=True)
    return Meaning(any_of(matches), any_of(fails), tuple(itertools.chain(*reasons)))


def meanings(world: World, request: UnknownRequest, policies: Side) -> tuple[Meaning, ...]:
    """Return what each policy means, once all fields that they ask for are known.

    Raises:
        UnencodableError: If a part of one has no formula.
    """
    for _ in range(_MOST_ROUNDS):
        world.begin()
        found = tuple(_meaning(world, request, policy) for policy in policies)
        if not world.grown:
            world.facts += facts_of(request)
            return found
    raise UnencodableError("policies that ask for new fields again and again")


def _meaning(world: World, request: UnknownRequest, policy: CompiledPolicy) -> Meaning:
    _refuse_partly_encoded(policy)
    matched = operations_of(policy, request.kind)
    if not matched:
        return Meaning(FALSE, FALSE)
    operation = request.request.field("operation")
    assert operation is not None
    named = operation.of("string")
    matches = any_of(named == text_term(each) for each in matched)
    fails, reasons = [], []
    for there, roots in _views(request, policy, matched):
        failing, denying = _judged(world, policy, roots)
        fails.append(all_of([matches, there, failing]))
        if not policy.ignores_failures:
            denying.append(failing)
        reasons += [all_of([matches, there, each]) for each in denying]
    return Meaning(matches, any_of(fails), tuple(reasons) if _enforced(policy) else ())


def _refuse_partly_encoded(policy: CompiledPolicy) -> None:
    """Refuse a policy whose verdict depends on more than its expressions and match rules."""
    if policy.unusable:
        raise UnencodableError(f"a policy that cannot be used: {policy.unusable}")
    if policy.changes and policy.validations:
        raise UnencodableError("a policy that changes objects before it validates them")
    if policy.exceptions:
        raise UnencodableError("a policy with exceptions")
    if policy.applies is not None:
        raise UnencodableError("a policy that matches by names, users or roles")
    if policy.staged or any(b.constraints or b.actions_for for b in policy.bindings):
        raise UnencodableError("a policy whose binding narrows it, or rolls it out in steps")


def _judged(
    world: World, policy: CompiledPolicy, roots: Mapping[str, Outcome]
) -> tuple[Any, list[Any]]:
    """Return that expressions of a policy fail, and the reasons for which it denies otherwise."""
    environments = environments_of(policy)
    encoder = Encoder(world, roots)
    if environments.open_conditions:
        _define(encoder, policy, environments.expressions)
    truths = [
        _truths(encoder.expression(program.source, environments.conditions))
        for _, program in policy.conditions
    ]
    _define(encoder, policy, environments.expressions)
    skipped = any_of(false for _, false, _ in truths)
    unsure = all_of([negation(skipped), any_of(fails for _, _, fails in truths)])
    applies = all_of(true for true, _, _ in truths)
    checks = [
        _truths(encoder.expression(each.program.source, environments.expressions))
        for each in policy.validations
    ]
    failing = any_of([unsure, all_of([applies, any_of(e for _, _, e in checks)])])
    return failing, [all_of([applies, false]) for _, false, _ in checks]


def _define(encoder: Encoder, policy: CompiledPolicy, environment: Environment) -> None:
    for name, program in policy.variables.items():
        if name not in encoder.variables:
            encoder.variables[name] = encoder.expression(program.source, environment)


def _truths(outcome: Outcome) -> tuple[Any, Any, Any]:
    """Return the conditions that an outcome is true, false, or an error."""
    true, false = truth(outcome)
    return true, false, negation(any_of([true, false]))


def _enforced(policy: CompiledPolicy) -> bool:
    return needs_binding(policy) or any("Deny" in binding.actions for binding in policy.bindings)


def _views(
    request: UnknownRequest, policy: CompiledPolicy, matched: tuple[Operation, ...]
) -> Iterator[tuple[Any, dict[str, Outcome]]]:
    """Yield when a policy is evaluated, and its variables then: once for each pod template."""
    roots: dict[str, Outcome] = {
        "object": sure(request.object),
        "oldObject": sure(request.old_object),
        "request": sure(request.request),
        "params": sure(request.params),
        "namespaceObject": sure(request.namespace),
    }
    if not policy.by_template:
        there = (Alternative(when, subject) for subject, when in _subjects(request, matched))
        yield TRUE, {**roots, "workload": tuple(there)}
    elif request.relaxed:
        whole = () if policy.templates else ("object", "oldObject")
        pod = {} if policy.templates else {"pod": roots["object"]}
        yield TRUE, {**{name: each for name, each in roots.items() if name not in whole}, **pod}
    else:
        for subject, when in _subjects(request, matched):
            yield from _pod_views(request, policy, subject, when, roots)


def _subjects(
    request: UnknownRequest, matched: tuple[Operation, ...]
) -> Iterator[tuple[UnknownValue, Any]]:
    """Yield the object that has the pods: on DELETE, it is the old one."""
    if set(matched) != {"DELETE"}:
        yield request.object, request.object.is_a("map")
    if "DELETE" in matched:
        yield request.old_object, request.object.is_a("null")


def _pod_views(
    request: UnknownRequest,
    policy: CompiledPolicy,
    subject: UnknownValue,
    when: Any,  # noqa: ANN401 - a term of z3
    roots: Mapping[str, Outcome],
) -> Iterator[tuple[Any, dict[str, Outcome]]]:
    kind, none = request.kind, when
    roots = {**roots, "workload": sure(subject)}
    if kind is None:
        raise UnencodableError("a policy for the pod templates of any kind")
    for path in places_of(kind):
        for there, pod in pods_at(subject, path):
            none = all_of([none, negation(there)])
            if policy.templates:
                pods = {name: as_pod(roots[name], path) for name in ("object", "oldObject")}
            else:
                pods = {"pod": sure(pod)}
            yield all_of([when, there]), {**roots, **pods}
    # Without a template, the policy is evaluated all the same.
    nothing = {} if policy.templates else {"pod": sure(v.Mapping(()))}
    yield none, {**roots, **nothing}

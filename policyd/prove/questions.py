"""Questions about policies, answered with a proof or with an object.

A policy denies a request if its conditions match and a validation is false, or fails where its
failurePolicy is Fail. The solver looks for objects, with at most so many elements in each list and
map, that answer the question otherwise; the engine then has to confirm what it found.
"""

import ctypes
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec
import z3

from policyd.api.admission import Rule
from policyd.api.kinds import BuiltinResource
from policyd.api.policy import MatchConstraints
from policyd.cel.errors import CelCompileError
from policyd.engine.model.compiled import CompiledBinding, CompiledPolicy
from policyd.errors import PolicydError
from policyd.prove.examples import Answer, Verdict, completed, decider, example_of, verdict_on
from policyd.prove.meanings import (
    Meaning,
    Side,
    kinds_of,
    kinds_of_all,
    meanings,
    operations_in,
    operations_of,
    pods,
    together,
    unknown_request,
)
from policyd.prove.values import UnencodableError
from policyd.prove.world import World

__all__ = ["Answer", "Side", "UnencodableError", "Verdict", "decider", "kinds_of", "verdict_on"]

Question = Literal["equal", "implies", "disjoint", "never-denies", "always-denies", "never-errors"]
OF_TWO: Final = frozenset({"equal", "implies", "disjoint"})
DEFAULT_BOUND: Final = 4
"""Elements of a list or map, at most."""
DEFAULT_SECONDS: Final = 5.0
"""For the solver, for each kind of object."""
_MOST_MEMORY: Final = 2_048
"""For the solver, in MB."""
_DISAGREES: Final = "the solver found an object on which the engine decides otherwise"
_WHOLE: Final = frozenset({"object", "oldObject", "workload"})
"""Variables that are more than the pod template of an object."""
Patience = float | Callable[[], float]
"""Seconds for the solver, for each kind of object, or what returns them each time."""


def answer(
    question: Question,
    sides: tuple[Side, ...],
    *,
    bound: int = DEFAULT_BOUND,
    seconds: Patience = DEFAULT_SECONDS,
) -> Answer:
    """Answer a question about one or two sets of policies.

    Args:
        question: `equal`, `implies` (the first denies all that the second denies) and `disjoint`
            (they deny nothing both) are about two sets, the others about one.
        sides: The sets, each of at least one policy.
        bound: Elements of a list or map, at most.
        seconds: For the solver, for each kind of object; asked each time if it is a function.
    """
    policies = tuple(itertools.chain(*sides))
    why = _not_to_be_compared(policies)
    if why:
        return Answer(verdict="unknown", bound=bound, why=why)
    if question != "disjoint" and _of_templates_alone(policies):
        # What holds for a pod with no more than a template has holds for templates.
        found = _answer_for(question, sides, (pods(),), bound, seconds, relaxed=True)
        if found.why != _DISAGREES:
            return found
    try:
        kinds = tuple(kinds_of_all(policies))
    except UnencodableError as error:
        return Answer(verdict="unknown", bound=bound, why=f"policyd prove does not know {error}")
    return _answer_for(question, sides, kinds, bound, seconds)


def _not_to_be_compared(policies: Side) -> str:
    """Return why a question about policies has no formula; empty if it may have one."""
    first, *others = policies
    if any(policy.changes for policy in policies) and any(p.validations for p in policies):
        return "a policy that changes objects before they are validated: leave it out by --policy"
    if len({policy.policy.spec.param_kind for policy in policies} - {None}) > 1:
        return "the policies have params of different kinds"
    if any(not _may_be_joined(policy, first) for policy in others):
        return (
            "the policies do not match the same requests: they may differ in kinds and operations,"
            " and in nothing else of `matchConstraints`"
        )
    return ""


def _of_templates_alone(policies: Side) -> bool:
    """Tell whether policies look at nothing but the pod templates of the same objects."""
    rules = policies[0].constraints.resource_rules
    if all((rule.api_groups, rule.resources) == (("",), ("pods",)) for rule in rules):
        return False  # they are looked at as what they are
    return all(
        policy.by_template
        and policy.constraints.resource_rules == rules
        and (policy.templates or _WHOLE.isdisjoint(policy.uses))
        for policy in policies
    )


def as_enforced(policies: Side) -> Side:
    """Return policies as if each did nothing but deny what its validations do not allow."""
    return tuple(
        replace(
            policy,
            steps=(),
            mutations=(),
            bindings=tuple(
                CompiledBinding(policy=policy.name, policy_kind=policy.kind, param_ref=b.param_ref)
                for b in policy.bindings[:1]
            ),
        )
        for policy in policies
    )


def above_standard(policies: Side, standard: Side) -> tuple[Side, Side]:
    """Return policies, and those of a standard, for pods alone: the first may imply the second.

    Args:
        policies: The policies to judge, with the same selectors each.
        standard: Policies for the namespaces to which the standard applies; here it applies where
            the others do.
    """
    everywhere = msgspec.structs.replace(policies[0].constraints, resource_rules=())
    asked = tuple(_for_pods(policy, policy.constraints) for policy in policies)
    wanted = (_for_pods(policy, everywhere, policy.constraints) for policy in standard)
    return asked, tuple(wanted)


def _for_pods(
    policy: CompiledPolicy, constraints: MatchConstraints, rules_of: MatchConstraints | None = None
) -> CompiledPolicy:
    rules = (rules_of or constraints).resource_rules
    named = operations_in(rule for rule in rules if _concerns_pods(rule))
    rule = Rule(operations=named, api_groups=("",), api_versions=("v1",), resources=("pods",))
    of_pods = msgspec.structs.replace(constraints, resource_rules=(rule,) if named else ())
    return replace(policy, constraints=of_pods)


def _concerns_pods(rule: Rule) -> bool:
    named = {path.partition("/")[0] for path in rule.resources}
    return not {"*", ""}.isdisjoint(rule.api_groups) and not {"*", "pods"}.isdisjoint(named)


def _may_be_joined(policy: CompiledPolicy, other: CompiledPolicy) -> bool:
    """Tell whether the match rules of two policies differ only in kinds and operations."""
    one, two = policy.constraints, other.constraints
    if one == two:
        return True
    rules = *one.resource_rules, *two.resource_rules
    plain = not any(rule.resource_names or rule.scope != "*" for rule in rules)
    return plain and msgspec.structs.replace(one, resource_rules=two.resource_rules) == two


def _answer_for(  # noqa: PLR0913 - each says something of one question
    question: Question,
    sides: tuple[Side, ...],
    kinds: tuple[BuiltinResource | None, ...],
    bound: int,
    seconds: Patience,
    *,
    relaxed: bool = False,
) -> Answer:
    found = Answer(verdict="proved", bound=bound)
    asked = sides
    if relaxed:
        asked = tuple(tuple(_for_any_template(policy) for policy in side) for side in sides)
    # An example with single elements is the easiest to find, and to read.
    for elements, kind in itertools.product(dict.fromkeys((1, bound)), kinds):
        of_kind = _answer_of_kind(question, asked, kind, elements, seconds, relaxed=relaxed)
        if of_kind.verdict == "refuted":
            of_kind = _confirmed(question, sides, of_kind, kind)
            if of_kind.verdict == "refuted":
                return of_kind
            if relaxed:
                return of_kind  # to be asked of each kind
        if of_kind.verdict == "unknown" and elements == bound:
            found = of_kind
    return found


def _for_any_template(policy: CompiledPolicy) -> CompiledPolicy:
    """Return a policy for pods that stand for the pod templates that it matches."""
    rule = Rule(
        operations=operations_in(policy.constraints.resource_rules),
        api_groups=("",),
        api_versions=("v1",),
        resources=("pods",),
    )
    constraints = msgspec.structs.replace(policy.constraints, resource_rules=(rule,))
    return replace(policy, constraints=constraints)


def _answer_of_kind(  # noqa: PLR0913 - each says something of one question
    question: Question,
    sides: tuple[Side, ...],
    kind: BuiltinResource | None,
    bound: int,
    seconds: Patience,
    *,
    relaxed: bool,
) -> Answer:
    """Return what the solver says, with its example as it found it."""
    policies = tuple(itertools.chain(*sides))
    world = World(bound=bound, typed=not all(policy.own for policy in policies))
    world.seconds = seconds if callable(seconds) else None
    try:
        if not any(operations_of(policy, kind) for policy in policies):
            return Answer(verdict="proved", bound=bound)
        request = unknown_request(world, policies, kind, relaxed=relaxed)
        each = iter(meanings(world, request, policies))
        found = tuple(together(itertools.islice(each, len(side))) for side in sides)
    except UnencodableError as error:
        return Answer(verdict="unknown", bound=bound, why=f"policyd prove does not know {error}")
    except (CelCompileError, RecursionError, ctypes.ArgumentError) as error:
        why = str(error) if isinstance(error, CelCompileError) else "the formulas are too deep"
        return Answer(verdict="unknown", bound=bound, why=why)
    answered = Answer(verdict="proved", bound=bound)
    for against in _against(question, found):
        limit = seconds() if callable(seconds) else seconds
        solver, why = _solver(limit), ""
        try:
            solver.add(*world.axioms(), against)
            result = solver.check() if limit > 0 else z3.unknown
        except z3.Z3Exception as error:
            result, why = z3.unknown, f"the solver gave up: {error}"
        if result == z3.sat:
            return example_of(world, request, solver.model(), bound)
        if result == z3.unknown:
            why = why or f"the solver found no answer within {max(limit, 0):g} s"
            answered = Answer(verdict="unknown", bound=bound, why=why)
    return answered


def _solver(seconds: float) -> z3.Solver:
    """Return a solver for one check: the incremental one decides fewer strings."""
    solver = z3.Tactic("smt").solver()
    solver.set("timeout", max(1, int(seconds * 1000)))
    solver.set("max_memory", _MOST_MEMORY)
    return solver


def _against(question: Question, meanings: tuple[Meaning, ...]) -> Iterator[Any]:
    """Yield formulas of which none holds for a request if the answer is yes."""
    one, other = meanings[0], meanings[-1]
    match question:
        case "equal":
            yield one.denies != other.denies
        case "implies":  # a smaller question for each reason of the other
            yield from (z3.And(reason, z3.Not(one.denies)) for reason in other.reasons)
        case "disjoint":
            yield z3.And(one.denies, other.denies)
        case "never-denies":
            yield one.denies
        case "always-denies":
            yield z3.And(one.matches, z3.Not(one.denies))
        case "never-errors":
            yield one.fails


def _confirmed(
    question: Question,
    sides: tuple[Side, ...],
    found: Answer,
    kind: BuiltinResource | None,
) -> Answer:
    """Return an answer if the engine agrees with it, else that it is unknown."""
    example = completed(found, kind, sides[0][0])
    try:
        verdicts = [verdict_on(side, example) for side in sides]
    except (PolicydError, ValueError) as error:
        return replace(found, verdict="unknown", why=f"the example cannot be tried: {error}")
    if _holds_against(question, verdicts):
        return example
    return Answer(verdict="unknown", bound=found.bound, why=_DISAGREES)


def _holds_against(question: Question, verdicts: list[Verdict]) -> bool:
    one, other = verdicts[0], verdicts[-1]
    return {
        "equal": one.denies != other.denies,
        "implies": other.denies and not one.denies,
        "disjoint": one.denies and other.denies,
        "never-denies": one.denies,
        "always-denies": not one.denies,
        "never-errors": one.fails,
    }[question]

"""Questions about policies, answered with a proof or with an object.

A policy denies a request if its conditions match and a validation is false, or fails where its
failurePolicy is Fail. The solver looks for objects, with at most so many elements in each list and
map, that answer the question otherwise; the engine then has to confirm what it found.
"""

import ctypes
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

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
    UnknownRequest,
    kinds_of,
    kinds_of_all,
    meanings,
    operations_in,
    operations_of,
    pods,
    together,
    unknown_request,
)
from policyd.prove.texts import Texts
from policyd.prove.values import UnencodableError
from policyd.prove.world import World

__all__ = ["Answer", "Side", "UnencodableError", "Verdict", "decider", "kinds_of", "verdict_on"]

Question = Literal["equal", "implies", "disjoint", "never-denies", "always-denies", "never-errors"]
OF_TWO: Final = frozenset({"equal", "implies", "disjoint"})
DEFAULT_BOUND: Final = 4
"""Elements of a list or map, at most."""
DEFAULT_SECONDS: Final = 60.0
"""For the solver, for each kind of object: a guard, which an answer is not to depend on."""
DEFAULT_STEPS: Final = 3_000_000
"""Of the solver, for each kind of object; it takes one to three millions a second."""
_FIRST_STEPS: Final = 1_000_000
"""Before the solver looks at a question in another way."""
_MOST_MEMORY: Final = 2_048
"""For the solver, in MB."""
_DISAGREES: Final = "the solver found an object on which the engine decides otherwise"
_WHOLE: Final = frozenset({"object", "oldObject", "workload"})
"""Variables that are more than the pod template of an object."""
Patience = float | Callable[[], float]
"""Seconds for the solver, for each kind of object, or what returns them each time."""


class Limits(NamedTuple):
    """How long the solver looks for an answer about one kind of object.

    Attributes:
        seconds: Returns the seconds that are left.
        steps: Of the solver.
        shared: Whether the seconds are for more than the solver.
    """

    seconds: Callable[[], float]
    steps: int
    shared: bool

    @property
    def quick(self) -> "Limits":
        """Those of a look that is not the last one."""
        return self._replace(steps=min(self.steps, _FIRST_STEPS))


def answer(
    question: Question,
    sides: tuple[Side, ...],
    *,
    bound: int = DEFAULT_BOUND,
    seconds: Patience = DEFAULT_SECONDS,
    steps: int = DEFAULT_STEPS,
) -> Answer:
    """Answer a question about one or two sets of policies.

    Args:
        question: `equal`, `implies` (the first denies all that the second denies) and `disjoint`
            (they deny nothing both) are about two sets, the others about one.
        sides: The sets, each of at least one policy.
        bound: Elements of a list or map, at most.
        seconds: For the solver, for each kind of object; asked each time if it is a function.
        steps: Of the solver, for each kind of object: the same on each machine.
    """
    limits = Limits(seconds if callable(seconds) else lambda: seconds, steps, callable(seconds))
    policies = tuple(itertools.chain(*sides))
    why = _not_to_be_compared(policies)
    if why:
        return Answer(verdict="unknown", bound=bound, why=why)
    if question != "disjoint" and _of_templates_alone(policies):
        # What holds for a pod with no more than a template has holds for templates.
        found = _answer_for(question, sides, (pods(),), bound, limits, relaxed=True)
        if found.why != _DISAGREES:
            return found
    try:
        kinds = tuple(kinds_of_all(policies))
    except UnencodableError as error:
        return Answer(verdict="unknown", bound=bound, why=f"policyd prove does not know {error}")
    return _answer_for(question, sides, kinds, bound, limits)


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
    limits: Limits,
    *,
    relaxed: bool = False,
) -> Answer:
    found = Answer(verdict="proved", bound=bound)
    asked = sides
    if relaxed:
        asked = tuple(tuple(_for_any_template(policy) for policy in side) for side in sides)
    # An example with single elements is the easiest to find, and to read.
    earlier: list[tuple[UnknownRequest, Answer]] = []
    for elements, kind in itertools.product(dict.fromkeys((1, bound)), kinds):
        quick = limits if elements == bound else limits.quick
        of_kind = _answer_of_kind(
            question, asked, kind, elements, quick, relaxed=relaxed, earlier=earlier
        )
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
    limits: Limits,
    *,
    relaxed: bool,
    earlier: list[tuple[UnknownRequest, Answer]],
) -> Answer:
    """Return what the solver says, with its example as it found it.

    What it says without an example is kept with the request: it holds for kinds that are alike.
    """
    policies = tuple(itertools.chain(*sides))
    world = World(bound=bound, typed=not all(policy.own for policy in policies))
    world.seconds = limits.seconds if limits.shared else None
    try:
        if not any(operations_of(policy, kind) for policy in policies):
            return Answer(verdict="proved", bound=bound)
        known = _known(earlier, World(bound=bound, typed=world.typed), policies, kind)
        if known is not None:
            return known
        request = unknown_request(world, policies, kind, relaxed=relaxed)
        each = iter(meanings(world, request, policies))
        found = tuple(together(itertools.islice(each, len(side))) for side in sides)
    except UnencodableError as error:
        return Answer(verdict="unknown", bound=bound, why=f"policyd prove does not know {error}")
    except (CelCompileError, RecursionError, ctypes.ArgumentError) as error:
        why = str(error) if isinstance(error, CelCompileError) else "the formulas are too deep"
        return Answer(verdict="unknown", bound=bound, why=why)
    answered = Answer(verdict="proved", bound=bound)
    axioms = world.axioms()
    for against in _against(question, found):
        model, why = _solved([*axioms, against], limits)
        if model is not None:
            return example_of(world, request, model, bound)
        if why:
            answered = Answer(verdict="unknown", bound=bound, why=why)
    earlier.append((request, answered))
    return answered


def _known(
    earlier: list[tuple[UnknownRequest, Answer]],
    world: World,
    policies: Side,
    kind: BuiltinResource | None,
) -> Answer | None:
    """Return the answer for an earlier kind if it is that for another one, too."""
    comparable = [each for each in earlier if each[1].bound == world.bound]
    if not comparable:
        return None
    other = unknown_request(world, policies, kind)
    alike = (answered for before, answered in comparable if before.alike(other, policies))
    return next(alike, None)


def _solved(formulas: list[Any], limits: Limits) -> tuple[z3.ModelRef | None, str]:
    """Return a model of formulas, or why it is not known; neither if there is none."""
    limit = limits.seconds()
    if limit <= 0:
        return None, "no time is left for the solver"
    try:
        looks = [(limits.quick.steps, _checked), (limits.quick.steps, _checked_without_strings)]
        if limits != limits.quick:
            looks.append((limits.steps, _checked))
        for steps, look in looks:
            result, model = look(formulas, steps, limit)
            if result != z3.unknown:
                return model, ""
    except z3.Z3Exception as error:
        return None, f"the solver gave up: {error}"
    return None, f"the solver found no answer in {limits.steps:,} steps and {limit:g} s"


def _checked(
    formulas: list[Any], steps: int, seconds: float
) -> tuple[z3.CheckSatResult, z3.ModelRef | None]:
    """Return what the solver finds in so many steps: the incremental one decides fewer strings."""
    solver = z3.Tactic("smt").solver()
    solver.set("rlimit", steps)
    solver.set("timeout", max(1, int(seconds * 1000)))
    solver.set("max_memory", _MOST_MEMORY)
    solver.add(*formulas)
    result = solver.check()
    return result, solver.model() if result == z3.sat else None


def _checked_without_strings(
    formulas: list[Any], steps: int, seconds: float
) -> tuple[z3.CheckSatResult, z3.ModelRef | None]:
    """Return what the solver finds if strings are opaque, or a few that are likely."""
    texts = Texts.of(formulas)
    if not texts.strings:
        return z3.unknown, None
    result, _ = _checked([*texts.formulas, *texts.facts()], steps, seconds)
    if result != z3.sat:
        return result, None
    few = texts.among_few()
    _, model = _checked([*texts.formulas, *texts.facts(), *few], steps, seconds)
    if model is None:
        return z3.unknown, None
    result, model = _checked([*formulas, texts.found(model)], steps, seconds)
    return (result, model) if result == z3.sat else (z3.unknown, None)


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

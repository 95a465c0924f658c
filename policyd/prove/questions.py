"""Questions about policies, answered with a proof or with an object.

A policy denies a request if its conditions match and a validation is false, or fails where its
failurePolicy is Fail. The solver looks for objects, with at most so many elements in each list and
map, that answer the question otherwise; the engine then has to confirm what it found.
"""

import ctypes
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec
import z3

from policyd.api.admission import Rule
from policyd.api.kinds import BuiltinResource
from policyd.api.policy import MatchConstraints
from policyd.api.selectors import LabelSelector, Requirement
from policyd.cel.errors import CelCompileError
from policyd.engine.model.compiled import CompiledBinding, CompiledPolicy
from policyd.errors import PolicydError
from policyd.prove.examples import (
    Answer,
    Verdict,
    completed,
    decider,
    example_of,
    selected_labels,
    verdict_on,
)
from policyd.prove.meanings import Meaning, meanings, together
from policyd.prove.requests import (
    Side,
    UnknownRequest,
    kinds_of,
    kinds_of_all,
    may_be_joined,
    operations_in,
    operations_of,
    pods,
    unknown_request,
)
from policyd.prove.solver import SolverLimits, solved
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
_DISAGREES: Final = "the solver found an object on which the engine decides otherwise"
_WHOLE: Final = frozenset({"object", "oldObject", "workload"})
"""Variables that are more than the pod template of an object."""


def answer(
    question: Question,
    sides: tuple[Side, ...],
    *,
    bound: int = DEFAULT_BOUND,
    seconds: float = DEFAULT_SECONDS,
    steps: int = DEFAULT_STEPS,
) -> Answer:
    """Answer a question about one or two sets of policies.

    Args:
        question: `equal`, `implies` (the first denies all that the second denies) and `disjoint`
            (they deny nothing both) are about two sets, the others about one.
        sides: The sets, each of at least one policy.
        bound: Elements of a list or map, at most.
        seconds: For the solver, for each kind of object: a guard beside the steps.
        steps: Of the solver, for each kind of object: the same on each machine.
    """
    limits = SolverLimits(seconds, steps)
    policies = tuple(itertools.chain(*sides))
    why = _not_to_be_compared(policies)
    if why:
        return Answer(verdict="unknown", bound=bound, why=why)
    if question != "disjoint" and _of_templates_alone(policies):
        # What holds for a pod with no more than a template has holds for templates.
        (found,) = _answers_for(question, sides, (pods(),), bound, limits, relaxed=True)
        if found.why != _DISAGREES:
            return found
    try:
        kinds = tuple(kinds_of_all(policies))
    except UnencodableError as error:
        return Answer(verdict="unknown", bound=bound, why=f"policyd prove does not know {error}")
    return _answers_for(question, sides, kinds, bound, limits)[0]


def answers_by_control(
    policies: Side,
    standard: Side,
    *,
    bound: int = DEFAULT_BOUND,
    seconds: float = DEFAULT_SECONDS,
    steps: int = DEFAULT_STEPS,
) -> dict[str, Answer]:
    """Answer for each control of a standard whether policies deny what it forbids of pods.

    Args:
        policies: The policies to judge. It is asked about the namespaces and objects that all of
            them select.
        standard: Policies whose validations are the controls. Where they apply is left out.
        bound: Elements of a list or map, at most.
        seconds: For the solver, as `answer` takes them.
        steps: Of the solver, for each control.

    Raises:
        UnencodableError: If the policies select nothing in common.
    """
    asked, whole = above_standard(policies, standard)
    controls = {
        check.place: (replace(policy, validations=(check,)),)
        for policy in whole
        for check in policy.validations
    }
    why = _not_to_be_compared((*asked, *whole))
    if why:
        return dict.fromkeys(controls, Answer(verdict="unknown", bound=bound, why=why))
    sides, limits = (asked, *controls.values()), SolverLimits(seconds, steps)
    found = _answers_for("implies", sides, (pods(),), bound, limits)
    return dict(zip(controls, found, strict=True))


def _not_to_be_compared(policies: Side) -> str:
    """Return why a question about policies has no formula; empty if it may have one."""
    first, *others = policies
    if any(policy.changes for policy in policies) and any(p.validations for p in policies):
        return "a policy that changes objects before they are validated: leave it out by --policy"
    if len({policy.policy.spec.param_kind for policy in policies} - {None}) > 1:
        return "the policies have params of different kinds"
    if any(not may_be_joined(policy, first) for policy in others):
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
        policies: The policies to judge; they are looked at where all of them apply.
        standard: Policies for the namespaces to which the standard applies; here it applies where
            the others do.

    Raises:
        UnencodableError: If the policies select nothing in common.
    """
    chosen = {
        name: _in_common([getattr(policy.constraints, name) for policy in policies])
        for name in ("namespace_selector", "object_selector")
    }
    first = msgspec.structs.replace(policies[0].constraints, **chosen)
    everywhere = msgspec.structs.replace(first, resource_rules=())
    asked = (
        _for_pods(policy, msgspec.structs.replace(policy.constraints, **chosen))
        for policy in policies
    )
    wanted = (_for_pods(policy, everywhere, first) for policy in standard)
    return tuple(asked), tuple(wanted)


def _in_common(selectors: list[LabelSelector]) -> LabelSelector:
    """Return the selector of what all selectors select."""
    labels: dict[str, str] = {}
    expressions: dict[Requirement, None] = {}
    for selector in selectors:
        labels |= selector.match_labels
        expressions |= dict.fromkeys(selector.match_expressions)
    made = LabelSelector(match_labels=labels, match_expressions=tuple(expressions))
    some = selected_labels(made, {})
    if not all(selector.matches(some) for selector in selectors):
        why = "the policies select no namespace or object in common: choose one by --policy"
        raise UnencodableError(why)
    return made


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


def _answers_for(  # noqa: PLR0913 - each says something of one question
    question: Question,
    sides: tuple[Side, ...],
    kinds: tuple[BuiltinResource | None, ...],
    bound: int,
    limits: SolverLimits,
    *,
    relaxed: bool = False,
) -> list[Answer]:
    """Return an answer about the first set and each other one; about the only one if it is."""
    found = [Answer(verdict="proved", bound=bound)] * max(1, len(sides) - 1)
    asked = sides
    if relaxed:
        asked = tuple(tuple(_for_any_template(policy) for policy in side) for side in sides)
    # An example with single elements is the easiest to find, and to read.
    earlier: list[tuple[UnknownRequest, list[Answer]]] = []
    for elements, kind in itertools.product(dict.fromkeys((1, bound)), kinds):
        quick = limits if elements == bound else limits.quick
        looked_for = [index for index, each in enumerate(found) if each.verdict != "refuted"]
        if not looked_for:
            break
        of_kind = _answers_of_kind(
            question, asked, kind, elements, quick, relaxed=relaxed, earlier=earlier
        )
        for index in looked_for:
            each = of_kind[index]
            if each.verdict == "refuted":
                each = _confirmed(question, (sides[0], sides[index - len(found)]), each, kind)
                if relaxed and each.verdict != "refuted":
                    return [each]  # to be asked of each kind
            if each.verdict == "refuted" or (each.verdict == "unknown" and elements == bound):
                found[index] = each
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


def _answers_of_kind(  # noqa: PLR0913 - each says something of one question
    question: Question,
    sides: tuple[Side, ...],
    kind: BuiltinResource | None,
    bound: int,
    limits: SolverLimits,
    *,
    relaxed: bool,
    earlier: list[tuple[UnknownRequest, list[Answer]]],
) -> list[Answer]:
    """Return what the solver says, with its examples as it found them.

    What it says without an example is kept with the request: it holds for kinds that are alike.
    """
    policies = tuple(itertools.chain(*sides))
    world = World(bound=bound, typed=not all(policy.own for policy in policies))
    plain, count = Answer(verdict="proved", bound=bound), max(1, len(sides) - 1)
    try:
        if not any(operations_of(policy, kind) for policy in policies):
            return [plain] * count
        known = _known(earlier, World(bound=bound, typed=world.typed), policies, kind)
        if known is not None:
            return known
        request = unknown_request(world, policies, kind, relaxed=relaxed)
        each = iter(meanings(world, request, policies))
        first, *others = (together(itertools.islice(each, len(side))) for side in sides)
    except UnencodableError as error:
        why = f"policyd prove does not know {error}"
        return [replace(plain, verdict="unknown", why=why)] * count
    except (CelCompileError, RecursionError, ctypes.ArgumentError) as error:
        why = str(error) if isinstance(error, CelCompileError) else "the formulas are too deep"
        return [replace(plain, verdict="unknown", why=why)] * count
    answers = [
        _asked(_against(question, first, other), world, request, limits)
        for other in others or [first]
    ]
    if all(answered.verdict != "refuted" for answered in answers):
        earlier.append((request, answers))
    return answers


def _asked(
    against: Iterator[Any], world: World, request: UnknownRequest, limits: SolverLimits
) -> Answer:
    """Return whether one of some formulas holds for a request, as an answer."""
    answered, axioms = Answer(verdict="proved", bound=world.bound), world.axioms()
    for formula in against:
        model, why = solved([*axioms, formula], limits)
        if model is not None:
            return example_of(world, request, model, world.bound)
        if why:
            answered = replace(answered, verdict="unknown", why=why)
    return answered


def _known(
    earlier: list[tuple[UnknownRequest, list[Answer]]],
    world: World,
    policies: Side,
    kind: BuiltinResource | None,
) -> list[Answer] | None:
    """Return the answers for an earlier kind if they are those for another one, too."""
    comparable = [each for each in earlier if each[0].object.world.bound == world.bound]
    if not comparable:
        return None
    other = unknown_request(world, policies, kind)
    alike = (answered for before, answered in comparable if before.alike(other, policies))
    return next(alike, None)


def _against(question: Question, one: Meaning, other: Meaning) -> Iterator[Any]:
    """Yield formulas of which none holds for a request if the answer is yes."""
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

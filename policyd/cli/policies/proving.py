"""Prove what commands say of policies: no effect, shadowed by another, the same as a twin."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from policyd.cli.formats.progress import progress
from policyd.cli.planning.extras import extra
from policyd.clock import SystemClock
from policyd.engine.documents.findings import Finding
from policyd.engine.model.bindings import needs_binding
from policyd.engine.model.compiled import CompiledPolicy

if TYPE_CHECKING:
    from policyd.prove.questions import Answer, Side

_LONGEST: Final = 2_000
"""Characters of an object that a message shows."""

DEFAULT_STEPS: Final = 3_000_000
"""Of the solver, for each kind of object; a few seconds."""
GUARD_SECONDS: Final = 3600.0
"""For all questions of a command, which their answers are not to depend on."""


class SolverSteps(click.IntRange):
    """Steps of the solver; so few that seconds may be meant are refused."""

    def __init__(self) -> None:
        """Limit the steps to what is of use."""
        super().__init__(1_000, 10_000_000_000)

    def fail(
        self,
        message: str,
        param: click.Parameter | None = None,
        ctx: click.Context | None = None,
    ) -> NoReturn:
        """Say what is wrong, and that no seconds are meant."""
        needed = f"it takes steps of the solver, such as {DEFAULT_STEPS}, and no seconds"
        super().fail(f"{message.removesuffix('.')}: {needed}", param, ctx)


PROVE_TIMEOUT: Final = click.option(
    "--prove-timeout",
    "seconds",
    type=click.FloatRange(1, 86_400),
    default=GUARD_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Seconds for all proofs: a guard beside their steps.",
)


class Proofs:
    """Answers from the solver, each within so many of its steps.

    Attributes:
        questions: The module of `policyd.prove`.
        bound: Elements of lists and maps, as a proof says it.
        left: How many questions were not asked, as the time was over.
    """

    def __init__(self, steps: int, seconds: float) -> None:
        """Start the time, which is a guard.

        Raises:
            PolicydError: If the solver is not installed.
        """
        self.questions: Any = extra("policyd.prove.questions", "prove", "proofs")
        self.bound = f"for lists and maps of up to {self.questions.DEFAULT_BOUND} elements"
        self.left = 0
        self._steps, self._seconds, self._clock = steps, seconds, SystemClock()
        self._ends = self._clock.monotonic() + seconds

    def ask(self, question: str, *sides: "Side") -> "Answer":
        """Answer a question about sets of policies; unknown if no time is left."""
        remaining = self._ends - self._clock.monotonic()
        if remaining <= 0:
            self.left += 1
            why = f"the {self._seconds:g} seconds of --prove-timeout are over"
            unknown: Answer = self.questions.Answer(verdict="unknown", bound=0, why=why)
            return unknown
        seconds = min(remaining, self.questions.DEFAULT_SECONDS)
        found: Answer = self.questions.answer(question, sides, steps=self._steps, seconds=seconds)
        return found

    def proved(self, question: str, *policies: CompiledPolicy) -> bool:
        """Tell whether the answer about policies is a proof."""
        return self.ask(question, *((each,) for each in policies)).verdict == "proved"

    def end(self) -> None:
        """Say on standard error how many questions were not asked."""
        if self.left:
            left = f"{self.left} questions are not asked"
            click.echo(f"{self._seconds:g} seconds are over: {left}", err=True)


def differences(
    proofs: Proofs, one: "Side", other: "Side", *, names: tuple[str, str], place: Finding
) -> Iterator[Finding]:
    """Yield how the validations of two sets of policies differ, or why that is not known.

    Enforcement and bindings are left out.

    Args:
        proofs: The solver, and its time.
        one: The first set.
        other: The second set.
        names: What the sets are, for the message.
        place: A finding without a message, where the policies are.
    """
    sides = [proofs.questions.as_enforced(_judging(side)) for side in (one, other)]
    if not all(sides):
        if any(sides):
            there, missing = names if sides[0] else names[::-1]
            yield _finding(place, f"{there} denies requests, and {missing} denies none", "error")
        return
    found = proofs.ask("equal", *sides)
    if found.verdict == "unknown":
        message = f"it is not proved that {names[0]} denies what {names[1]} denies: {found.why}"
        yield _finding(place, message, "warning")
    elif found.verdict == "refuted":
        denies = proofs.questions.verdict_on(sides[0], found).denies
        who = names[0] if denies else names[1]
        shown = found.old_object if found.operation == "DELETE" else found.object
        text = json.dumps(shown, ensure_ascii=False)
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        yield _finding(place, f"only {who} denies this {found.operation}: {text}", "error")


def _judging(policies: "Side") -> "Side":
    return tuple(each for each in policies if each.validations and not each.shadow_of)


def _finding(place: Finding, message: str, severity: Any) -> Finding:  # noqa: ANN401 - a literal
    return replace(place, message=message, severity=severity, rule="proof")


def proved_warnings(proofs: Proofs, policies: Sequence[CompiledPolicy]) -> Iterator[Finding]:
    """Yield the policies of a set that proofs find without effect.

    Those that deny no request, each that they match, or nothing that another does not deny.
    """
    denying = [policy for policy in policies if _may_deny(policy)]
    useful: list[CompiledPolicy] = []
    for policy in progress(denying, "proving", len(denying)):
        if proofs.proved("never-denies", policy):
            what = "denies no request"
            yield _warning(proofs, policy, what, "look at what it matches, and its conditions")
            continue
        useful.append(policy)
        if not _is_false(policy) and proofs.proved("always-denies", policy):
            what = "denies each request that it matches"
            yield _warning(proofs, policy, what, "write `false` if it is to")
    for policy, other in _shadowed(proofs, useful):
        what = f"denies nothing that `{other.id}` in {other.place} does not deny"
        yield _warning(proofs, policy, what, "remove it, or keep it for its message")


def _may_deny(policy: CompiledPolicy) -> bool:
    enforced = needs_binding(policy) or any("Deny" in each.actions for each in policy.bindings)
    return bool(policy.validations) and enforced and not (policy.unusable or policy.shadow_of)


def _is_false(policy: CompiledPolicy) -> bool:
    """Tell whether a policy is written to deny everything."""
    return any(each.expression.strip() == "false" for each in policy.policy.spec.validations)


def _shadowed(
    proofs: Proofs, policies: Sequence[CompiledPolicy]
) -> Iterator[tuple[CompiledPolicy, CompiledPolicy]]:
    """Yield each policy that denies nothing that another one does not, and that other one."""
    kinds = {policy.id: _kinds(proofs, policy) for policy in policies}
    pairs = [
        (one, other)
        for one, other in permutations(policies, 2)
        if kinds[other.id] and kinds[other.id] <= kinds[one.id]
    ]
    found: set[tuple[str, str]] = set()
    for one, other in progress(pairs, "comparing", len(pairs)):
        if (other.id, one.id) in found or not proofs.proved("implies", one, other):
            continue
        found.add((one.id, other.id))
        yield other, one


def _kinds(proofs: Proofs, policy: CompiledPolicy) -> frozenset[str]:
    """Return the resources that a policy matches; none if they cannot be compared."""
    try:
        kinds = [*proofs.questions.kinds_of(policy)]
    except proofs.questions.UnencodableError:
        return frozenset()
    if None in kinds:
        return frozenset()
    return frozenset(f"{each.group}/{each.plural}" for each in kinds)


def _warning(proofs: Proofs, policy: CompiledPolicy, what: str, hint: str) -> Finding:
    message = f"`{policy.name}` {what}: proved {proofs.bound}"
    return Finding(
        source=policy.place, message=message, hint=hint, severity="warning", rule="proof"
    )

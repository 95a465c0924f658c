"""Warn of policies that never or always deny, or deny nothing that another does not: by proof."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import permutations
from typing import Any, Final

import click

from policyd.cli.formats.progress import progress
from policyd.cli.planning.extras import extra
from policyd.clock import SystemClock
from policyd.engine.documents.findings import Finding
from policyd.engine.model.bindings import needs_binding
from policyd.engine.model.compiled import CompiledPolicy

_EACH: Final = 2.0
"""Seconds for one question and kind of object, at most."""

Ask = Callable[..., bool]
"""Asks whether something about policies is proved; false if it is not, or there is no time left."""


def proved_warnings(policies: Sequence[CompiledPolicy], seconds: float) -> Iterator[Finding]:
    """Yield what proofs find in a set of policies.

    Args:
        policies: The policies.
        seconds: For all proofs together; what is not looked at by then is counted on standard
            error.

    Raises:
        PolicydError: If the solver is not installed.
    """
    questions: Any = extra("policyd.prove.questions", "prove", "proofs")
    warning = partial(_warning, bound=questions.DEFAULT_BOUND)
    clock = SystemClock()
    ends, left = clock.monotonic() + seconds, 0

    def proved(question: str, *sides: CompiledPolicy) -> bool:
        nonlocal left
        remaining = ends - clock.monotonic()
        if remaining <= 0:
            left += 1
            return False
        asked = tuple((each,) for each in sides)
        found = questions.answer(question, asked, seconds=min(_EACH, remaining))
        return bool(found.verdict == "proved")

    denying = [policy for policy in policies if _may_deny(policy)]
    useful: list[CompiledPolicy] = []
    for policy in progress(denying, "proving", len(denying)):
        if proved("never-denies", policy):
            yield warning(
                policy, "denies no request", "look at what it matches, and its conditions"
            )
        elif not _is_false(policy) and proved("always-denies", policy):
            what = "denies each request that it matches"
            yield warning(policy, what, "write `false` if it is to")
            useful.append(policy)
        else:
            useful.append(policy)
    for policy, other in _shadowed(useful, proved, questions):
        what = f"denies nothing that `{other.id}` in {other.place} does not deny"
        yield warning(policy, what, "remove it, or keep it for its message")
    if left:
        click.echo(f"{seconds:g} seconds are over: {left} questions are not asked", err=True)


def _may_deny(policy: CompiledPolicy) -> bool:
    enforced = needs_binding(policy) or any("Deny" in each.actions for each in policy.bindings)
    return bool(policy.validations) and enforced and not (policy.unusable or policy.shadow_of)


def _is_false(policy: CompiledPolicy) -> bool:
    """Tell whether a policy is written to deny everything."""
    return any(each.expression.strip() == "false" for each in policy.policy.spec.validations)


def _shadowed(
    policies: Sequence[CompiledPolicy],
    proved: Ask,
    questions: Any,  # noqa: ANN401 - a module
) -> Iterator[tuple[CompiledPolicy, CompiledPolicy]]:
    """Yield each policy that denies nothing that another one does not, and that other one."""
    kinds = {policy.id: _kinds(policy, questions) for policy in policies}
    pairs = [
        (one, other)
        for one, other in permutations(policies, 2)
        if kinds[other.id] and kinds[other.id] <= kinds[one.id]
    ]
    found: set[tuple[str, str]] = set()
    for one, other in progress(pairs, "comparing", len(pairs)):
        if (other.id, one.id) in found or not proved("implies", one, other):
            continue
        found.add((one.id, other.id))
        yield other, one


def _kinds(policy: CompiledPolicy, questions: Any) -> frozenset[str]:  # noqa: ANN401 - a module
    """Return the resources that a policy matches; none if they cannot be compared."""
    try:
        kinds = [*questions.kinds_of(policy)]
    except questions.UnencodableError:
        return frozenset()
    if None in kinds:
        return frozenset()
    return frozenset(f"{each.group}/{each.plural}" for each in kinds)


def _warning(policy: CompiledPolicy, what: str, hint: str, *, bound: int) -> Finding:
    message = f"`{policy.name}` {what}: proved for lists and maps of up to {bound} elements"
    return Finding(
        source=policy.place, message=message, hint=hint, severity="warning", rule="proof"
    )

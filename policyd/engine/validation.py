"""Validations: every one of every policy is asked, and each that is not true is a denial."""

from collections.abc import Sequence

from policyd.cel import CelError
from policyd.engine.compile import CompiledPolicy, CompiledValidation
from policyd.engine.decision import Denial
from policyd.engine.evaluate import EvaluationError, Match, concerns, matches
from policyd.engine.facts import Facts
from policyd.engine.findings import field_path
from policyd.engine.templates import ABSENT
from policyd.engine.verdict import CATCHABLE, Verdict
from policyd.errors import PolicydError

MAXIMUM_MESSAGE = 5 * 1024
"""Letters that a computed message may have, as in the API server."""


def validate(policies: Sequence[CompiledPolicy], facts: Facts, verdict: Verdict) -> None:
    """Ask every policy that concerns the request."""
    for policy in policies:
        try:
            if not concerns(policy, facts):
                continue
            for match in matches(policy, facts):
                facts.check_time()
                verdict.matched(policy)
                _ask(policy, match, facts, verdict)
        except CATCHABLE as error:
            verdict.fail(policy, error)


def _ask(policy: CompiledPolicy, match: Match, facts: Facts, verdict: Verdict) -> None:
    for validation in policy.validations:
        try:
            if validation.program.evaluate(match.variables, match.budget) is not True:
                verdict.object_to(policy, _denial(policy, validation, match, facts))
        except CelError as error:
            failed = EvaluationError(f"`{validation.place}` failed: {error}")
            verdict.fail(policy, failed)


def _denial(
    policy: CompiledPolicy, validation: CompiledValidation, match: Match, facts: Facts
) -> Denial:
    several = len(facts.templates) > 1 and match.view is not facts.whole
    return Denial(
        policy=policy.name,
        validation=validation.place,
        message=_message(validation, match),
        remedy=_remedy(validation, match),
        reason=validation.reason,
        path=field_path(match.view.template or ()) if several else "",
    )


def _message(validation: CompiledValidation, match: Match) -> str:
    """Return the computed message if it can be had, and is one short line; else the static one."""
    if validation.message_program is None:
        return validation.message
    try:
        message = validation.message_program.evaluate(match.variables, match.budget)
    except CelError:
        return validation.message
    if not isinstance(message, str) or not message.strip() or "\n" in message:
        return validation.message
    return message.strip() if len(message) <= MAXIMUM_MESSAGE else validation.message


def _remedy(validation: CompiledValidation, match: Match) -> str:
    try:
        remedy = validation.remedy.value(match.variables, match.budget)
    except PolicydError:
        return ""
    return "" if remedy is ABSENT else str(remedy)

"""Apply exceptions: exempt some requests from policies, or from parts of them."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from policyd.api.policy import ExceptionTerms
from policyd.cel import Budget, CelError, CelTimeError, Program
from policyd.cel.cost import MATCH_CONDITIONS_LIMIT
from policyd.engine.model.compiled import CompiledException, CompiledPolicy
from policyd.engine.model.confinement import confined
from policyd.engine.model.deadline import OutOfTimeError
from policyd.engine.model.facts import Facts
from policyd.errors import PolicydError
from policyd.patch.operations import Path


class ExceptionError(PolicydError):
    """An exception cannot be evaluated."""


class Exemption(NamedTuple):
    """The parts of a policy that exceptions exempt one request from.

    Attributes:
        whole: Whether the request is exempt from all of it.
        validations: For each exempt validation, the containers it does not see; no
            containers stand for the validation as a whole.
        images: Images that expressions are to allow.
        values: Values that they are to allow.
    """

    whole: bool = False
    validations: Mapping[str, frozenset[str]] = {}
    images: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


NOTHING: Final = Exemption()
"""No exemption."""


def compile_exceptions(
    exceptions: tuple[ExceptionTerms, ...],
    at: Path,
    compile_: Callable[[str, Path, str], Program | None],
) -> tuple[CompiledException, ...]:
    """Compile the exceptions that are in a policy; `compile_` reports the errors."""
    compiled = []
    for index, exception in enumerate(exceptions):
        conditions: tuple[Program, ...] = ()
        if exception.expression:
            program = compile_(exception.expression, (*at, index, "expression"), "bool")
            conditions = () if program is None else (program,)
        name = f"exceptions[{index}]"
        compiled.append(
            CompiledException(
                name=name, policies=frozenset(), conditions=conditions, terms=exception
            )
        )
    return tuple(compiled)


def exempt(policy: CompiledPolicy, facts: Facts, variables: Mapping[str, object]) -> Exemption:
    """Return the parts that a policy's exceptions exempt; the facts keep the reasons.

    Raises:
        ExceptionError: If an exception cannot be evaluated.
    """
    applied = [
        e
        for e in policy.exceptions
        if (e.picks is None or e.picks(policy, facts)) and _applies(e, facts, variables)
    ]
    if not applied:
        return NOTHING
    validations: dict[str, frozenset[str]] = {}
    whole = False
    for exception in applied:
        if exception.exempts:
            facts.exempted.append(f"{policy.name}: {exception.words}")
        whole = whole or (exception.exempts and _is_whole(exception.terms))
        for name in _named(policy, exception.terms):
            containers = frozenset(exception.terms.containers if exception.terms else ())
            seen = validations.get(name)
            validations[name] = containers if seen is None else _both(seen, containers)
    return Exemption(
        whole,
        validations,
        tuple(image for e in applied for image in e.images),
        tuple(value for e in applied for value in e.values),
    )


def _is_whole(terms: ExceptionTerms | None) -> bool:
    return terms is None or not (terms.validations or terms.containers)


def _named(policy: CompiledPolicy, terms: ExceptionTerms | None) -> tuple[str, ...]:
    if terms is None or _is_whole(terms):
        return ()
    return terms.validations or tuple(validation.place for validation in policy.validations)


def _both(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    """Join two exceptions; one that exempts from a whole validation has priority."""
    return one | other if one and other else frozenset()


def _applies(exception: CompiledException, facts: Facts, variables: Mapping[str, object]) -> bool:
    terms, now = exception.terms, facts.surroundings.now
    if exception.until < math.inf and (now is None or now() > exception.until):
        return False
    if terms is not None and not (_concerns(terms, facts) and _holds(terms, facts)):
        return False
    budget = Budget(MATCH_CONDITIONS_LIMIT, facts.allowance, exception.name)
    if exception.namespace and exception.conditions:
        variables = {**exception.missing, **variables}
        variables |= confined(variables, exception.namespace)
    try:
        return all(p.evaluate(variables, budget) is True for p in exception.conditions)
    except CelTimeError:
        raise OutOfTimeError from None
    except CelError as error:
        raise ExceptionError(f"exception `{exception.name}` failed: {error}") from error


def _concerns(terms: ExceptionTerms, facts: Facts) -> bool:
    request = facts.request
    user = request.user_info
    return (
        (not terms.users or user.username in terms.users)
        and (not terms.groups or not set(terms.groups).isdisjoint(user.groups))
        and (not terms.namespaces or request.namespace in terms.namespaces)
    )


def _holds(terms: ExceptionTerms, facts: Facts) -> bool:
    """Tell whether an exception has not ended; the day it names is its last."""
    if not terms.until:
        return True
    now = facts.surroundings.now
    if now is None:
        return False
    return datetime.fromtimestamp(now(), UTC).date().isoformat() <= terms.until

"""What is doubtful about a policy that compiles: what never matches, and what fails by surprise.

Policies are tried on objects that have nothing but what their kind requires. What fails there
refuses such objects with `failurePolicy: Fail`, whatever the policy is about.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Final

from policyd.api.admission import Operation
from policyd.api.kinds import BuiltinResource, resources
from policyd.cel import Budget, CelCompileError, CelError
from policyd.cel.check.checker import check
from policyd.cel.recursion import deep_recursion
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.cel.syntax.unparse import unparse
from policyd.cel.types import DYN, NULL, STRING, Type
from policyd.engine.compile.costs import costs
from policyd.engine.documents.findings import Doubt, Finding
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.conditions import EvaluationError, Invocation, Match, matches
from policyd.engine.evaluate.mutation import mutate
from policyd.engine.evaluate.verdict import VerdictBuilder
from policyd.engine.export.refused import refused
from policyd.engine.lint.least import least_object, least_of
from policyd.engine.lint.never_true import never_true
from policyd.engine.model.compiled import MUTATING, NATIVE, VALIDATING, CompiledPolicy
from policyd.engine.model.facts import Facts
from policyd.engine.model.places import expressions_of
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import (
    RequestCircumstances,
    as_it_was,
    namespace_lookup,
    request_for,
)
from policyd.errors import PolicydError

_MISSING: Final = "no such key"

_ELSEWHERE: Final = "is not available here"
"""How what Kyverno's policies ask of the world outside fails, of which nothing follows."""

_ASK_FIRST: Final = "ask `has(...)` first, or write `.?` before what may be missing"

_SINCE_1_37: Final = ("orValue", "or")
"""What Kubernetes 1.37 calls on optionals only; up to 1.36 it gives back what is none."""


def lint(policy: CompiledPolicy) -> Iterator[Finding]:
    """Yield what is doubtful about a policy."""
    never = [*_idle(policy), *never_true(policy)]
    found = chain(
        never, () if never else _surprises(policy), _of_no_optional(policy), costs(policy)
    )
    yield from (_warning(policy, doubt) for doubt in found)
    yield from _annotations(policy)


def _idle(policy: CompiledPolicy) -> Iterator[Doubt]:
    """Say that a policy asks and changes nothing; the API server refuses such of its own kinds."""
    work = policy.validations or policy.annotations or policy.mutations or policy.steps
    if not work and policy.kind not in NATIVE:
        yield Doubt("it has neither validations nor mutations", "add `validations`", "never-true")


def _annotations(policy: CompiledPolicy) -> Iterator[Finding]:
    """Yield the audit annotations whose values are no texts, which the API server refuses."""
    for key, program in () if policy.own else policy.annotations:
        if program.result_type not in (STRING, NULL):
            message = f"the API server refuses it: annotation `{key}` is {program.result_type}"
            hint = "an annotation is a text, or null if there is nothing to say"
            if program.result_type == DYN:
                hint = "its type is unknown; convert it to a string, as in `string(x)`"
            yield Finding(source=policy.place, message=message, hint=hint, rule="refused")


def _warning(policy: CompiledPolicy, doubt: Doubt) -> Finding:
    finding = Finding(source=policy.place, message=doubt.message, hint=doubt.hint, rule=doubt.rule)
    return replace(finding, severity="warning")


def lint_document(document: Document) -> Iterator[Finding]:
    """Yield what is doubtful about a policy as it is written, and what the API server refuses."""
    value = document.value
    if not isinstance(value, dict):
        return
    yield from refused(document)
    spec = value.get("spec")
    if value.get("kind") not in (VALIDATING, MUTATING) or not isinstance(spec, dict):
        return
    if "failurePolicy" not in spec:
        message = "field `failurePolicy` is missing: requests that cannot be evaluated are refused"
        finding = document.finding(message, ("spec",), hint="set it to `Fail` or `Ignore`")
        yield replace(finding, severity="warning", rule="failure-policy")
    yield from _unknown_params(document)


def _unknown_params(document: Document) -> Iterator[Finding]:
    """Yield a kind of params that Kubernetes' own groups do not have."""
    given = document.value["spec"].get("paramKind")
    if not isinstance(given, dict):
        return
    group, _, version = str(given.get("apiVersion", "")).rpartition("/")
    kinds = {each.kind for each in resources() if (each.group, each.version) == (group, version)}
    if kinds and str(given.get("kind")) not in kinds:
        path = ("spec", "paramKind", "kind")
        message = f"`{given.get('kind')}` not found in {given.get('apiVersion')}"
        finding = document.finding(message, path)
        yield replace(finding, severity="warning", rule="unknown")


def _surprises(policy: CompiledPolicy) -> Iterator[Doubt]:
    """Yield what fails for objects with nothing but what they must have."""
    if policy.ignores_failures or policy.policy.spec.param_kind:
        return
    operations: tuple[Operation, ...] = ("CREATE", "UPDATE")
    for operation in operations:
        for found in least_of(policy.constraints, operation):
            reason = _failure(policy, found, operation)
            if reason:
                message = f"for a {found.kind} with only its required fields, {reason}"
                yield Doubt(message, _ASK_FIRST if _MISSING in reason else None, "null-unsafe")
                return


def _failure(policy: CompiledPolicy, of: BuiltinResource, operation: Operation) -> str:
    """Say how a policy fails for the least object of a kind; empty if it does not."""
    surroundings = PolicyContext(namespaces=namespace_lookup((), {}))
    obj = least_object(of)
    old = as_it_was(obj, operation)
    request = request_for(obj, RequestCircumstances(operation=operation), old_object=old)
    facts = Facts(request, surroundings)
    try:
        found = matches(Invocation(policy, policy.bindings[0], None, None), facts)
    except EvaluationError as error:
        return str(error) if _MISSING in str(error) else ""
    except PolicydError:
        return ""
    failures = [*_failing_validations(policy, found)]
    if policy.mutations:
        verdict = VerdictBuilder()
        mutate([policy], facts, verdict)
        failures += (
            failure.message
            for failure in verdict.decision().failures
            if _ELSEWHERE not in failure.message
        )
    return next((failure for failure in failures if failure), "")


def _failing_validations(policy: CompiledPolicy, found: Iterable[Match]) -> Iterator[str]:
    for match in found:
        for validation in policy.validations:
            try:
                validation.program.evaluate(match.variables, Budget())
            except CelError as error:
                if _MISSING in error.message:
                    yield f"`{validation.place}` fails: {error.message}"


def _of_no_optional(policy: CompiledPolicy) -> Iterator[Doubt]:
    """Yield calls that Kubernetes 1.37 makes an error of: on what is no optional."""
    for _, program, environment in expressions_of(policy):
        try:
            tree = parse(program.source, macros=environment.macros)
            with deep_recursion():
                types = check(tree, program.source, environment).types
        except CelCompileError:
            continue
        for called in _called_on_none(tree, types):
            message = f"under Kubernetes 1.37: `{called}` fails, as it is not an optional value"
            yield Doubt(message, "write `.?` before the field that may be missing", "dialect")


def _called_on_none(
    node: ast.ExpressionNode, types: Mapping[ast.ExpressionNode, Type]
) -> Iterator[str]:
    if isinstance(node, ast.Call) and node.function in _SINCE_1_37 and node.target is not None:
        plain = isinstance(node.target, ast.Select | ast.Index | ast.Identifier)
        if plain and types.get(node.target) == DYN and not getattr(node.target, "optional", False):
            yield f"{unparse(node.target)}.{node.function}"
    for part in ast.children(node):
        yield from _called_on_none(part, types)

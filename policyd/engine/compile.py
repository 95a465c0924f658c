"""Policies, compiled: every expression checked once, when the policy is loaded.

What is wrong with an expression becomes a finding at its place in the file. A policy with findings
is not used at all, and stands in no other's way.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from policyd.api.policy import (
    Expression,
    MatchConstraints,
    NamedExpression,
    Policy,
    Reason,
    Text,
    Validation,
)
from policyd.cel import (
    CelCompileError,
    Environment,
    Issue,
    Program,
    compile_expression,
)
from policyd.cel.types import DYN, Type
from policyd.engine.documents import Document
from policyd.engine.findings import Finding
from policyd.engine.functions import expression_environment, with_variables
from policyd.engine.inject import READ_BY_MERGING, Step, compile_inject
from policyd.engine.match import is_named_only, selects_all
from policyd.engine.reads import EVERYTHING, reads_of
from policyd.engine.templates import KIND_NAMES, Kind, Template, build_template, type_fits
from policyd.patch.operations import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledValidation:
    """One validation; `place` is its name, or where it stands."""

    place: str
    program: Program
    message: str
    message_program: Program | None
    remedy: Template
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPolicy:
    """A policy that can be evaluated.

    Attributes:
        policy: What the author wrote.
        name: Its name.
        place: Where it was read: `file:line:column`, or the name of the object.
        conditions: The match conditions, by name.
        variables: The variables' programs, in order.
        steps: What it injects.
        validations: What it demands.
        uses: The variables that its expressions name, `pod` and `request` among them.
        reads: The names of the object's fields that decide what it changes.
        writes: The names of the object's fields that it changes.
        named_only: Whether it concerns everything of the resources and operations it names, as far
            as its rules go.
    """

    policy: Policy
    name: str
    place: str
    conditions: tuple[tuple[str, Program], ...]
    variables: dict[str, Program]
    steps: tuple[Step, ...]
    validations: tuple[CompiledValidation, ...]
    uses: frozenset[str]
    reads: frozenset[str]
    writes: frozenset[str]
    named_only: bool


def compile_policy(policy: Policy, document: Document) -> CompiledPolicy | list[Finding]:
    """Compile a policy, or say everything that keeps it from being compiled.

    `document` is what the policy was read from: findings point into it.
    """
    compiler = _Compiler(document, expression_environment())
    spec = policy.spec
    conditions = compiler.conditions(spec.match_conditions)
    variables = compiler.variables(spec.variables)
    steps = compile_inject(spec.inject, ("spec", "inject"), compiler.hole) if spec.inject else ()
    shaping = tuple(compiler.sources)  # what validations look at does not change the object
    validations = tuple(
        compiler.validation(validation, ("spec", "validations", index))
        for index, validation in enumerate(spec.validations)
    )
    if compiler.findings:
        return compiler.findings
    return CompiledPolicy(
        policy=policy,
        name=policy.metadata.name,
        place=document.finding("").place,
        conditions=conditions,
        variables=variables,
        steps=steps,
        validations=tuple(v for v in validations if v is not None),
        uses=frozenset(compiler.uses),
        reads=_reads(policy, steps, shaping),
        writes=frozenset().union(*(step.writes for step in steps)),
        named_only=_is_named_only(spec.match_constraints),
    )


def _is_named_only(constraints: MatchConstraints) -> bool:
    return (
        constraints.match_policy == "Equivalent"
        and not constraints.exclude_resource_rules
        and all(is_named_only(rule) for rule in constraints.resource_rules)
    )


def _reads(policy: Policy, steps: tuple[Step, ...], sources: Iterable[str]) -> frozenset[str]:
    """Return what decides how a policy changes the object: expressions, its selector, merging."""
    reads = reads_of(sources)
    if reads is EVERYTHING:
        return reads
    selects = not selects_all(policy.spec.match_constraints.object_selector)
    merging = (READ_BY_MERGING.get(step.field, frozenset()) for step in steps)
    return reads.union(*merging, {"labels"} if selects else ())


@dataclass(slots=True)
class _Compiler:
    """Compiles the expressions of one policy, and gathers what is wrong with them."""

    document: Document
    environment: Environment
    findings: list[Finding] = field(default_factory=list)
    uses: set[str] = field(default_factory=set)
    sources: list[str] = field(default_factory=list)
    types: dict[str, Type] = field(default_factory=dict)
    broken: bool = False

    def conditions(
        self, conditions: tuple[NamedExpression, ...]
    ) -> tuple[tuple[str, Program], ...]:
        """Compile the match conditions, which see no variables."""
        compiled = []
        for index, condition in enumerate(conditions):
            path = ("spec", "matchConditions", index)
            self._unique(condition.name, conditions[:index], path)
            program = self.compile(condition.expression, (*path, "expression"), "bool")
            if program is not None:
                compiled.append((condition.name, program))
        return tuple(compiled)

    def variables(self, variables: tuple[NamedExpression, ...]) -> dict[str, Program]:
        """Compile the variables, each of which may use the ones before."""
        compiled: dict[str, Program] = {}
        for index, variable in enumerate(variables):
            path = ("spec", "variables", index)
            self._unique(variable.name, variables[:index], path)
            program = self.compile(variable.expression, (*path, "expression"), "any")
            # A variable that is wrong itself is no reason to call its uses wrong too.
            self.broken = self.broken or program is None
            self.types[variable.name] = DYN if program is None else program.result_type
            self.environment = with_variables(self.environment, self.types)
            if program is not None:
                compiled[variable.name] = program
        return compiled

    def validation(self, validation: Validation, path: Path) -> CompiledValidation | None:
        """Compile one validation with its messages."""
        program = self.compile(validation.expression, (*path, "expression"), "bool")
        message = None
        if validation.message_expression:
            where = (*path, "messageExpression")
            message = self.compile(validation.message_expression, where, "string")
        remedy = self._text(validation.remedy, (*path, "remedy"))
        if program is None:
            return None
        expression = " ".join(validation.expression.split())
        return CompiledValidation(
            place=validation.name or f"validations[{path[-1]}]",
            program=program,
            message=validation.message or f"failed expression: {expression}",
            message_program=message,
            remedy=remedy,
            reason=validation.reason,
        )

    def hole(self, expression: Expression, path: Path, kind: Kind) -> Program | None:
        """Compile an expression that gives a value of a template."""
        program = self.compile(expression.expression, path, "any")
        if program is not None and not type_fits(program.result_type, kind):
            message = f"`{path[-2]}` must be {KIND_NAMES[kind]}, this is {program.result_type}"
            self.findings.append(self.document.finding(message, path))
        return program

    def compile(self, source: str, path: Path, wants: str) -> Program | None:
        """Compile an expression; None if there are findings."""
        wants = "any" if self.broken else wants
        try:
            program = compile_expression(source, self.environment, wants=wants)
        except CelCompileError as error:
            self.findings += [self._finding(issue, path) for issue in error.issues]
            return None
        self.uses |= program.variables_used
        if program.variables_used & {"object", "pod", "workload"}:
            self.sources.append(source)
        return program

    def _finding(self, issue: Issue, path: Path) -> Finding:
        at = self.document.position_within(path, issue.line, issue.column)
        return self.document.finding(issue.message, path, hint=issue.hint, at=at)

    def _text(self, text: Text, path: Path) -> Template:
        return build_template(text, path, self.hole)

    def _unique(self, name: str, before: tuple[NamedExpression, ...], path: Path) -> None:
        if any(other.name == name for other in before):
            message = f"`{name}` is named twice"
            self.findings.append(self.document.finding(message, (*path, "name")))

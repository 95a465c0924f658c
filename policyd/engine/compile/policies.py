"""Compile a policy: check every expression once, when the policy is loaded.

An error in an expression becomes a finding at its place in the file. A policy with findings is
not used at all, and affects no other policy.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from policyd.api.admission import Rule
from policyd.api.inject import Expression, Text
from policyd.api.policy import (
    AuditAnnotation,
    MatchConstraints,
    Mutation,
    NamedExpression,
    Policy,
    Validation,
)
from policyd.cel import CelCompileError, Issue, Program, compile_expression
from policyd.cel.errors import TooMuchError
from policyd.cel.types import DYN, Type
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.inject.operations import READ_BY_MERGING, InjectedField, compile_inject
from policyd.engine.inject.templates import (
    KIND_NAMES,
    Kind,
    ValueTemplate,
    build_template,
    type_fits,
)
from policyd.engine.model.compiled import (
    OWN,
    CompiledBinding,
    CompiledMutation,
    CompiledPolicy,
    CompiledValidation,
)
from policyd.engine.model.dialects import DEFAULT_DIALECT, Dialect, own_environments
from policyd.engine.model.environments import PolicyEnvironments, PolicyPart
from policyd.engine.model.exceptions import compile_exceptions
from policyd.engine.model.queue_facts import OF_THE_OBJECT
from policyd.engine.model.reads import EVERYTHING, reads_of, variables_in
from policyd.engine.objects.match import is_named_only, selects_all
from policyd.patch.operations import Path

__all__ = ["CompiledPolicy", "Layout", "compile_policy"]

MOST_NAMED: Final = 10_000
"""Resources that the rules of a policy name: each is looked up by itself."""

MUTATION_RESULTS = {"ApplyConfiguration": "object", "JSONPatch": "patches"}
"""The result types that a mutation's expression may have."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of a policy's fields in its document.

    Attributes:
        root: The path of the specification.
        elsewhere: The paths of fields that are not there, or are called otherwise.
    """

    root: Path = ("spec",)
    elsewhere: Mapping[str, Path] = field(default_factory=dict)

    def at(self, name: str, *steps: str | int) -> Path:
        """Return the path of a field, or of a part of it."""
        return (*self.elsewhere.get(name, (*self.root, name)), *steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of a kind of policies.

    Attributes:
        kind: The kind's name.
        environments: Returns the environments of its expressions.
        layout: Where in the document its fields are.
    """

    kind: str = OWN
    environments: Callable[[Dialect, bool], PolicyEnvironments] = own_environments
    layout: Layout = Layout()


OWN_FORM: Final = Form()


def compile_policy(
    policy: Policy, document: Document, form: Form = OWN_FORM, dialect: Dialect = DEFAULT_DIALECT
) -> CompiledPolicy | list[Finding]:
    """Compile a policy, or say everything that keeps it from being compiled.

    Args:
        policy: The policy, as an object of policyd's own kind.
        document: Its document: findings point into it.
        form: Its format there.
        dialect: The version of Kubernetes it is written for.
    """
    spec, layout = policy.spec, form.layout
    if sum(map(_named_by, spec.match_constraints.resource_rules)) > MOST_NAMED:
        message = f"the rules name more than {MOST_NAMED:,} resources, counted by version"
        hint = "use `*`, and exclude resources by `excludeResourceRules`"
        return [document.finding(message, layout.at("matchConstraints"), hint=hint)]
    environments = form.environments(dialect, spec.param_kind is not None)
    compiler = _Compiler(document, environments, layout)
    try:
        return _compiled(policy, compiler, form)
    except TooMuchError:
        return compiler.findings


def _compiled(policy: Policy, compiler: "_Compiler", form: Form) -> CompiledPolicy | list[Finding]:
    spec, layout, document = policy.spec, form.layout, compiler.document
    environments = compiler.environments
    variables = compiler.variables(spec.variables, unique=form.kind == OWN)
    conditions = compiler.conditions(spec.match_conditions)
    steps = compile_inject(spec.inject, layout.at("inject"), compiler.hole) if spec.inject else ()
    mutations = compiler.mutations(spec.mutations)
    shaping = tuple(compiler.programs)  # the reads of validations do not change the object
    validations = compiler.validations(spec.validations)
    annotations = compiler.annotations(spec.audit_annotations)
    exceptions = compile_exceptions(spec.exceptions, layout.at("exceptions"), compiler.compile)
    if compiler.findings:
        return compiler.findings
    return CompiledPolicy(
        policy=policy,
        kind=form.kind,
        name=policy.metadata.name,
        place=document.finding("").place,
        constraints=spec.match_constraints,
        conditions=conditions,
        variables=variables,
        steps=steps,
        mutations=mutations,
        validations=validations,
        annotations=annotations,
        programs=(
            *(program for program in shaping if program not in variables.values()),
            *(validation.program for validation in validations),
            *(program for _, program in annotations),
        ),
        uses=frozenset(compiler.uses),
        reads=_reads(policy, steps, shaping),
        writes=EVERYTHING if mutations else frozenset().union(*(step.writes for step in steps)),
        named_only=_is_named_only(spec.match_constraints),
        exceptions=exceptions,
        environments=environments,
        bindings=(
            CompiledBinding(
                param_ref=spec.param_ref, actions=(spec.enforcement,), rollout=spec.rollout
            ),
        ),
    )


_OBJECTS: Final = frozenset({"object", "pod", "workload"})
"""The variables that mutations change."""


def _needed(name: str, programs: Mapping[str, Program]) -> set[str]:
    """Return the variables that the value of one needs."""
    needed: set[str] = set()
    looked_at = [name]
    while looked_at:
        program = programs.get(looked_at.pop())
        found = variables_in(program.source) - needed if program else set()
        needed |= found
        looked_at += found
    return needed


def _named_by(rule: Rule) -> int:
    """Return how many resources a rule names: each of each group and version."""
    return len(rule.api_groups) * len(rule.api_versions) * len(rule.resources)


def _is_named_only(constraints: MatchConstraints) -> bool:
    return (
        constraints.match_policy == "Equivalent"
        and not constraints.exclude_resource_rules
        and all(is_named_only(rule) for rule in constraints.resource_rules)
    )


def _reads(
    policy: Policy, steps: tuple[InjectedField, ...], programs: Iterable[Program]
) -> frozenset[str]:
    """Return the inputs of a policy's mutations: expressions, its selector, merging."""
    if policy.spec.mutations:
        return EVERYTHING
    programs = tuple(programs)
    reads = reads_of(p.source for p in programs if p.variables_used & _OBJECTS)
    if reads is EVERYTHING:
        return reads
    selects = not selects_all(policy.spec.match_constraints.object_selector) or any(
        p.variables_used & OF_THE_OBJECT for p in programs
    )
    merging = (READ_BY_MERGING.get(step.field, frozenset()) for step in steps)
    return reads.union(*merging, {"labels"} if selects else ())


@dataclass(slots=True)
class _Compiler:
    """Compiles the expressions of one policy, and collects findings."""

    document: Document
    environments: PolicyEnvironments
    layout: Layout
    findings: list[Finding] = field(default_factory=list)
    uses: set[str] = field(default_factory=set)
    programs: list[Program] = field(default_factory=list)
    types: dict[str, Type] = field(default_factory=dict)
    broken: bool = False

    def conditions(
        self, conditions: tuple[NamedExpression, ...]
    ) -> tuple[tuple[str, Program], ...]:
        """Compile the match conditions."""
        compiled = []
        for index, condition in enumerate(conditions):
            path = self.layout.at("matchConditions", index)
            self._unique(condition.name, conditions[:index], path)
            where = (*path, "expression")
            program = self.compile(condition.expression, where, "bool", "conditions")
            if program is not None:
                compiled.append((condition.name, program))
        return tuple(compiled)

    def variables(
        self, variables: tuple[NamedExpression, ...], *, unique: bool
    ) -> dict[str, Program]:
        """Compile the variables, each of which may use the ones before.

        Where names need not be unique, the last one of a name counts, as in the API server: for
        the values of those before it, too, whose types were checked with the first one's.
        """
        compiled: dict[str, Program] = {}
        for index, variable in enumerate(variables):
            path = self.layout.at("variables", index)
            if unique:
                self._unique(variable.name, variables[:index], path)
            before = compiled.pop(variable.name, None)
            program = self.compile(variable.expression, (*path, "expression"), "any")
            if before is not None and program is not None:
                self._replaced(variable.name, before, program, compiled, path)
            # A variable with an error does not make its uses errors too.
            self.broken = self.broken or program is None
            self.types[variable.name] = DYN if program is None else program.result_type
            self.environments = self.environments.with_variables(self.types)
            if program is not None:
                compiled[variable.name] = program
        return compiled

    def _replaced(
        self,
        name: str,
        before: Program,
        program: Program,
        between: Mapping[str, Program],
        path: Path,
    ) -> None:
        """Report a variable that takes another's place where it cannot have its value."""
        known = {**between, name: program}
        if name in _needed(name, known):
            message = f"`{name}` is named twice, and needs itself: its last expression counts"
            self.findings.append(self.document.finding(message, (*path, "name")))
        elif before.result_type != program.result_type and any(
            name in variables_in(each.source) for each in between.values()
        ):
            message = f"`{name}` is named twice, and is used with the type of the first"
            self.findings.append(self.document.finding(message, (*path, "name")))

    def mutations(self, mutations: tuple[Mutation, ...]) -> tuple[CompiledMutation, ...]:
        """Compile the mutations."""
        compiled = []
        for index, mutation in enumerate(mutations):
            apply = mutation.patch_type == "ApplyConfiguration"
            given = mutation.apply_configuration if apply else mutation.json_patch
            field_name = "applyConfiguration" if apply else "jsonPatch"
            path = self.layout.at("mutations", index)
            if given is None:
                message = f"`patchType: {mutation.patch_type}` needs `{field_name}`"
                self.findings.append(self.document.finding(message, path))
                continue
            where, wants = (*path, field_name, "expression"), MUTATION_RESULTS[mutation.patch_type]
            program = self.compile(given.expression, where, wants, "mutations")
            if program is not None:
                place = f"mutations[{index}]"
                compiled.append(
                    CompiledMutation(place=place, program=program, patch_type=mutation.patch_type)
                )
        return tuple(compiled)

    def validations(self, validations: tuple[Validation, ...]) -> tuple[CompiledValidation, ...]:
        """Compile the validations with their messages."""
        compiled = (
            self._validation(validation, self.layout.at("validations", index))
            for index, validation in enumerate(validations)
        )
        return tuple(validation for validation in compiled if validation is not None)

    def annotations(
        self, annotations: tuple[AuditAnnotation, ...]
    ) -> tuple[tuple[str, Program], ...]:
        """Compile the audit annotations."""
        compiled = []
        for index, annotation in enumerate(annotations):
            path = self.layout.at("auditAnnotations", index, "valueExpression")
            program = self.compile(annotation.value_expression, path, "any")
            if program is not None:
                compiled.append((annotation.key, program))
        return tuple(compiled)

    def _validation(self, validation: Validation, path: Path) -> CompiledValidation | None:
        program = self.compile(validation.expression, (*path, "expression"), "bool")
        message = None
        if validation.message_expression:
            where = (*path, "messageExpression")
            message = self.compile(validation.message_expression, where, "string", "messages")
        remedy = self._text(validation.remedy, (*path, "remedy"))
        if program is None:
            return None
        return CompiledValidation(
            place=validation.name or f"validations[{path[-1]}]",
            program=program,
            message=validation.message.strip()
            or self.environments.failed_message(validation.expression),
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

    def compile(
        self, source: str, path: Path, wants: str, part: PolicyPart = "expressions"
    ) -> Program | None:
        """Compile an expression; None if there are findings."""
        wants = "any" if self.broken else wants
        try:
            program = compile_expression(source, self.environments.of(part), wants=wants)
        except CelCompileError as error:
            self.findings += [self._finding(issue, path) for issue in error.issues]
            if isinstance(error, TooMuchError):
                raise
            return None
        self.uses |= self.environments.read_by(program)
        self.programs.append(program)
        return program

    def _finding(self, issue: Issue, path: Path) -> Finding:
        at = self.document.position_within(path, issue.line, issue.column)
        return self.document.finding(issue.message, path, hint=issue.hint, at=at)

    def _text(self, text: Text, path: Path) -> ValueTemplate:
        return build_template(text, path, self.hole)

    def _unique(self, name: str, before: tuple[NamedExpression, ...], path: Path) -> None:
        if any(other.name == name for other in before):
            message = f"`{name}` is named twice"
            self.findings.append(self.document.finding(message, (*path, "name")))

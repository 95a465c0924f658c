"""Compile Kyverno's policies that act by themselves: they generate, mutate or delete.

Their matching, variables and conditions are those of its other policies in CEL.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from policyd.api.admission import Rule
from policyd.api.policy import MatchConstraints, PolicySpec
from policyd.cel import Budget, CelCompileError, Issue, Program, compile_expression
from policyd.dialects.kyverno.api import (
    DeletingPolicy,
    DeletingPolicySpec,
    GeneratingPolicy,
    GeneratingPolicySpec,
    GenerationEntry,
    GenerationTemplate,
    MutatingPolicy,
    TargetResources,
)
from policyd.dialects.kyverno.confinement import elsewhere, refused, with_own_words
from policyd.dialects.kyverno.environments import (
    deleting_environments,
    generating_environments,
    kyverno_environments,
    namespaced_deleting_environments,
    namespaced_environments,
    namespaced_generating_environments,
)
from policyd.dialects.kyverno.interpolation import TemplateError, compile_template
from policyd.dialects.kyverno.policies import (
    changes_existing,
    completed_rule,
    has_targets,
    matches_nothing,
    namespace_of,
    not_at_admission,
    shape_of,
)
from policyd.engine.background.schedule import ScheduleError, parse_schedule
from policyd.engine.compile.native import constraints_of, in_own_words
from policyd.engine.compile.policies import Form, Layout, compile_policy
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.background import (
    BackgroundPolicy,
    Deletion,
    ExistingMutation,
    Generation,
    ObjectCollector,
    Produce,
)
from policyd.engine.model.compiled import CompiledPolicy, environments_of
from policyd.engine.model.dialects import Dialect
from policyd.engine.model.reads import fields_in
from policyd.patch.operations import Path

_STRUCTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "GeneratingPolicy": GeneratingPolicy,
    "NamespacedGeneratingPolicy": GeneratingPolicy,
    "DeletingPolicy": DeletingPolicy,
    "NamespacedDeletingPolicy": DeletingPolicy,
}

KINDS: Final = frozenset(_STRUCTS)
"""The kinds that act by themselves alone."""

MUTATING: Final = frozenset({"MutatingPolicy", "NamespacedMutatingPolicy"})
"""The kinds that may mutate existing objects, besides those of requests."""

_KNOWN: Final = frozenset(
    {
        *("kind", "resource", "subResource", "requestKind", "requestResource"),
        *("requestSubResource", "name", "namespace", "operation", "object"),
    }
)
"""The fields of `request` that are known of an existing object."""

_FORMS: Final[Mapping[type[msgspec.Struct], Any]] = {
    GeneratingPolicy: (generating_environments, namespaced_generating_environments, Layout()),
    DeletingPolicy: (
        deleting_environments,
        namespaced_deleting_environments,
        Layout(elsewhere={"matchConditions": ("spec", "conditions")}),
    ),
}


def load_background(
    document: Document, dialect: Dialect
) -> tuple[BackgroundPolicy | None, list[Finding]]:
    """Compile a policy that acts by itself, and return the findings."""
    kind = document.value["kind"]
    struct = _STRUCTS[kind]
    value, findings = shape_of(struct).read(document)
    if value is None:
        return None, findings
    read: Any = msgspec.convert(value, struct)
    wrong = matches_nothing(read.spec.match_constraints, document)
    if wrong:
        return None, [*findings, *wrong]
    namespace = namespace_of(read.metadata, namespaced=kind.startswith("Namespaced"))
    of_cluster, of_namespace, layout = _FORMS[struct]
    form = Form(kind=kind, environments=of_namespace if namespace else of_cluster, layout=layout)
    compiled = compile_policy(
        in_own_words(read.metadata, _spec(read.spec)), document, form, dialect
    )
    if not isinstance(compiled, CompiledPolicy):
        wrong = refused(compiled)
        return None, [*findings, *(with_own_words(wrong) if namespace else wrong)]
    compiled = replace(compiled, namespace=namespace, named_only=False)
    if isinstance(read.spec, GeneratingPolicySpec):
        made, wrong = _generating(read.spec, compiled, document)
    else:
        made, wrong = _deleting(read.spec, compiled, document)
    if made is None:
        return None, [*findings, *(with_own_words(wrong) if namespace else wrong)]
    withheld = elsewhere(made.policy.uses, document) if namespace else []
    if withheld:
        return None, [*findings, *withheld]
    return made, [*findings, *wrong]


def load_existing(
    document: Document, dialect: Dialect
) -> tuple[BackgroundPolicy | None, list[Finding]]:
    """Compile what a policy without errors mutates in existing objects; None if nothing."""
    value, _ = shape_of(MutatingPolicy).read(document)
    read = msgspec.convert(value, MutatingPolicy)
    if not changes_existing(read.spec):
        return None, []
    compiled = _existing(read, document, dialect)
    if isinstance(compiled, BackgroundPolicy):
        return compiled, []
    return None, with_own_words(compiled) if read.kind.startswith("Namespaced") else compiled


def _existing(
    read: MutatingPolicy, document: Document, dialect: Dialect
) -> BackgroundPolicy | list[Finding]:
    """Compile a policy for its targets, and for its triggers if these are other objects."""
    spec = read.spec
    given = spec.target_match_constraints if has_targets(spec) else None
    targets = _seen_by(given, read, document, dialect)
    if not isinstance(targets, CompiledPolicy):
        return targets
    # An object that exists was created or changed once, so any operation fits.
    targets = replace(targets, constraints=_with_rules(targets.constraints, _any_operation))
    if given is None or not (spec.evaluation.admission.enabled or given.expression):
        action = ExistingMutation(targets=targets, unknown=_unknown(targets))
        return BackgroundPolicy(policy=targets, action=action)
    triggers = _seen_by(None, read, document, dialect)
    assert isinstance(triggers, CompiledPolicy), "a policy without errors"
    named, compiler = None, _Entries(triggers, document)
    if given.expression:
        path = ("spec", "targetMatchConstraints", "expression")
        named = compiler.program(given.expression, path)
        if named is None:
            return refused(compiler.findings)
        withheld = elsewhere(compiler.uses, document) if triggers.namespace else []
        if withheld:
            return withheld
    action = ExistingMutation(
        targets=targets,
        triggered=True,
        named=named,
        unknown=_unknown(triggers, targets, *([named] if named else [])),
    )
    policy = replace(triggers, uses=triggers.uses | compiler.uses)
    return BackgroundPolicy(policy=policy, action=action)


def _seen_by(
    targets: TargetResources | None, read: MutatingPolicy, document: Document, dialect: Dialect
) -> CompiledPolicy | list[Finding]:
    """Compile a policy as its targets see it; as its triggers do if there are none."""
    spec, kind = read.spec, read.kind
    namespace = namespace_of(read.metadata, namespaced=kind.startswith("Namespaced"))
    paths: dict[str, Path] = {
        "matchConditions": ("spec", "targetMatchConditions"),
        "matchConstraints": ("spec", "targetMatchConstraints"),
    }
    form = Form(
        kind=kind,
        environments=namespaced_environments if namespace else kyverno_environments,
        layout=Layout(elsewhere=paths if targets is not None else {}),
    )
    if targets is None:
        constraints = constraints_of(spec.match_constraints)
        conditions = spec.match_conditions
    else:
        constraints = constraints_of(targets)
        conditions = spec.target_match_conditions
    own = PolicySpec(
        match_constraints=_with_rules(constraints, completed_rule),
        match_conditions=conditions,
        variables=spec.variables,
        mutations=spec.mutations,
    )
    compiled = compile_policy(in_own_words(read.metadata, own), document, form, dialect)
    if not isinstance(compiled, CompiledPolicy):
        return refused(compiled)
    withheld = elsewhere(compiled.uses, document) if namespace else []
    return withheld or replace(compiled, namespace=namespace, named_only=False)


def _unknown(*parts: CompiledPolicy | Program, old: bool = False) -> str:
    """Return what expressions read of requests that is not known of an object.

    Args:
        parts: Where the expressions are.
        old: Whether the old object is known: it is none of a new object, and all of a deleted one.
    """
    known = _KNOWN | {"oldObject"} if old else _KNOWN
    programs: list[Program] = []
    for each in parts:
        if isinstance(each, CompiledPolicy):
            programs += (*each.programs, *each.variables.values())
        else:
            programs.append(each)
    for source in dict.fromkeys(program.source for program in programs):
        if not old and fields_in(source, "oldObject"):
            return "oldObject"
        for field in sorted(fields_in(source, "request") - known):
            return f"request.{field}" if field else "request"
    return ""


def _spec(spec: GeneratingPolicySpec | DeletingPolicySpec) -> PolicySpec:
    complete = completed_rule if isinstance(spec, GeneratingPolicySpec) else _any_operation
    return PolicySpec(
        match_constraints=_with_rules(constraints_of(spec.match_constraints), complete),
        match_conditions=(
            spec.match_conditions if isinstance(spec, GeneratingPolicySpec) else spec.conditions
        ),
        variables=spec.variables,
    )


def _with_rules(
    constraints: MatchConstraints, complete: Callable[[Rule], Rule]
) -> MatchConstraints:
    """Return constraints with each of their rules completed."""
    return msgspec.structs.replace(
        constraints,
        resource_rules=tuple(map(complete, constraints.resource_rules)),
        exclude_resource_rules=tuple(map(complete, constraints.exclude_resource_rules)),
    )


def _any_operation(rule: Rule) -> Rule:
    """Return a rule for objects, whose operations do not matter."""
    return msgspec.structs.replace(rule, operations=("*",))


def _deleting(
    spec: DeletingPolicySpec, compiled: CompiledPolicy, document: Document
) -> tuple[BackgroundPolicy | None, list[Finding]]:
    try:
        schedule = parse_schedule(spec.schedule)
    except ScheduleError as error:
        return None, [document.finding(str(error), ("spec", "schedule"), hint=error.hint)]
    action = Deletion(
        schedule=spec.schedule, due=schedule.after, propagation=spec.deletion_propagation_policy
    )
    return BackgroundPolicy(policy=compiled, action=action), []


def _generating(
    spec: GeneratingPolicySpec, compiled: CompiledPolicy, document: Document
) -> tuple[BackgroundPolicy | None, list[Finding]]:
    compiler = _Entries(compiled, document)
    entries = tuple(compiler.entry(each, index) for index, each in enumerate(spec.generate))
    if compiler.findings:
        return None, refused(compiler.findings)
    evaluation = spec.evaluation
    rules = compiled.constraints.resource_rules
    operations = {name for rule in rules for name in rule.operations}
    if not (evaluation.admission.enabled or evaluation.generate_existing.enabled):
        return None, [not_at_admission(document, ("spec", "evaluation", "admission"))]
    action = Generation(
        entries=tuple(each for each in entries if each is not None),
        synchronize=evaluation.synchronize.enabled,
        existing=evaluation.generate_existing.enabled,
        orphan=evaluation.orphan_downstream_on_policy_delete.enabled,
        at_requests=evaluation.admission.enabled,
        unknown=_unknown(compiled, *compiler.programs, old=not operations & {"UPDATE", "*"}),
    )
    policy = replace(compiled, uses=compiled.uses | compiler.uses)
    return BackgroundPolicy(policy=policy, action=action), []


class _Entries:
    """Compiles the entries of `generate`, and collects findings."""

    def __init__(self, compiled: CompiledPolicy, document: Document) -> None:
        self._environments = environments_of(compiled)
        self._document = document
        self.findings: list[Finding] = []
        self.programs: list[Program] = []

    @property
    def uses(self) -> frozenset[str]:
        """The variables that the programs read."""
        return frozenset[str]().union(*map(self._environments.read_by, self.programs))

    def entry(self, entry: GenerationEntry, index: int) -> Produce | None:
        """Return the function that generates what an entry says; None if there are findings."""
        path: Path = ("spec", "generate", index)
        if bool(entry.expression.strip()) == (entry.template is not None):
            message = "an entry of `generate` has one of `expression` and `template`"
            self.findings.append(self._document.finding(message, path))
            return None
        if entry.template is not None:
            return self._template(entry.template, (*path, "template", "value"))
        program = self.program(entry.expression, (*path, "expression"))
        return None if program is None else _evaluating(program)

    def _template(self, template: GenerationTemplate, path: Path) -> Produce | None:
        text = template.value

        def placeholder(expression: str, offset: int) -> Program | None:
            before = text[:offset]
            start = before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
            return self.program(expression, path, start)

        try:
            return compile_template(
                text, interpolated=template.interpolate == "cel", compile_=placeholder
            )
        except TemplateError as error:
            self.findings.append(self._document.finding(str(error), path))
            return None

    def program(self, source: str, path: Path, start: tuple[int, int] = (1, 1)) -> Program | None:
        """Compile an expression that begins at a line and column of the text at a path."""
        try:
            program = compile_expression(source, self._environments.expressions, wants="any")
        except CelCompileError as error:
            self.findings += [self._finding(issue, path, start) for issue in error.issues]
            return None
        self.programs.append(program)
        return program

    def _finding(self, issue: Issue, path: Path, start: tuple[int, int]) -> Finding:
        line, column = start
        column = issue.column + (column - 1 if issue.line == 1 else 0)
        at = self._document.position_within(path, line + issue.line - 1, column)
        return self._document.finding(issue.message, path, hint=issue.hint, at=at)


def _evaluating(program: Program) -> Produce:
    def produce(
        variables: Mapping[str, object], budget: Budget, _generator: ObjectCollector
    ) -> None:
        program.evaluate(variables, budget)

    return produce

"""Compile Gatekeeper's ConstraintTemplates in CEL, each with one of its constraints.

A template is a policy without the requests that it matches: those, and its parameters, are in a
constraint. The two together are one policy here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Final

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from policyd.api.admission import FailurePolicy, Rule
from policyd.api.inject import Closed
from policyd.api.meta import Json, ObjectMeta
from policyd.api.native import NativeValidation
from policyd.api.policy import MatchConstraints, NamedExpression, ParamKind, ParamRef, PolicySpec
from policyd.dialects.gatekeeper.matching import predicate_of, read_match
from policyd.engine.compile.native import in_own_words, validation_of
from policyd.engine.compile.policies import Form, Layout, compile_policy
from policyd.engine.compile.schema import ForeignShape, schema_of
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.dialects import DEFAULT_DIALECT, Dialect, native_environments
from policyd.engine.objects.workloads import value_at
from policyd.patch.operations import Path

KIND: Final = "ConstraintTemplate"
ENGINE: Final = "K8sNativeValidation"
"""The engine name of sources in CEL."""
_SCHEMA: Final[Path] = ("spec", "validation", "openAPIV3Schema")
_SCHEMAS: Final = Draft202012Validator(Draft202012Validator.META_SCHEMA)

_EVERYTHING: Final = Rule(
    api_groups=("*",),
    api_versions=("*",),
    operations=("CREATE", "UPDATE", "DELETE", "CONNECT"),
    resources=("*", "*/*"),
)

_GIVEN: Final = (
    NamedExpression(name="anyObject", expression="object == null ? oldObject : object"),
    NamedExpression(
        name="params", expression="has(params.spec.parameters) ? params.spec.parameters : null"
    ),
)
"""The variables that every template has."""


class Source(Closed, frozen=True):
    """The source of a template, in CEL."""

    validations: tuple[NativeValidation, ...] = ()
    failure_policy: FailurePolicy = "Fail"
    match_condition: tuple[NamedExpression, ...] = ()
    match_conditions: tuple[NamedExpression, ...] = ()
    variables: tuple[NamedExpression, ...] = ()
    generate_vap: Annotated[bool | None, msgspec.Meta()] = msgspec.field(
        default=None, name="generateVAP"
    )


class Code(Closed, frozen=True):
    """A template in one of the languages there are."""

    engine: str
    source: dict[str, Any] = {}


class TemplateTarget(Closed, frozen=True):
    """The target of a template."""

    target: str = ""
    code: tuple[Code, ...] = ()
    rego: str = ""
    libs: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()


class TemplateSpec(Closed, frozen=True):
    """The kind of a template's constraints, and their source."""

    crd: dict[str, Any]
    targets: tuple[TemplateTarget, ...]


class ConstraintTemplate(Closed, frozen=True):
    """The kind of constraints that a template defines."""

    api_version: str
    kind: str
    metadata: ObjectMeta
    spec: TemplateSpec


@dataclass(frozen=True, slots=True)
class UsableTemplate:
    """A template that can be used: its name, the kind of its constraints, its source, and where."""

    name: str
    kind: str
    source: Source
    layout: Layout
    schema: Json
    """The schema of a constraint's parameters, as OpenAPI."""


@cache
def _shape() -> ForeignShape:
    return ForeignShape(schema_of(ConstraintTemplate))


class _SourceLayout(Layout):
    """The paths of a template's fields: the first variables are not in the document."""

    def at(self, name: str, *steps: str | int) -> Path:
        if name == "variables" and steps and isinstance(steps[0], int):
            steps = (max(steps[0] - len(_GIVEN), 0), *steps[1:])
        return super().at(name, *steps)


def is_template(value: Json) -> bool:
    """Tell whether a document is a ConstraintTemplate of any version."""
    return (
        isinstance(value, dict)
        and value.get("kind") == KIND
        and str(value.get("apiVersion", "")).startswith("templates.gatekeeper.sh/")
    )


def read_template(document: Document) -> tuple[UsableTemplate | None, list[Finding]]:
    """Read a template, or say why it cannot be used."""
    if not is_template(document.value):
        return None, [document.finding(f"no `{KIND}`", ("kind",))]
    value, findings = _shape().read(document)
    if value is None:
        return None, findings
    read = msgspec.convert(value, ConstraintTemplate)
    name = read.metadata.name
    place = _source_of(read.spec)
    if place is None:
        message = f"template `{name}` is written in Rego: policyd reads templates written in CEL"
        hint = f"give it a source for the engine `{ENGINE}`, or leave it to Gatekeeper"
        return None, [document.finding(message, ("spec", "targets", 0), hint=hint)]
    path, written = place
    try:
        source = msgspec.convert(written, Source)
    except msgspec.ValidationError as error:
        return None, [document.finding(str(error), path)]
    kind = value_at(read.spec.crd, ("spec", "names", "kind")) or ""
    schema = value_at(read.spec.crd, _SCHEMA) or {}
    wrong = best_match(_SCHEMAS.iter_errors(schema))
    if wrong is not None:
        at = ("spec", "crd", *_SCHEMA, *wrong.absolute_path)
        return None, [document.finding(f"not a schema: {wrong.message}", at)]
    conditions = "matchConditions" if source.match_conditions else "matchCondition"
    layout = _SourceLayout(path, {"matchConditions": (*path, conditions)})
    return UsableTemplate(name, str(kind), source, layout, schema), []


def _source_of(spec: TemplateSpec) -> tuple[Path, dict[str, Any]] | None:
    for target_index, target in enumerate(spec.targets):
        for index, code in enumerate(target.code):
            if code.engine == ENGINE:
                return ("spec", "targets", target_index, "code", index, "source"), code.source
    return None


def wrong_parameters(template: UsableTemplate, constraint: Json) -> Iterator[str]:
    """Yield the errors of a constraint's parameters by the schema of its template."""
    given = value_at(constraint, ("spec", "parameters"))
    for error in Draft202012Validator(template.schema).iter_errors({} if given is None else given):
        path = ".".join(("spec.parameters", *map(str, error.absolute_path)))
        yield f"{path}: {error.message}"


def constrain(
    template: UsableTemplate,
    document: Document,
    constraint: Document,
    dialect: Dialect = DEFAULT_DIALECT,
) -> CompiledPolicy | list[Finding]:
    """Compile a template with one of its constraints, or return the findings about either.

    Args:
        template: The template.
        document: Its document: findings point into it.
        constraint: The constraint.
        dialect: The version of Kubernetes the template is written for.
    """
    kind, name = constraint.value.get("kind"), value_at(constraint.value, ("metadata", "name"))
    if kind != template.kind:
        message = f"`{kind}` is not the kind of template `{template.name}`: `{template.kind}`"
        return [constraint.finding(message, ("kind",))]
    match, findings = read_match(constraint)
    if match is None:
        return findings
    compiled = compile_policy(
        in_own_words(ObjectMeta(name=str(name)), _spec(template, constraint.value)),
        document,
        Form(kind=KIND, environments=native_environments, layout=template.layout),
        dialect,
    )
    if not isinstance(compiled, CompiledPolicy):
        return compiled
    return replace(compiled, applies=predicate_of(match))


def _spec(template: UsableTemplate, constraint: Json) -> PolicySpec:
    source = template.source
    return PolicySpec(
        match_constraints=MatchConstraints(resource_rules=(_EVERYTHING,)),
        match_conditions=source.match_conditions or source.match_condition,
        variables=(*_GIVEN, *source.variables),
        validations=tuple(map(validation_of, source.validations)),
        failure_policy=source.failure_policy,
        param_kind=ParamKind(
            api_version=str(constraint.get("apiVersion", "")), kind=constraint["kind"]
        ),
        param_ref=ParamRef(
            name=str(value_at(constraint, ("metadata", "name")) or ""),
            parameter_not_found_action="Deny",
        ),
    )

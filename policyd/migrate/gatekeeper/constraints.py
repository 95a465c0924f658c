"""Convert constraints of Gatekeeper to policies: each with its template and its parameters.

A template in CEL is used as it is. For the templates of gatekeeper-library that are in Rego,
`library.yaml` has CEL that decides the same. No other Rego is read.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from policyd.api.admission import FailurePolicy
from policyd.api.data import packaged
from policyd.api.inject import Closed
from policyd.api.kinds import resources
from policyd.api.meta import Json
from policyd.api.native import NativeValidation
from policyd.api.policy import NamedExpression
from policyd.api.selectors import LabelSelector
from policyd.cel.syntax.literals import json_literal, text_literal
from policyd.dialects.gatekeeper.matching import ConstraintMatch, Kinds, read_match
from policyd.dialects.gatekeeper.templates import (
    ENGINE,
    is_template,
    read_template,
    wrong_parameters,
)
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_document
from policyd.engine.documents.reading import Document
from policyd.engine.objects.equivalents import plural_of
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError
from policyd.migrate.cel_values import wildcard
from policyd.patch.operations import Path

GROUP: Final = "constraints.gatekeeper.sh"
_LIBRARY: Final = "library.yaml"
_OPERATIONS: Final = ("CREATE", "UPDATE")
"""The operations that Gatekeeper's webhook is called for, unless a template names others."""
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_ENFORCEMENT: Final = {"deny": "Deny", "warn": "Warn", "dryrun": "Audit"}
_CONTAINERS: Final = {
    "all": ("containers", "initContainers", "ephemeralContainers"),
    "resourced": ("containers", "initContainers"),
}
_READS: Final = "write a ValidatingPolicy of Kyverno, which reads them by `resource.List`"
_MATCH_FIELDS: Final = {each.encode_name for each in msgspec.structs.fields(ConstraintMatch)}
_VARIABLE: Final = re.compile(r"\bvariables\.(\w+)")


class UnconvertibleConstraintError(PolicydError):
    """A constraint, or a template, has no counterpart.

    Attributes:
        path: The place in its document.
    """

    def __init__(self, reason: str, path: Path = (), *, hint: str | None = None) -> None:
        super().__init__(reason, hint=hint)
        self.path = path


class LibraryTemplate(Closed, frozen=True):
    """CEL for a template that is published in Rego."""

    validations: tuple[NativeValidation, ...]
    variables: tuple[NamedExpression, ...] = ()
    containers: str = ""
    """Which containers the variable `containers` has: `all` or `resourced`; empty for none."""
    unless: str = ""
    """A parameter with which the template reads other objects."""


class SourceTemplate(msgspec.Struct, frozen=True):
    """The CEL of a template, from where it is.

    Attributes:
        kind: The kind of its constraints.
        description: Of the template; empty if it has none.
        validations: The validations.
        variables: The variables of these.
        match_conditions: Conditions on requests.
        failure_policy: The answer where an expression fails.
        operations: The operations that it concerns.
        library: Its entry in the library; None if the template itself is in CEL.
    """

    kind: str
    validations: tuple[NativeValidation, ...]
    variables: tuple[NamedExpression, ...]
    match_conditions: tuple[NamedExpression, ...] = ()
    failure_policy: FailurePolicy = "Fail"
    operations: tuple[str, ...] = _OPERATIONS
    description: str = ""
    library: LibraryTemplate | None = None


@cache
def library() -> Mapping[str, LibraryTemplate]:
    """Return the CEL of gatekeeper-library's templates, by the kind of their constraints."""
    return msgspec.yaml.decode(packaged(__package__, _LIBRARY), type=dict[str, LibraryTemplate])


def is_constraint(value: Json) -> bool:
    """Tell whether a document is a constraint."""
    return isinstance(value, Mapping) and str(value.get("apiVersion", "")).startswith(f"{GROUP}/")


def source_of(document: Document) -> SourceTemplate:
    """Return the CEL of a template.

    Raises:
        UnconvertibleConstraintError: If it is in Rego, and not of the library; or is not valid.
    """
    assert is_template(document.value), "the caller looked"
    kind = str(value_at(document.value, ("spec", "crd", "spec", "names", "kind")) or "")
    annotations = value_at(document.value, ("metadata", "annotations"))
    written = annotations.get("description") if isinstance(annotations, Mapping) else None
    description = " ".join(str(written or "").split())
    template, findings = read_template(document)
    if template is not None:
        source = template.source
        target = value_at(document.value, template.layout.root[:3])
        return SourceTemplate(
            kind,
            source.validations,
            source.variables,
            match_conditions=source.match_conditions or source.match_condition,
            failure_policy=source.failure_policy,
            operations=tuple(target.get("operations") or _OPERATIONS),
            description=description,
        )
    targets = str(value_at(document.value, ("spec", "targets")))
    if ENGINE in targets:
        raise UnconvertibleConstraintError(findings[0].message)
    if kind in library():
        return of_library(kind, description)
    if "data.inventory" in targets:
        raise UnconvertibleConstraintError(
            f"the template `{kind}` reads other objects (`data.inventory`)",
            ("spec", "targets", 0),
            hint=_READS,
        )
    raise UnconvertibleConstraintError(
        f"the template `{kind}` is in Rego, and not of gatekeeper-library as policyd knows it",
        ("spec", "targets", 0),
        hint=f"give it a source for the engine `{ENGINE}`, or leave it to Gatekeeper",
    )


def of_library(kind: str, description: str = "") -> SourceTemplate:
    """Return the CEL of a template of the library, for constraints of this kind."""
    found = library()[kind]
    return SourceTemplate(
        kind, found.validations, found.variables, description=description, library=found
    )


def convert_constraint(
    source: SourceTemplate, constraint: Document, template: Document | None = None, *, name: str
) -> dict[str, Any]:
    """Convert a constraint to a policy of policyd.

    Args:
        source: The CEL of its template.
        constraint: The constraint.
        template: The template, whose schema the parameters must have; None if it is not known.
        name: The name of the policy.

    Raises:
        UnconvertibleConstraintError: If it has no counterpart, or is not valid.
    """
    value = constraint.value
    parameters = _parameters(source, value, template)
    match = _match(constraint)
    conditions = [*_conditions(match), *map(_named, source.match_conditions)]
    validations = [_validation(each) for each in source.validations]
    spec: dict[str, Any] = {
        **({"description": source.description} if source.description else {}),
        "matchConstraints": _constraints(match, source.operations),
        **({"matchConditions": conditions} if conditions else {}),
        "variables": _variables(source, parameters, [*conditions, *validations]),
        "validations": validations,
        "enforcement": _enforcement(value),
        "failurePolicy": source.failure_policy,
    }
    if not spec["variables"]:
        del spec["variables"]
    policy = {
        "apiVersion": "policyd.io/v1alpha1",
        "kind": "Policy",
        "metadata": {"name": name},
        "spec": spec,
    }
    for finding in load_document(Document(policy, "converted"), EVERY_FORMAT).findings:
        if finding.severity == "error":
            reason = f"the result is not a valid policy: {finding.message}"
            raise UnconvertibleConstraintError(reason)
    return policy


def _parameters(
    source: SourceTemplate, constraint: Json, template: Document | None
) -> Mapping[str, Json]:
    """Return the parameters of a constraint, which are those that its template wants."""
    if template is not None and (usable := read_template(template)[0]) is not None:
        for wrong in wrong_parameters(usable, constraint):
            raise UnconvertibleConstraintError(wrong, ("spec", "parameters"))
    given = value_at(constraint, ("spec", "parameters"))
    parameters = given if isinstance(given, Mapping) else {}
    if source.library is not None and parameters.get(source.library.unless):
        raise UnconvertibleConstraintError(
            f"`{source.library.unless}` makes the template read other objects",
            ("spec", "parameters", source.library.unless),
            hint=_READS,
        )
    return parameters


def _match(constraint: Document) -> ConstraintMatch:
    """Return the `match` block of a constraint, of which no field is left out."""
    match, findings = read_match(constraint)
    if match is None:
        raise UnconvertibleConstraintError(findings[0].message, ("spec", "match"))
    for name in value_at(constraint.value, ("spec", "match")) or ():
        if name not in _MATCH_FIELDS:
            reason = f"`match` has the field `{name}`, which Gatekeeper does not know"
            raise UnconvertibleConstraintError(reason, ("spec", "match", name))
    return match


def as_kyverno(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return a converted policy as a ValidatingPolicy of Kyverno."""
    spec = dict(policy["spec"])
    metadata = dict(policy["metadata"])
    if "description" in spec:
        metadata["annotations"] = {"policies.kyverno.io/description": spec.pop("description")}
    spec["validationActions"] = [spec.pop("enforcement")]
    spec["autogen"] = {"podControllers": {"controllers": []}}
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": metadata,
        "spec": spec,
    }


def _enforcement(constraint: Json) -> str:
    action = str(value_at(constraint, ("spec", "enforcementAction")) or "deny")
    if action not in _ENFORCEMENT:
        raise UnconvertibleConstraintError(
            f"the enforcement action `{action}` has no counterpart",
            ("spec", "enforcementAction"),
            hint="use `deny`, `warn` or `dryrun`",
        )
    return _ENFORCEMENT[action]


def _validation(validation: NativeValidation) -> dict[str, Any]:
    shown: dict[str, Any] = {"expression": validation.expression}
    if validation.message:
        shown["message"] = validation.message
    if validation.message_expression:
        shown["messageExpression"] = validation.message_expression
    if validation.reason:
        shown["reason"] = validation.reason
    return shown


def _named(given: NamedExpression) -> dict[str, Any]:
    return {"name": given.name, "expression": given.expression}


# Variables.


def _variables(
    source: SourceTemplate, parameters: Mapping[str, Json], users: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the variables that something uses, in their order."""
    given = [{"name": "params", "expression": _constant(parameters)}]
    if source.library is None:
        given.append({"name": "anyObject", "expression": "object"})
    elif source.library.containers:
        exempt = parameters.get("exemptImages") or ()
        text = _containers(source.library.containers, [str(image) for image in exempt])
        given.append({"name": "containers", "expression": text})
    given += map(_named, source.variables)
    used = {name for user in users for text in user.values() for name in _VARIABLE.findall(text)}
    kept = []
    for variable in reversed(given):
        if variable["name"] in used:
            kept.append(variable)
            used |= set(_VARIABLE.findall(variable["expression"]))
    return kept[::-1]


def _constant(parameters: Mapping[str, Json]) -> str:
    text = json_literal(dict(parameters))
    one_type = len({type(each) for each in parameters.values()}) < 2
    return f"dyn({text})" if one_type else text


def _containers(which: str, exempt: list[str]) -> str:
    text = " + ".join(f"object.?spec.?{name}.orValue([])" for name in _CONTAINERS[which])
    if not exempt:
        return text
    ways = [
        f"c.image.startsWith({text_literal(image.removesuffix('*'))})"
        if image.endswith("*")
        else f"c.image == {text_literal(image)}"
        for image in exempt
    ]
    return f"({text}).filter(c, !({' || '.join(ways)}))"


# Matching.


def _constraints(match: ConstraintMatch, operations: tuple[str, ...]) -> dict[str, Any]:
    rules = []
    for group, plurals in _by_group(match.kinds or (Kinds(),)).items():
        rule: dict[str, Any] = {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": list(operations),
            "resources": sorted(plurals),
        }
        if match.scope != "*":
            rule["scope"] = match.scope
        rules.append(rule)
    found: dict[str, Any] = {"resourceRules": rules}
    selector = _written(match.namespace_selector)
    names = [*_name_requirement("In", match.namespaces)]
    names += _name_requirement("NotIn", match.excluded_namespaces)
    if names:
        selector["matchExpressions"] = [*selector.get("matchExpressions", ()), *names]
    if selector:
        found["namespaceSelector"] = selector
    if match.label_selector is not None:
        found["objectSelector"] = _written(match.label_selector)
    return found


def _written(selector: LabelSelector | None) -> dict[str, Any]:
    """Return a selector as JSON, without fields that are empty."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(selector or {}))
    return {key: given for key, given in found.items() if given}


def _by_group(kinds: Iterable[Kinds]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in kinds:
        groups = each.api_groups or ("*",)
        for kind in each.kinds or ("*",):
            for group, plural in _plurals(groups, kind):
                found.setdefault(group, set()).add(plural)
    return found


def _plurals(groups: tuple[str, ...], kind: str) -> Iterator[tuple[str, str]]:
    """Yield the groups, of some, that have a kind, each with its plural; all for a foreign kind."""
    if kind == "*":
        yield from ((group, "*") for group in groups)
        return
    known = [
        (group, r.plural)
        for r in resources()
        for group in groups
        if r.kind == kind and group in ("*", r.group)
    ]
    yield from known or ((group, plural_of(kind)) for group in groups)


def _name_requirement(operator: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield a requirement for namespaces that are named without patterns."""
    if names and not any("*" in name for name in names):
        yield {"key": _NAMESPACE_NAME, "operator": operator, "values": list(names)}


def _conditions(match: ConstraintMatch) -> Iterator[dict[str, Any]]:
    """Yield what rules and selectors cannot say."""
    if match.source == "Generated":
        raise UnconvertibleConstraintError(
            "`source: Generated` matches objects that Gatekeeper expands",
            ("spec", "match", "source"),
            hint="match the objects themselves",
        )
    if any("*" in name for name in match.namespaces):
        yield {
            "name": "namespaces",
            "expression": f"!has(request.namespace) || {_any_of(match.namespaces)}",
        }
    if any("*" in name for name in match.excluded_namespaces):
        text = _any_of(match.excluded_namespaces)
        negated = f"!{text}" if text.startswith("(") or ".startsWith" in text else f"!({text})"
        yield {"name": "not-excluded", "expression": f"!has(request.namespace) || {negated}"}
    if match.name:
        names = (f"object.metadata.?{each}.orValue('')" for each in ("name", "generateName"))
        text = " || ".join(wildcard(each, _checked(match.name)) for each in names)
        yield {"name": "name", "expression": text}


def _any_of(patterns: Iterable[str]) -> str:
    ways = [wildcard("request.namespace", _checked(pattern)) for pattern in patterns]
    return ways[0] if len(ways) == 1 else f"({' || '.join(ways)})"


def _checked(pattern: str) -> str:
    """Return a pattern with `*` at its ends alone, as Gatekeeper has them.

    Raises:
        UnconvertibleConstraintError: If it has one in the middle.
    """
    if "*" in pattern.strip("*") or "?" in pattern:
        reason = f"`{pattern}` matches no name: `*` may only be at the beginning and the end"
        raise UnconvertibleConstraintError(reason, ("spec", "match"))
    return pattern

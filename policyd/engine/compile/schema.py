"""Validate documents against a JSON schema that is derived from the Structs.

Editors get it from `policyd schema`; the loader checks every document against it and says all that
is wrong with its shape at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any, Final

import jsonschema
import msgspec

from policyd.api.meta import Json
from policyd.api.names import LONGEST_SUBDOMAIN, SUBDOMAIN
from policyd.api.policy import Policy
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.errors import did_you_mean
from policyd.patch.merge_patch import without_nulls
from policyd.patch.operations import Path

DIALECT = "https://json-schema.org/draft/2020-12/schema"

MOST_FINDINGS: Final = 200
"""The number of findings for the shape of one document, at most."""

_LONGEST_SHOWN: Final = 100
"""Characters of a value that a finding quotes."""

Schema = dict[str, Any]
_Error = Any
"""An error of the validator, whose published annotations call every attribute possibly unset."""

WORK = ("validations", "inject", "mutations", "auditAnnotations")
"""Fields of which a policy has at least one: without, it would do nothing."""

_CLOSED = ("Rule", "LabelSelector", "Requirement")
"""Structs that skip unknown fields on the wire, and must not when a person writes them."""

_NAME = f"^{SUBDOMAIN}$"
_IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]*$"
_LABEL_NAME = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"

_SHAPES = {r"^(\d{4}-\d{2}-\d{2})?$": "must be a date, such as 2027-01-31"}
"""The meanings of patterns, for messages."""

_ALPHABETS = {
    _NAME: "lower-case letters, digits, `-` and `.`",
    _IDENTIFIER: "letters, digits and `_`",
    _LABEL_NAME: "letters, digits, `-`, `_` and `.`",
}

_TYPES = {
    "object": "an object",
    "array": "a list",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


class DocumentShape:
    """A JSON schema that explains its errors in the user's words."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._validator = jsonschema.Draft202012Validator(schema)

    def check(self, document: Document) -> list[Finding]:
        """Say everything that is wrong with the shape of a document, in the order of the text."""
        errors = self._validator.iter_errors(document.value)
        return _in_order(_explained(document, errors))


class ForeignShape(DocumentShape):
    """The shape of a kind that is not policyd's own: an unknown field is a warning."""

    def read(self, document: Document) -> tuple[Json | None, list[Finding]]:
        """Return the readable part of a document, None if it is unusable, and findings.

        As the API server does, null is taken for a field that is not there, and a field that is
        not known is dropped; the latter is worth a warning.
        """
        document = replace(document, value=without_nulls(document.value))
        errors = list(islice(self._validator.iter_errors(document.value), MOST_FINDINGS + 1))
        findings = _explained(document, errors)
        unknown = [error for error in errors if error.validator == "additionalProperties"]
        if len(unknown) < len(errors) or len(findings) > MOST_FINDINGS:
            return None, _in_order(findings)
        value = document.value
        for error in unknown:
            for name in _unknown(error):
                value = _without(value, (*error.absolute_path, name))
        doubtful = [replace(finding, severity="warning") for finding in findings]
        return value, _in_order(doubtful)


def _explained(document: Document, errors: Iterable[_Error]) -> list[Finding]:
    """Explain the errors, a limited number of them: a document may be wrong everywhere."""
    found = (finding for error in errors for finding in _explain(document, error))
    findings = list(islice(found, MOST_FINDINGS + 1))
    if len(findings) > MOST_FINDINGS:
        findings[-1] = document.finding(f"more than {MOST_FINDINGS} errors")
    return findings


def _in_order(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (finding.line, finding.column, finding.field))


def _without(value: Json, path: Path) -> Json:
    step, *rest = path
    if isinstance(value, list):
        return [_without(v, tuple(rest)) if i == step else v for i, v in enumerate(value)]
    if not rest:
        return {key: part for key, part in value.items() if key != step}
    return {k: _without(part, tuple(rest)) if k == step else part for k, part in value.items()}


@cache
def policy_shape() -> DocumentShape:
    """Return the shape of a Policy."""
    schema = schema_of(Policy)
    definitions = schema["$defs"]
    definitions["ObjectMeta"]["required"] = ["name"]
    definitions["ObjectMeta"]["properties"]["name"] |= {
        "pattern": _NAME,
        "maxLength": LONGEST_SUBDOMAIN,
    }
    definitions["InjectedTopology"] |= {"minProperties": 1, "maxProperties": 1}
    for name in ("Expression", "Validation", "NamedExpression"):
        definitions[name]["properties"]["expression"]["minLength"] = 1
    _complete_rule(definitions["Rule"])
    _complete_spec(definitions["PolicySpec"])
    return DocumentShape(schema)


def schema_of(struct: type[msgspec.Struct]) -> Schema:
    """Derive the JSON schema of a Struct that users write: closed, and with its dialect."""
    schema = msgspec.json.schema(struct)
    for name, definition in schema["$defs"].items():
        if name in _CLOSED:
            definition["additionalProperties"] = False
        definition["description"] = " ".join(definition.get("description", "").split())
        for field in definition.get("properties", {}).values():
            _drop_null(field)
    return {"$schema": DIALECT, "title": struct.__name__, **schema}


def _drop_null(field: Schema) -> None:
    """Leave out null where it only means that the field is absent."""
    if field.get("default", ...) is not None or "anyOf" not in field:
        return
    kept = [choice for choice in field.pop("anyOf") if choice != {"type": "null"}]
    del field["default"]
    field.update(kept[0] if len(kept) == 1 else {"anyOf": kept})


def _complete_rule(rule: Schema) -> None:
    fields = rule["properties"]
    fields["operations"]["items"]["enum"] = ["CREATE", "UPDATE", "DELETE", "CONNECT", "*"]
    rule["required"] = ["apiGroups", "apiVersions", "operations", "resources"]
    for name in rule["required"]:
        fields[name]["minItems"] = 1


def _complete_spec(spec: Schema) -> None:
    spec["anyOf"] = [{"required": [field]} for field in WORK]
    fields = spec["properties"]
    fields["variables"]["items"] |= {"properties": {"name": {"pattern": _IDENTIFIER}}}
    fields["matchConditions"]["items"] |= {"properties": {"name": {"pattern": _LABEL_NAME}}}


def _explain(document: Document, error: _Error) -> Iterator[Finding]:
    """Turn one error of the validator into findings in the user's words."""
    path: Path = tuple(error.absolute_path)
    match error.validator:
        case "additionalProperties":
            for name in _unknown(error):
                hint = did_you_mean(name, _fields(error)) or _known_fields(error)
                message = f"unknown field `{name}`"
                yield document.finding(message, (*path, name), hint=hint, of_key=True)
        case "required":
            yield from _missing(document, path, error)
        case "anyOf":
            yield from _no_choice(document, path, error)
        case "enum":
            yield _not_listed(document, path, error)
        case _:
            yield document.finding(_sentence(path, error), path)


def _fields(error: _Error) -> dict[str, Any]:
    fields: dict[str, Any] = error.schema.get("properties", {})
    return fields


def _unknown(error: _Error) -> list[str]:
    return [name for name in error.instance if name not in _fields(error)]


def _known_fields(error: _Error) -> str:
    return f"known fields: {', '.join(sorted(_fields(error)))}"


def _missing(document: Document, path: Path, error: _Error) -> Iterator[Finding]:
    """Name the field that is missing, unless it is only misspelled."""
    name = error.message.split("'")[1]
    if not any(did_you_mean(extra, [name]) for extra in _unknown(error)):
        yield document.finding(f"field `{name}` is missing", path, of_key=True)


def _no_choice(document: Document, path: Path, error: _Error) -> Iterator[Finding]:
    """Explain by the alternative that has the type of the value, if only one has."""
    if "spec" in path[-1:] and all(set(choice) == {"required"} for choice in error.validator_value):
        yield document.finding(f"a policy needs {_either(WORK)}", path, of_key=True)
        return
    branches: dict[int, list[_Error]] = {}
    for inner in error.context or ():
        branches.setdefault(int(inner.schema_path[0]), []).append(inner)
    fitting = [errors for errors in branches.values() if not _is_other_type(errors, error)]
    if len(fitting) == 1:
        for inner in fitting[0]:
            yield from _explain(document, inner)
        return
    wanted = [_wanted(branch) for branch in error.validator_value]
    message = f"`{_last(path)}` must be {' or '.join(wanted)}, not {_named(error.instance)}"
    yield document.finding(message, path)


def _is_other_type(errors: list[_Error], whole: _Error) -> bool:
    """Tell whether an alternative is for another type of value altogether."""
    at = list(whole.absolute_path)
    return any(
        list(error.absolute_path) == at
        and (
            error.validator == "type"
            or (error.validator == "enum" and isinstance(whole.instance, dict))
        )
        for error in errors
    )


def _wanted(branch: Schema) -> str:
    if "$ref" in branch:
        return "`{expression: …}`" if branch["$ref"].endswith("/Expression") else "an object"
    if "enum" in branch:
        return "one of " + _listed(branch["enum"])
    return _TYPES.get(branch.get("type", ""), "something else")


def _not_listed(document: Document, path: Path, error: _Error) -> Finding:
    known = [str(choice) for choice in error.validator_value if choice != ""]
    shown = str(error.instance)
    hint = did_you_mean(shown, known)
    message = (
        f"`{shown[:_LONGEST_SHOWN]}` is not {'one of ' if len(known) > 1 else ''}{_listed(known)}"
    )
    return document.finding(message, path, hint=hint)


def _listed(choices: list[str]) -> str:
    return ", ".join(f"`{choice}`" for choice in choices if choice != "")


def _either(names: tuple[str, ...]) -> str:
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} or {last}"


def _sentence(path: Path, error: _Error) -> str:
    """Return the message of an error that only needs the limit that was exceeded."""
    name, limit = f"`{_last(path)}`", error.validator_value
    match error.validator:
        case "type":
            what = f"must be {_TYPES[limit]}, not {_named(error.instance)}"
        case "minItems" | "minLength" | "minProperties":
            what = "is empty"
        case "maxProperties":
            what = f"takes only one of {_listed(list(_fields(error)))}"
        case "maxItems" | "maxLength":
            what = f"is longer than {limit}"
        case "minimum" | "maximum":
            what = f"is {'less' if error.validator == 'minimum' else 'more'} than {limit}"
        case "pattern":
            what = _shape(limit, error.instance)
        case _:
            what = f"does not fit: {error.message[:_LONGEST_SHOWN]}"
    return f"{name} {what}"


def _shape(pattern: str, given: Json) -> str:
    if pattern in _ALPHABETS:
        return f"may have only {_ALPHABETS[pattern]}"
    shown = f"is `{str(given)[:_LONGEST_SHOWN]}`"
    return f"{shown}, and {_SHAPES.get(pattern, f'must match `{pattern}`')}"


def _last(path: Path) -> str:
    """Name the end of a path: its last field, with the index in it."""
    names = [index for index, step in enumerate(path) if isinstance(step, str)]
    if not names:
        return "the document"
    return "".join(f"[{s}]" if isinstance(s, int) else s for s in path[names[-1] :])


def _named(value: object) -> str:
    """Name the type of a value as users know it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower().replace("none", "null")
    return _TYPE_NAMES[type(value)]


_TYPE_NAMES: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    **dict.fromkeys((int, float), "a number"),
}

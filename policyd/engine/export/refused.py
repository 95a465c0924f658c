"""Find what the API server rejects in its own policies and bindings.

The server says so only when they are created; each of these was asked of one.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from policyd.api.names import is_label_key, is_subdomain
from policyd.cel.types import DYN, NULL, STRING
from policyd.engine.compile.native import VERSIONS, is_binding, is_native
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import MUTATING, NATIVE, VALIDATING, CompiledPolicy
from policyd.engine.objects.workloads import value_at
from policyd.patch.operations import Path

_IDENTIFIER: Final = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED: Final = re.compile(
    "as|break|const|continue|else|false|for|function|if|import|in|let|loop|namespace|null|package"
    "|return|true|var|void|while"
)
_KEYS: Final = "letters, digits, `-`, `_` and `.`, at most 63, with a prefix if need be"

_Wrong = tuple[str, Path, str | None]


def refused(document: Document) -> Iterator[Finding]:
    """Yield the errors for which the API server rejects one of its own policies or bindings."""
    value = document.value
    if is_native(value):
        wrong = _policy(value)
    elif is_binding(value) and value["kind"] != "PolicyBinding":
        wrong = _binding(value)
    else:
        return
    for message, path, hint in wrong:
        finding = document.finding(f"the API server refuses it: {message}", path, hint=hint)
        yield replace(finding, rule="refused")


def refused_annotations(policy: CompiledPolicy) -> Iterator[Finding]:
    """Yield the audit annotations whose values are not strings, which the API server refuses."""
    for key, program in policy.annotations if policy.kind in NATIVE else ():
        if program.result_type not in (STRING, NULL):
            message = f"the API server refuses it: annotation `{key}` is {program.result_type}"
            hint = "an annotation is a string, or null to omit it"
            if program.result_type == DYN:
                hint = "its type is unknown; convert it to a string, as in `string(x)`"
            yield Finding(source=policy.place, message=message, hint=hint, rule="refused")


def _policy(value: Any) -> Iterator[_Wrong]:  # noqa: ANN401 - any policy
    name, version = str(value_at(value, ("metadata", "name")) or ""), value["apiVersion"]
    if version.rpartition("/")[2] not in VERSIONS:
        yield f"`{version}` not found", ("apiVersion",), f"there are {', '.join(VERSIONS)}"
    if not is_subdomain(name):
        yield f"`{name}` is not a valid object name", ("metadata", "name"), None
    constraints = value_at(value, ("spec", "matchConstraints"))
    if isinstance(constraints, dict) and not constraints.get("resourceRules"):
        yield "field `resourceRules` is missing", ("spec", "matchConstraints"), None
    yield from _rules(value, "matchConstraints")
    yield from _each(value, "matchConditions", _condition)
    yield from _each(value, "variables", _variable)
    if value["kind"] == VALIDATING:
        yield from _each(value, "validations", _validation)
        yield from _annotations(value, name)
        if not (_items(value, "validations") or _items(value, "auditAnnotations")):
            yield "it has neither `validations` nor `auditAnnotations`", ("spec",), None
    if value["kind"] == MUTATING:
        yield from _mutating(value)


def _rules(value: Any, field: str) -> Iterator[_Wrong]:  # noqa: ANN401 - any policy or binding
    """Yield the errors of the rules of a policy's constraints, or of a binding's resources."""
    for name in ("resourceRules", "excludeResourceRules"):
        rules = value_at(value, ("spec", field, name))
        for index, rule in enumerate(rules if isinstance(rules, list) else ()):
            for message, part in _rule(rule) if isinstance(rule, dict) else ():
                yield message, ("spec", field, name, index, part), None


def _rule(rule: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for part in ("operations", "apiGroups", "apiVersions", "resources"):
        texts = rule.get(part)
        if not texts:
            yield f"field `{part}` is missing", part
        elif isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            if part != "apiGroups" and "" in texts:
                yield f"an empty text is none of `{part}`", part
            elif part == "resources":
                yield from ((message, part) for message in _resources(texts))
            elif "*" in texts and len(texts) > 1:
                yield f"`*` includes all other `{part}`", part


def _resources(names: list[str]) -> Iterator[str]:
    """Yield the resources that others of the same rule include, in the order of the server."""
    if "*/*" in names and len(names) > 1:
        yield "`*/*` includes all other `resources`"
    plain = [name for name in names if "/" not in name]
    if "*" in plain and plain[-1] != "*":  # the server looks at the last one alone
        yield "`*` includes all other `resources` without subresources"
    whole: set[str] = set()
    for name in names:
        resource, slash, sub = name.partition("/")
        if slash and name != "*/*":
            for wider in {f"{resource}/*", f"*/{sub}"} & whole:
                yield f"`{wider}` includes `{name}`"
        if slash and "*" in (resource, sub):
            whole.add(name)


def _items(value: Any, field: str) -> list[Any]:  # noqa: ANN401 - any policy
    found = value_at(value, ("spec", field))
    return found if isinstance(found, list) else []


def _each(
    value: Any,  # noqa: ANN401 - any policy
    field: str,
    wrong: Callable[[Any], Iterable[tuple[str, str, str | None]]],
) -> Iterator[_Wrong]:
    for index, item in enumerate(_items(value, field)):
        for message, name, hint in wrong(item) if isinstance(item, dict) else ():
            yield message, ("spec", field, index, name), hint


def _condition(item: dict[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    name = str(item.get("name", ""))
    if not is_label_key(name):
        yield f"`{name}` is not a valid match condition name", "name", _KEYS


def _variable(item: dict[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    name = str(item.get("name", ""))
    if not _IDENTIFIER.fullmatch(name) or _RESERVED.fullmatch(name):
        yield f"`{name}` is not a valid variable name", "name", "letters, digits and `_`"


def _validation(item: dict[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    message = item.get("message")
    if isinstance(message, str) and message and not message.strip():
        yield "`message` is empty", "message", None
    if isinstance(message, str) and re.search("[\n\r]", message.strip()):
        yield "`message` has several lines", "message", "write it in one line"
    if item.get("reason") == "Unauthorized":
        yield "`Unauthorized` is not a valid reason", "reason", "use `Forbidden`"


def _annotations(value: Any, policy: str) -> Iterator[_Wrong]:  # noqa: ANN401 - any policy
    keys = [str(value_at(item, ("key",)) or "") for item in _items(value, "auditAnnotations")]
    for index, key in enumerate(keys):
        at = ("spec", "auditAnnotations", index, "key")
        if not is_label_key(f"{policy}/{key}"):
            yield f"`{key}` is not a valid annotation key", at, _KEYS
        if keys.index(key) != index:
            yield f"`{key}` is given twice", at, None


def _mutating(value: Any) -> Iterator[_Wrong]:  # noqa: ANN401 - any policy
    if not value_at(value, ("spec", "reinvocationPolicy")):
        yield "field `reinvocationPolicy` is missing", ("spec",), "set it to `Never` or `IfNeeded`"
    rules = value_at(value, ("spec", "matchConstraints", "resourceRules"))
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        operations = value_at(rule, ("operations",))
        if isinstance(operations, list) and "DELETE" in operations:
            place = ("spec", "matchConstraints", "resourceRules", index, "operations")
            yield "a `DELETE` request cannot be mutated", place, None
    for index, item in enumerate(_items(value, "mutations")):
        if isinstance(item, dict) and item.keys() >= {"applyConfiguration", "jsonPatch"}:
            at = ("spec", "mutations", index)
            yield "a mutation has one of `applyConfiguration` and `jsonPatch`", at, None


def _binding(value: Any) -> Iterator[_Wrong]:  # noqa: ANN401 - any binding
    actions = value_at(value, ("spec", "validationActions"))
    counted = Counter(map(str, actions if isinstance(actions, list) else ()))
    at = ("spec", "validationActions")
    if counted["Deny"] and counted["Warn"]:
        yield "`Deny` and `Warn` report the same message twice", at, "leave one of them out"
    for action in (action for action, times in counted.items() if times > 1):
        yield f"`{action}` is given twice", at, None
    yield from _rules(value, "matchResources")
    ref = value_at(value, ("spec", "paramRef"))
    if isinstance(ref, dict) and not ref.get("parameterNotFoundAction"):
        path = ("spec", "paramRef")
        hint = "set it to `Allow` or `Deny`"
        yield "field `parameterNotFoundAction` is missing", path, hint

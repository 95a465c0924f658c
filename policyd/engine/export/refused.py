"""Find what the API server rejects in its own policies and bindings.

The server says so only when they are created; each of these was asked of one. Of Kyverno's
policies, the rules are checked: those of all kinds but one are copied into webhooks, which the
server takes as a whole or not at all.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Final, get_args

from policyd.api.admission import Operation
from policyd.api.names import is_label_1035, is_label_key, is_label_value, is_subdomain
from policyd.cel.types import DYN, NULL, STRING
from policyd.engine.compile.native import VERSIONS, is_binding, is_native
from policyd.engine.documents.findings import Finding, field_path
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import MUTATING, NATIVE, VALIDATING, CompiledPolicy
from policyd.engine.objects.workloads import value_at
from policyd.patch.operations import Path

_IDENTIFIER: Final = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED: Final = re.compile(
    "as|break|const|continue|else|false|for|function|if|import|in|let|loop|namespace|null|package"
    "|return|true|var|void|while"
)
_OPERATIONS: Final = ("*", *get_args(Operation))
_KYVERNO: Final = "policies.kyverno.io/"
_OWN: Final = "policyd.io/"
_ON_SCHEDULE: Final = ("DeletingPolicy", "NamespacedDeletingPolicy")
"""Kyverno's kinds whose rules are for objects, and in no webhook."""
_KEYS: Final = "letters, digits, `-`, `_` and `.`, at most 63, with a prefix if need be"

_Wrong = tuple[str, Path, str | None]


def refused(document: Document) -> Iterator[Finding]:
    """Yield the errors for which the API server rejects a policy, a binding, or Kyverno's rules."""
    for message, path, hint in _refused(document.value):
        yield replace(document.finding(message, path, hint=hint), rule="refused")


def _refused(value: Any) -> Iterator[_Wrong]:  # noqa: ANN401 - any document
    own, kyverno = _is_of(value, _OWN), _is_of(value, _KYVERNO)
    wrong: Iterator[_Wrong] = iter(())
    if is_native(value):
        wrong = _policy(value)
    elif is_binding(value) and not own:
        wrong = _binding(value)
    elif not (own or kyverno):
        return
    for message, path, hint in chain(_metadata(value, named=not own), wrong):
        yield f"the API server refuses it: {message}", path, hint
    if kyverno:
        yield from _of_kyverno(value)


def _is_of(value: Any, group: str) -> bool:  # noqa: ANN401 - any document
    return isinstance(value, dict) and str(value.get("apiVersion")).startswith(group)


def _of_kyverno(value: dict[str, Any]) -> Iterator[_Wrong]:
    """Yield the errors of the rules of a policy of Kyverno's."""
    if value.get("kind") in _ON_SCHEDULE:
        yield from _without_objects(value)
        return
    for message, path, hint in _rules(value, "matchConstraints", optional="operations"):
        yield f"the API server takes no such rule: {message}", path, hint


def _without_objects(value: Any) -> Iterator[_Wrong]:  # noqa: ANN401 - any policy
    """Yield the parts without which a rule for objects concerns none."""
    rules = value_at(value, ("spec", "matchConstraints", "resourceRules"))
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        for part in ("apiGroups", "apiVersions", "resources"):
            if isinstance(rule, dict) and not rule.get(part):
                path = ("spec", "matchConstraints", "resourceRules", index, part)
                yield f"the rule concerns no objects: field `{part}` is missing", path, None


def refused_annotations(policy: CompiledPolicy) -> Iterator[Finding]:
    """Yield the audit annotations whose values are not strings, which the API server refuses."""
    for index, (key, program) in enumerate(policy.annotations if policy.kind in NATIVE else ()):
        if program.result_type not in (STRING, NULL):
            message = f"the API server refuses it: annotation `{key}` is {program.result_type}"
            hint = "an annotation is a string, or null to omit it"
            if program.result_type == DYN:
                hint = "its type is unknown; convert it to a string, as in `string(x)`"
            field = field_path(("spec", "auditAnnotations", index, "valueExpression"))
            yield Finding(
                source=policy.place, message=message, field=field, hint=hint, rule="refused"
            )


def _metadata(
    value: Any,  # noqa: ANN401 - any policy or binding
    *,
    named: bool,
) -> Iterator[_Wrong]:
    """Yield the errors of metadata, and of the name if it is not checked elsewhere."""
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        return
    generated = metadata.get("generateName")
    name = str(metadata.get("name") or (generated and f"{generated}a") or "")
    if named and not is_subdomain(name):
        yield f"`{name}` is not a valid object name", ("metadata", "name"), None
    yield from _labels(metadata.get("labels"), ("metadata", "labels"))
    yield from _finalizers(metadata.get("finalizers"))
    annotations = metadata.get("annotations")
    for key in map(str, annotations if isinstance(annotations, dict) else ()):
        if not is_label_key(key.lower()):  # the server takes a prefix in capitals
            path = ("metadata", "annotations", key)
            yield f"`{key}` is not a valid key of an annotation", path, _KEYS


def _labels(labels: Any, path: Path) -> Iterator[_Wrong]:  # noqa: ANN401 - any value
    for key, value in labels.items() if isinstance(labels, dict) else ():
        if not is_label_key(str(key)):
            yield f"`{key}` is not a valid key of a label", (*path, key), _KEYS
        if isinstance(value, str) and not is_label_value(value):
            yield f"`{value}` is not a valid value of a label", (*path, key), None


def _finalizers(names: Any) -> Iterator[_Wrong]:  # noqa: ANN401 - any value
    given = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    path = ("metadata", "finalizers")
    for name in given:
        if not is_label_key(name):
            yield f"`{name}` is not a valid name of a finalizer", path, _KEYS
    if {"orphan", "foregroundDeletion"} <= {*given}:
        yield "`orphan` and `foregroundDeletion` exclude each other", path, "leave one of them out"


def _param_kind(given: Any) -> Iterator[_Wrong]:  # noqa: ANN401 - any value
    kind, version = value_at(given, ("kind",)), value_at(given, ("apiVersion",))
    if isinstance(kind, str) and not is_label_1035(kind.lower()):
        yield f"`{kind}` is not a valid kind", ("spec", "paramKind", "kind"), None
    if isinstance(version, str):
        group, _, version_there = version.rpartition("/")
        if not (is_label_1035(version_there) and (not group or is_subdomain(group))):
            path = ("spec", "paramKind", "apiVersion")
            yield f"`{version}` is not a valid API version", path, "`v1`, or `group/v1`"


def _is_in_path(name: str) -> bool:
    """Tell whether a name can be a part of a URL's path, as names of params and objects are."""
    return name not in {".", ".."} and not {"/", "%"} & {*name}


def _policy(value: Any) -> Iterator[_Wrong]:  # noqa: ANN401 - any policy
    name, version = str(value_at(value, ("metadata", "name")) or ""), value["apiVersion"]
    if version.rpartition("/")[2] not in VERSIONS:
        yield f"`{version}` not found", ("apiVersion",), f"there are {', '.join(VERSIONS)}"
    constraints = value_at(value, ("spec", "matchConstraints"))
    if isinstance(constraints, dict) and not constraints.get("resourceRules"):
        yield "field `resourceRules` is missing", ("spec", "matchConstraints"), None
    yield from _rules(value, "matchConstraints")
    yield from _param_kind(value_at(value, ("spec", "paramKind")))
    yield from _each(value, "matchConditions", _condition)
    yield from _each(value, "variables", _variable)
    if value["kind"] == VALIDATING:
        yield from _each(value, "validations", _validation)
        yield from _annotations(value, name)
        if not (_items(value, "validations") or _items(value, "auditAnnotations")):
            yield "it has neither `validations` nor `auditAnnotations`", ("spec",), None
    if value["kind"] == MUTATING:
        yield from _mutating(value)


def _rules(
    value: Any,  # noqa: ANN401 - any policy or binding
    field: str,
    *,
    optional: str = "",
) -> Iterator[_Wrong]:
    """Yield the errors of the rules of a policy's constraints, or of a binding's resources.

    Args:
        value: The policy or binding.
        field: The field of its specification that has the rules.
        optional: What a rule may leave out.
    """
    for name in ("resourceRules", "excludeResourceRules"):
        rules = value_at(value, ("spec", field, name))
        for index, rule in enumerate(rules if isinstance(rules, list) else ()):
            for message, part in _rule(rule, optional) if isinstance(rule, dict) else ():
                yield message, ("spec", field, name, index, part), None


def _rule(rule: dict[str, Any], optional: str) -> Iterator[tuple[str, str]]:
    for part in ("operations", "apiGroups", "apiVersions", "resources"):
        texts = rule.get(part)
        if not texts and part != optional:
            yield f"field `{part}` is missing", part
        if texts and isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            yield from _texts(texts, part)
    yield from _names(rule.get("resourceNames"), "resourceNames")


def _names(names: Any, part: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any value
    for name, times in Counter(map(str, names if isinstance(names, list) else ())).items():
        if times > 1:
            yield f"`{name}` is given twice", part
        if not _is_in_path(name):
            yield f"`{name}` is not a valid object name", part


def _texts(texts: list[str], part: str) -> Iterator[tuple[str, str]]:
    if part != "apiGroups" and "" in texts:
        yield f"an empty text is none of `{part}`", part
    elif part == "resources":
        yield from ((message, part) for message in _resources(texts))
    elif "*" in texts and len(texts) > 1:
        yield f"`*` includes all other `{part}`", part
    elif part == "operations":
        known = ", ".join(f"`{name}`" for name in _OPERATIONS)
        for unknown in dict.fromkeys(text for text in texts if text not in _OPERATIONS):
            yield f"`{unknown}` is none of the operations {known}", part


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
    if value_at(value, ("spec", "mutations")) == []:
        yield "field `mutations` is empty", ("spec", "mutations"), None
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
    policy = value_at(value, ("spec", "policyName"))
    if isinstance(policy, str) and not is_subdomain(policy):
        yield f"`{policy}` is not a valid object name", ("spec", "policyName"), None
    yield from _rules(value, "matchResources")
    ref = value_at(value, ("spec", "paramRef"))
    if isinstance(ref, dict) and not ref.get("parameterNotFoundAction"):
        path = ("spec", "paramRef")
        hint = "set it to `Allow` or `Deny`"
        yield "field `parameterNotFoundAction` is missing", path, hint
    name = value_at(ref, ("name",))
    if isinstance(name, str) and not _is_in_path(name):
        yield f"`{name}` is not a valid object name", ("spec", "paramRef", "name"), None
    selected = ("spec", "paramRef", "selector", "matchLabels")
    yield from _labels(value_at(value, selected), selected)

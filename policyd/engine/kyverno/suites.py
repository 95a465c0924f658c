"""Kyverno's test suites (`kyverno-test.yaml`), run strictly: every row needs its resource.

A row names a policy, resources, and what must come of them. Unlike in Kyverno's own command, a row
whose resource is not there fails, and numbers keep their size.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Literal, get_args

import msgspec

from policyd.api.admission import Operation, UserInfo
from policyd.api.inject import Closed
from policyd.api.meta import Json
from policyd.engine.bindings import NEEDS_BINDING
from policyd.engine.cases import Case, Expectation, Outcome
from policyd.engine.compiled import CompiledBinding, CompiledPolicy
from policyd.engine.decision import Decision
from policyd.engine.documents import Document
from policyd.engine.findings import Finding
from policyd.engine.kyverno.declared import declared_values
from policyd.engine.kyverno.filters import like
from policyd.engine.load import Loaded
from policyd.engine.offline import (
    Circumstances,
    as_it_was,
    namespace_lookup,
    offline_set,
    request_for,
)
from policyd.engine.ordering import without_empty
from policyd.engine.schema import ForeignShape, schema_of
from policyd.engine.workloads import value_at
from policyd.patch.json_patch import apply_json_patch

NAME: Final = "kyverno-test.yaml"
"""What Kyverno calls a file of tests."""

Word = Literal["pass", "fail", "skip", "warn", "error"]
Texts = tuple[str, ...]


class ResourceSpec(Closed, frozen=True):
    """Names one object."""

    name: str
    namespace: str = ""
    kind: str = ""
    group: str = ""
    version: str = ""
    subresource: str = ""


class Row(Closed, frozen=True):
    """What must come of some resources."""

    policy: str
    result: Word
    rule: str = ""
    kind: str = ""
    resources: Texts = ()
    resource_specs: tuple[ResourceSpec, ...] = ()
    operation: Operation | None = None
    patched_resources: str = ""


class KyvernoTest(Closed, frozen=True):
    """A file of tests; the files it names are relative to it."""

    policies: Texts
    resources: Texts = ()
    exceptions: Texts = ()
    param_resources: Texts = ()
    results: tuple[Row, ...] = ()
    userinfo: str = ""
    variables: str = ""
    values: dict[str, Any] = {}
    context: str = ""
    cluster_resources: Texts = ()
    api_call_responses: tuple[dict[str, Any], ...] = ()
    global_context_entries: tuple[dict[str, Any], ...] = ()


_NOT_REQUESTS: Final = ("checks", "jsonPayloads", "httpPayloads", "envoyPayloads")
"""Fields of tests that are not about objects which are written to a cluster."""


@cache
def _shape() -> ForeignShape:
    return ForeignShape(schema_of(KyvernoTest))


def read_suite(document: Document) -> tuple[KyvernoTest | None, list[Finding]]:
    """Read a file of tests, and say what is wrong with it; what is not known of it is doubtful.

    What would be tested by other means than requests keeps the file from being run: it would pass.
    """
    unread = [name for name in _NOT_REQUESTS if value_at(document.value, (name,))]
    if unread:
        message = f"`{unread[0]}` is not read: policyd tests what is said of requests"
        return None, [document.finding(message, (unread[0],), of_key=True)]
    value, findings = _shape().read(document)
    return (None if value is None else msgspec.convert(value, KyvernoTest)), findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the files of a suite hold.

    Attributes:
        loaded: Policies, bindings and exceptions.
        resources: The objects that rows name.
        params: Objects that may be params.
        patched: What mutated resources must look like, by the file that says so.
        values: Values, from a file or in the suite: labels of namespaces, and operations.
        user: Who sends the requests.
        outside: The values of Kyverno's variables that stand for the world outside.
        namespaces: The namespaces of the cluster.
    """

    loaded: Loaded
    resources: Sequence[Json]
    params: Sequence[Json]
    patched: Mapping[str, Sequence[Json]]
    values: Json
    user: UserInfo
    outside: Mapping[str, object] = field(default_factory=declared_values)
    namespaces: Sequence[Json] = ()


def run_suite(suite: KyvernoTest, given: Given) -> Iterator[Outcome]:
    """Run the rows of a suite, once for each of their resources."""
    for row in suite.results:
        named = [*map(_spec, row.resources), *row.resource_specs]
        wanted = [spec for each in named for spec in _expanded(each, row, given)]
        for spec in wanted:
            yield _run(row, spec, given)
        if not wanted:
            case = Case(name=f"{row.policy} is to {row.result}", object={}, expect=Expectation())
            yield Outcome(case, ("the row names no resource: nothing would be tested",))


def _expanded(spec: ResourceSpec, row: Row, given: Given) -> Iterable[ResourceSpec]:
    """Return what a pattern of names stands for; itself if that is nothing, which then fails."""
    if not set("*?") & set(spec.name):
        return (spec,)
    found = dict.fromkeys(
        str(value_at(obj, ("metadata", "name")))
        for obj in given.resources
        if _is(obj, spec, row.kind)
    )
    return [msgspec.structs.replace(spec, name=name) for name in found] or (spec,)


def _spec(text: str) -> ResourceSpec:
    namespace, _, name = text.rpartition("/")
    return ResourceSpec(name=name, namespace=namespace)


def _run(row: Row, spec: ResourceSpec, given: Given) -> Outcome:
    name = f"{row.policy}{f' {row.rule}' if row.rule else ''}: {spec.name} is to {row.result}"
    obj = next((o for o in given.resources if _is(o, spec, row.kind)), None)
    case = Case(name=name, object=obj or {}, expect=Expectation())
    if obj is None:
        return Outcome(case, (f"there is no resource `{spec.name}`",))
    policies = [p for p in given.loaded.policies if _named(p, row)]
    if not policies:
        return Outcome(case, (f"there is no policy `{row.policy}`",))
    decision = _ask(policies, obj, row, given, spec.subresource)
    problems = [*_problems(row, decision)]
    problems += _patch_problems(row, obj, decision, given)
    return Outcome(case, tuple(problems))


def _is(obj: Json, spec: ResourceSpec, kind: str) -> bool:
    metadata = value_at(obj, ("metadata",)) or {}
    wanted = spec.kind or kind
    group, _, version = str(value_at(obj, ("apiVersion",)) or "").rpartition("/")
    return (
        like(spec.name, str(metadata.get("name", "")))
        and (not spec.namespace or metadata.get("namespace", "default") == spec.namespace)
        and (not wanted or value_at(obj, ("kind",)) == wanted)
        and spec.group in ("", group)
        and spec.version in ("", version)
    )


def _named(policy: CompiledPolicy, row: Row) -> bool:
    name = row.policy.rpartition("/")[2]
    # Rules that Kyverno makes of one for pods go by its name with a prefix.
    rule = row.rule.removeprefix("autogen-cronjob-").removeprefix("autogen-")
    return policy.name == name and (not rule or policy.part in ("", rule))


def _ask(
    policies: Sequence[CompiledPolicy], obj: Json, row: Row, given: Given, subresource: str
) -> Decision:
    """Send the request of a row; what is updated was as it is, as in Kyverno's own command."""
    loaded = replace(given.loaded, policies=tuple(policies))
    bound = {(binding.policy_kind, binding.policy) for binding in loaded.bindings}
    implied = tuple(
        CompiledBinding(name=f"{p.name}-binding", policy=p.name, policy_kind=p.kind)
        for p in policies
        if p.kind in NEEDS_BINDING and (p.kind, p.name) not in bound
    )
    loaded = replace(loaded, bindings=(*loaded.bindings, *implied))
    namespaces = [*given.namespaces, *_namespaces(given.values), *given.resources]
    lookup = namespace_lookup(namespaces, {})
    asked = offline_set(loaded, lookup, objects=given.params, extra=given.outside)
    operation = row.operation or _operation(given.values, row, obj)
    circumstances = Circumstances(operation=operation, user=given.user)
    request = request_for(obj, circumstances, old_object=as_it_was(obj, operation))
    return asked.review(msgspec.structs.replace(request, sub_resource=subresource))


def _operation(values: Json, row: Row, obj: Json) -> Operation:
    """Return the operation that values name: of the resource, of its policy, or of all."""
    name = value_at(obj, ("metadata", "name"))
    found = value_at(values, ("globalValues",)) or {}
    for policy in value_at(values, ("policies",)) or ():
        for each in policy.get("resources") or () if policy.get("name") == row.policy else ():
            if each.get("name") == name:
                found = {**found, **(each.get("values") or {})}
    said = found.get("request.operation", "CREATE")
    return said if said in get_args(Operation) else "CREATE"


def _namespaces(values: Json) -> Iterator[Json]:
    """Return the namespaces whose labels a file of values gives."""
    for each in value_at(values, ("namespaceSelector",)) or ():
        metadata = {"name": each.get("name"), "labels": each.get("labels") or {}}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def word_of(decision: Decision) -> Word:
    """Say in Kyverno's word what came of a request, whatever the policies' actions are."""
    if decision.failures:
        return "error"
    if decision.objections:
        return "fail"
    return "pass" if decision.matched else "skip"


def _problems(row: Row, decision: Decision) -> Iterator[str]:
    word = word_of(decision)
    wanted = "fail" if row.result == "warn" else row.result
    if word != wanted:
        said = [failure.message for failure in decision.failures]
        said += [objection.message for objection in decision.objections]
        yield f"it came to {word}" + (f": {'; '.join(said)}" if said else "")


def _patch_problems(row: Row, obj: Json, decision: Decision, given: Given) -> Iterable[str]:
    if not row.patched_resources:
        return ()
    result = apply_json_patch(obj, decision.operations)
    wanted = given.patched.get(row.patched_resources, ())
    if any(without_empty(result) == without_empty(each) for each in wanted):
        return ()
    return (f"the object came out as none of {row.patched_resources}",)

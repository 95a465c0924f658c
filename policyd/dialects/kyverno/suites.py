"""Run Kyverno's test suites (`kyverno-test.yaml`), strictly: every row needs its resource.

A row names a policy, resources, and the expected results. Unlike in Kyverno's own command, a row
whose resource does not exist fails, and numbers keep their size.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, get_args

import msgspec

from policyd.api.admission import AdmissionRequest, Operation, UserInfo
from policyd.api.meta import Json
from policyd.dialects.kyverno.declared import declared_values
from policyd.dialects.kyverno.filters import like
from policyd.dialects.kyverno.suite_files import (
    ExpectedResult,
    KyvernoTest,
    ResourceSpec,
    Values,
    Word,
)
from policyd.engine.background.acting import ActingPolicies, PolicyActed, with_exceptions
from policyd.engine.background.evaluation import Outcome, scope_of
from policyd.engine.compile.load import Loaded
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.background import BackgroundPolicy
from policyd.engine.model.bindings import NEEDS_BINDING
from policyd.engine.model.compiled import CompiledBinding, CompiledPolicy
from policyd.engine.model.decision import Decision
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.cases import Case, CaseOutcome, Expectation
from policyd.engine.offline.ordering import without_empty
from policyd.engine.offline.requests import (
    CustomKinds,
    ObjectError,
    RequestCircumstances,
    as_it_was,
    existing_requests,
    namespace_lookup,
    offline_set,
    request_for,
)
from policyd.patch.json_patch import apply_json_patch


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteContent:
    """The content of a suite's files.

    Attributes:
        loaded: Policies, bindings and exceptions.
        resources: The objects that rows name.
        old: Objects as they were.
        kinds: The kinds that are not built in.
        params: Objects that may be params.
        patched: The expected mutated or generated resources, by the file that states them.
        values: Values, from a file or in the suite: labels of namespaces, and operations.
        user: The user of the requests.
        external: The values of Kyverno's variables of external data.
        namespaces: The namespaces of the cluster.
    """

    loaded: Loaded
    resources: Sequence[Json]
    params: Sequence[Json]
    patched: Mapping[str, Sequence[Json]]
    values: Values
    user: UserInfo
    external: Mapping[str, object] = field(default_factory=declared_values)
    namespaces: Sequence[Json] = ()
    old: Sequence[Json] = ()
    targets: Sequence[Json] = ()
    kinds: CustomKinds = field(default_factory=dict)


def run_suite(suite: KyvernoTest, given: SuiteContent) -> Iterator[CaseOutcome]:
    """Run the rows of a suite, once for each of their resources."""
    for row in suite.results:
        named = [*map(_spec, row.resources), *row.resource_specs]
        wanted = [spec for each in named for spec in _expanded(each, row, given)]
        for spec in wanted:
            yield _run(row, spec, given)
        if not wanted:
            case = Case(name=f"{row.policy} is to {row.result}", object={}, expect=Expectation())
            yield CaseOutcome(case, ("the row names no resource: nothing would be tested",))


def _expanded(
    spec: ResourceSpec, row: ExpectedResult, given: SuiteContent
) -> Iterable[ResourceSpec]:
    """Return the names that a pattern matches; itself if it matches none, which then fails."""
    if not set("*?") & set(spec.name):
        return (spec,)
    found = dict.fromkeys(
        str(value_at(obj, ("metadata", "name")))
        for obj in (*given.resources, *given.targets)
        if _is(obj, spec, row.kind)
    )
    return [msgspec.structs.replace(spec, name=name) for name in found] or (spec,)


def _spec(text: str) -> ResourceSpec:
    namespace, _, name = text.rpartition("/")
    return ResourceSpec(name=name, namespace=namespace)


def _run(row: ExpectedResult, spec: ResourceSpec, given: SuiteContent) -> CaseOutcome:
    name = f"{row.policy}{f' {row.rule}' if row.rule else ''}: {spec.name} is to {row.result}"
    known = (*given.resources, *given.targets)
    obj = next((o for o in known if _is(o, spec, row.kind)), None)
    case = Case(name=name, object=obj or {}, expect=Expectation())
    if obj is None:
        return CaseOutcome(case, (f"resource `{spec.name}` not found",))
    policies = [p for p in given.loaded.policies if _named(p, row)]
    acting = [p for p in given.loaded.background if _named(p.policy, row)]
    if acting and not any(obj is each for each in given.resources):
        return _run_target(case, row, acting, given)
    if acting and (not policies or row.is_generating_policy or row.is_deleting_policy):
        return _run_acting(case, row, acting, spec.subresource, given)
    if not policies:
        return CaseOutcome(case, (f"policy `{row.policy}` not found",))
    try:
        decision = _ask(policies, obj, row, given, spec.subresource)
    except ObjectError as error:
        return CaseOutcome(case, (str(error),))
    problems = tuple(_problems(row, obj, decision, given))
    violated = frozenset((denial.origin, denial.validation) for denial in decision.objections)
    return CaseOutcome(case, problems, violated=violated)


def _is(obj: Json, spec: ResourceSpec, kind: str) -> bool:
    wanted = spec.kind or kind
    namespace = value_at(obj, ("metadata", "namespace")) or "default"
    group, _, version = str(value_at(obj, ("apiVersion",)) or "").rpartition("/")
    return (
        like(spec.name, str(value_at(obj, ("metadata", "name")) or ""))
        and spec.namespace in ("", namespace)
        and (not wanted or value_at(obj, ("kind",)) == wanted)
        and spec.group in ("", group)
        and spec.version in ("", version)
    )


def _named(policy: CompiledPolicy, row: ExpectedResult) -> bool:
    name = row.policy.rpartition("/")[2]
    # Rules that Kyverno makes of one for pods go by its name with a prefix.
    rule = row.rule.removeprefix("autogen-cronjob-").removeprefix("autogen-")
    return policy.name == name and (not rule or policy.part in ("", rule))


def _run_acting(
    case: Case,
    row: ExpectedResult,
    policies: Sequence[BackgroundPolicy],
    subresource: str,
    given: SuiteContent,
) -> CaseOutcome:
    """Ask policies that act by themselves about a resource."""
    try:
        asked, request = _prepared((), case.object, row, given, subresource)
    except ObjectError as error:
        return CaseOutcome(case, (str(error),))
    existing = given.targets or given.resources
    acting = _acting(policies, asked, existing, given)
    generated = [*acting.generated(request), *acting.mutated(request)]
    unlike = list(_generated_problems(row, generated, given))
    words: list[Word] = []
    for _, result in generated:
        words.append(_GENERATED_WORDS[result.outcome])
        if words[-1] == "pass" and unlike:
            words[-1] = "fail"
    words += [_DELETED_WORDS[result.outcome] for _, result in acting.deleted(request)]
    problems: list[str] = []
    if row.result not in words:
        errors = [each.result.error for each in (*generated, *acting.deleted(request))]
        why = "; ".join(filter(None, [*errors, *unlike]))
        problems.append(f"it came to {' and '.join(words)}" + (f": {why}" if why else ""))
    return CaseOutcome(case, tuple(problems))


_GENERATED_WORDS: Final[Mapping[Outcome, Word]] = {
    "matched": "pass",
    "excluded": "skip",
    "unmatched": "skip",
    "failed": "error",
}
_DELETED_WORDS: Final[Mapping[Outcome, Word]] = {**_GENERATED_WORDS, "excluded": "fail"}


def _acting(
    policies: Sequence[BackgroundPolicy],
    asked: PolicySet,
    existing: Sequence[Json],
    given: SuiteContent,
) -> ActingPolicies:
    return ActingPolicies(
        with_exceptions(policies, given.loaded.exceptions),
        asked.surroundings,
        scope_of(given.kinds),
        existing_requests(existing, given.kinds),
    )


def _run_target(
    case: Case, row: ExpectedResult, policies: Sequence[BackgroundPolicy], given: SuiteContent
) -> CaseOutcome:
    """Ask policies that mutate existing objects about one of these, for each trigger."""
    results: list[PolicyActed] = []
    try:
        for each in given.resources:
            asked, request = _prepared((), each, row, given, "")
            results += _acting(policies, asked, [case.object], given).mutated(request)
    except ObjectError as error:
        return CaseOutcome(case, (str(error),))
    errors = [each.result.error for each in results if each.result.error]
    made = [obj for each in results for obj in each.result.objects]
    unlike = [problem for obj in made for problem in _unlike(row, obj, given)]
    word: Word = "error" if errors else "fail" if unlike else "pass" if made else "skip"
    if word == row.result:
        return CaseOutcome(case, ())
    why = "; ".join([*errors, *unlike])
    return CaseOutcome(case, (f"it came to {word}" + (f": {why}" if why else ""),))


def _generated_problems(
    row: ExpectedResult, generated: Sequence[PolicyActed], given: SuiteContent
) -> Iterator[str]:
    """Compare generated objects with the expected ones; Kyverno's command drops annotations."""
    file = row.generated_resource or row.patched_resources
    wanted = given.patched.get(file)
    if wanted is None:
        return
    made = [obj for _, result in generated for obj in result.objects]
    left = [without_empty(each) for each in wanted]
    for obj in made:
        plain = {k: v for k, v in obj["metadata"].items() if k != "annotations"}
        forms = [without_empty(obj), without_empty({**obj, "metadata": plain})]
        found = next((form for form in forms if form in left), None)
        if found is None:
            kind, name = obj["kind"], obj["metadata"]["name"]
            yield f"{kind} {name} is generated, and not in {file}"
        else:
            left.remove(found)
    for obj in left:
        name = value_at(obj, ("metadata", "name"))
        kind = value_at(obj, ("kind",))
        yield f"{kind} {name} of {file} is not generated"


def _ask(
    policies: Sequence[CompiledPolicy],
    obj: Json,
    row: ExpectedResult,
    given: SuiteContent,
    subresource: str,
) -> Decision:
    asked, request = _prepared(policies, obj, row, given, subresource)
    return asked.review(request)


def _prepared(
    policies: Sequence[CompiledPolicy],
    obj: Json,
    row: ExpectedResult,
    given: SuiteContent,
    subresource: str,
) -> tuple[PolicySet, AdmissionRequest]:
    """Return the request of a row, and its policies; by default, an update changes nothing."""
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
    asked = offline_set(loaded, lookup, objects=given.params, extra=given.external, as_written=True)
    old = next((each for each in given.old if _key(each) == _key(obj)), None)
    operation = row.operation or row.resource_operation or _operation(given.values, row, obj)
    operation = operation or ("CREATE" if old is None else "UPDATE")
    old = None if operation == "CREATE" else as_it_was(obj, operation, old)
    circumstances = RequestCircumstances(operation=operation, user=given.user, kinds=given.kinds)
    request = request_for(obj, circumstances, old_object=old)
    return asked, msgspec.structs.replace(request, sub_resource=subresource)


def _key(obj: Json) -> tuple[Json, ...]:
    paths = (("kind",), ("metadata", "namespace"), ("metadata", "name"))
    return tuple(value_at(obj, path) for path in paths)


def _operation(values: Values, row: ExpectedResult, obj: Json) -> Operation | None:
    """Return the operation that values name: of the resource, of its policy, or of all."""
    found = values.global_values
    for policy in values.policies:
        for each in policy.resources if policy.name == row.policy else ():
            if each.name == value_at(obj, ("metadata", "name")):
                found = {**found, **each.values}
    operation = found.get("request.operation")
    return operation if operation in get_args(Operation) else None


def _namespaces(values: Values) -> Iterator[Json]:
    """Return the namespaces that values give, as a whole or by their labels."""
    named = ({"metadata": {"name": n.name, "labels": n.labels}} for n in values.namespace_selector)
    for each in (*named, *values.namespaces):
        yield {**each, "apiVersion": "v1", "kind": "Namespace"}


def words_of(decision: Decision) -> tuple[Word, ...]:
    """Return the result of a request in Kyverno's words, regardless of the policies' actions.

    Kyverno leaves off at the first validation that is not true or fails; here all are asked, and
    either word is right.
    """
    words: list[Word] = ["fail"] if decision.objections else []
    words += ["error"] if decision.failures else []
    return tuple(words) or ("pass" if decision.matched else "skip",)


def _problems(
    row: ExpectedResult, obj: Json, decision: Decision, given: SuiteContent
) -> Iterator[str]:
    unlike = list(_patch_problems(row, obj, decision, given))
    words = words_of(decision)
    if words == ("pass",) and unlike:
        words = ("fail",)
    messages = dict.fromkeys(failure.message for failure in decision.failures)
    messages |= dict.fromkeys([*(objection.message for objection in decision.objections), *unlike])
    wanted = "fail" if row.result == "warn" else row.result
    if wanted not in words:
        yield f"it came to {' and '.join(words)}" + (f": {'; '.join(messages)}" if messages else "")
    elif wanted != "fail":
        yield from unlike


def _patch_problems(
    row: ExpectedResult, obj: Json, decision: Decision, given: SuiteContent
) -> Iterable[str]:
    return _unlike(row, apply_json_patch(obj, decision.operations), given)


def _unlike(row: ExpectedResult, obj: Json, given: SuiteContent) -> Iterable[str]:
    """Say that a resulting object is not one that is expected."""
    wanted = given.patched.get(row.patched_resources)
    result = without_empty(obj)
    if wanted is None or any(result == without_empty(each) for each in wanted):
        return ()
    return (f"the resulting object is none of {row.patched_resources}",)

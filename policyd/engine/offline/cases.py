"""Run cases: requests beside a policy, with the expected decisions.

A case gives an object, the circumstances of its request, and the expected result. Nothing
passes by accident: an expectation about a request that no policy matched fails, and
a changed object must stay the same when it is sent again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Final

import msgspec

from policyd.api.admission import AdmissionRequest, Operation, UserInfo
from policyd.api.inject import Closed
from policyd.api.makers import Makers
from policyd.api.meta import Json
from policyd.cel.lib.authorizer import Authorization as PermissionDecision
from policyd.cel.lib.authorizer import AuthorizedAction
from policyd.engine.background.acting import (
    ActingPolicies,
    PolicyActed,
    with_exceptions,
)
from policyd.engine.background.evaluation import scope_of
from policyd.engine.compile.load import Loaded
from policyd.engine.compile.schema import DocumentShape, schema_of
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document, read_documents
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.decision import Decision
from policyd.engine.model.queue_facts import NOT_GIVEN, QueueFacts
from policyd.engine.model.surroundings import Authorize
from policyd.engine.objects.match import NamespaceLookup
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.ordering import order_matters, yaml_diff
from policyd.engine.offline.requests import (
    ObjectError,
    RequestCircumstances,
    alone,
    as_it_was,
    check_readable,
    custom_kinds,
    existing_requests,
    namespace_lookup,
    offline_set,
    raw,
    request_for,
)
from policyd.patch.json_patch import apply_json_patch

Texts = str | tuple[str, ...]


class CaseUser(Closed, frozen=True):
    """The user who sends the request."""

    username: str
    groups: tuple[str, ...] = ()


class Expectation(Closed, frozen=True):
    """The expected decision on a request; every given field must match.

    `denied` and `warned` name a part of each message, all of them; `mutated` is the part of the
    resulting object that matters (null: a field must not be there), `result` is all of it.
    `generated` has the parts that matter of all objects that policies generate for this one, in
    order, and `targets` of all existing objects that they mutate for it; `deleted` says whether a
    policy deletes it on its schedule.
    """

    allowed: bool | None = None
    denied: Texts = ()
    warned: Texts = ()
    mutated: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    unchanged: bool = False
    skipped: bool = False
    generated: tuple[dict[str, Any], ...] | None = None
    targets: tuple[dict[str, Any], ...] | None = None
    deleted: bool | None = None


class Permission(Closed, frozen=True):
    """A permission of the user, for policies that check permissions; empty fields match any."""

    verb: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def allows(self, asked: AuthorizedAction) -> bool:
        """Tell whether this is the permission that is checked."""
        given = ((field, getattr(self, field)) for field in Permission.__struct_fields__)
        return all(getattr(asked, field) == value for field, value in given if value)


class Case(Closed, frozen=True):
    """A request, and the expected decision.

    The object before an update is the same, unless `oldObject` is set. `params` are objects that
    policies may name as their params; `permissions` are all those of the user; `subResource` is the
    requested part of the object, such as `ephemeralcontainers`; `queueSnapshot` is a file with the
    queues that policies read, beside the cases: empty if nothing is known of them. `objects` are
    those of the cluster that policies read, such as the source of a clone.
    """

    name: str
    object: dict[str, Any]
    expect: Expectation
    old_object: dict[str, Any] | None = None
    operation: Operation = "CREATE"
    sub_resource: str = ""
    user: CaseUser | None = None
    namespace_labels: dict[str, str] | None = None
    params: tuple[dict[str, Any], ...] = ()
    permissions: tuple[Permission, ...] = ()
    queue_snapshot: str | None = None
    objects: tuple[dict[str, Any], ...] = ()


class Cases(Closed, frozen=True):
    """The cases of the policies in a folder.

    `namespaceLabels` and `queueSnapshot` are those of every case without any, and `params` and
    `objects` exist in every case.
    """

    cases: Annotated[tuple[Case, ...], msgspec.Meta(min_length=1)]
    namespace_labels: dict[str, str] = {}
    params: tuple[dict[str, Any], ...] = ()
    queue_snapshot: str | None = None
    objects: tuple[dict[str, Any], ...] = ()


def _no_external_data(_objects: Sequence[Json]) -> Mapping[str, object]:
    return {}


def _no_files(_name: str) -> QueueFacts:
    return NOT_GIVEN


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSurroundings:
    """The surroundings of cases, as far as the cases do not state them.

    Attributes:
        queues_in: Returns the queues of a file that a case names.
        queues: Those of cases that name none.
        namespaces: The Namespaces of cases that give no labels.
        params: Objects of kinds of which a case gives none.
        as_written: Whether Kyverno's policies see objects without defaults.
        external: Returns the values of variables of external data, given the cluster's objects.
    """

    queues_in: Callable[[str], QueueFacts] = _no_files
    queues: QueueFacts = NOT_GIVEN
    namespaces: tuple[Json, ...] = ()
    params: tuple[Json, ...] = ()
    as_written: bool = False
    external: Callable[[Sequence[Json]], Mapping[str, object]] = _no_external_data

    def queues_of(self, case: Case, cases: Cases) -> QueueFacts:
        """Return the queues that policies read in a case."""
        file = cases.queue_snapshot if case.queue_snapshot is None else case.queue_snapshot
        if file is None:
            return self.queues
        return self.queues_in(file) if file else NOT_GIVEN

    def params_of(self, given: Sequence[Json]) -> Iterator[Json]:
        """Yield the params of a case that gives some."""
        yield from given
        kinds = {_kind_of(each) for each in given}
        yield from (each for each in self.params if _kind_of(each) not in kinds)

    def namespaces_of(self, case: Case, cases: Cases) -> NamespaceLookup:
        """Return the namespaces of a case."""
        labels = cases.namespace_labels if case.namespace_labels is None else case.namespace_labels
        declared = case.namespace_labels is not None or cases.namespace_labels
        return namespace_lookup(() if declared else self.namespaces, labels)


NO_SURROUNDINGS: Final = CaseSurroundings()


def _kind_of(obj: Json) -> tuple[Json, Json]:
    return value_at(obj, ("apiVersion",)), value_at(obj, ("kind",))


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The outcome of a case: failed expectations, and the differences from the expected."""

    case: Case
    problems: tuple[str, ...]
    difference: tuple[str, ...] = ()
    violated: frozenset[tuple[str, str]] = frozenset()
    """The validations that were not true: the policy's id, and where the validation stands."""

    @property
    def passed(self) -> bool:
        """Whether all expectations were met."""
        return not self.problems


@cache
def cases_shape() -> DocumentShape:
    """Return the shape of a file of cases."""
    schema = schema_of(Cases)
    schema["$defs"]["Expectation"]["minProperties"] = 1
    return DocumentShape(schema)


def load_cases(text: str | bytes, source: str) -> tuple[Cases | None, list[Finding]]:
    """Read a file of cases, or say everything that is wrong with it."""
    documents, findings = read_documents(text, source)
    return (None, findings) if findings else cases_of(documents, source)


def cases_of(documents: Sequence[Document], source: str) -> tuple[Cases | None, list[Finding]]:
    """Return the cases that documents are, or everything that is wrong with them."""
    if len(documents) != 1:
        return None, [
            Finding(
                source=source,
                message="not one document with `cases`",
                line=1,
                column=1,
                rule="unreadable",
            )
        ]
    (document,) = documents
    kind = value_at(document.value, ("kind",))
    if isinstance(kind, str):
        hint = "name the folder it is in, or the file with its `cases`"
        found = document.finding(f"this is a {kind}, and no cases", ("kind",), hint=hint)
        return None, [replace(found, rule="unreadable")]
    findings = cases_shape().check(document)
    return (None, findings) if findings else (msgspec.convert(document.value, Cases), [])


def run_case(
    case: Case, cases: Cases, loaded: Loaded, surroundings: CaseSurroundings = NO_SURROUNDINGS
) -> CaseOutcome:
    """Send a case's request through policies, and compare the decision with the expected one."""
    try:
        asked = ask_case(case, cases, loaded, surroundings)
    except ObjectError as error:
        return CaseOutcome(case, (str(error),))
    decision = asked.policies.review(asked.request)
    result = apply_json_patch(case.object, decision.operations)
    acted = _acts(asked, result, decision)
    problems = [*_problems(case.expect, decision, acted), *_act_problems(case.expect, acted)]
    if decision.operations:
        again = msgspec.structs.replace(asked.request, object=raw(result))
        problems += _not_settled(asked.policies.mutate(again))
        problems += map(str, order_matters(asked.policies, asked.request))
    differing: list[str] = []
    for what, expected, actual in _compared(case.expect, result, acted):
        lines = difference(expected, actual)
        if lines:
            problems.append(f"{what} differs")
            differing += lines
    violated = frozenset((denial.origin, denial.validation) for denial in decision.objections)
    return CaseOutcome(case, tuple(problems), tuple(differing), violated)


@dataclass(frozen=True, slots=True)
class PreparedCase:
    """The request of a case, and the policies that are asked, under its circumstances."""

    request: AdmissionRequest
    policies: PolicySet
    acting: ActingPolicies


def ask_case(
    case: Case, cases: Cases, loaded: Loaded, surroundings: CaseSurroundings = NO_SURROUNDINGS
) -> PreparedCase:
    """Return the request that a case sends, and the policies as they are where it is sent.

    Raises:
        ObjectError: If the object is none of Kubernetes.
    """
    queues = surroundings.queues_of(case, cases)
    existing = (*cases.objects, *case.objects)
    kinds = custom_kinds((*existing, *cases.params, *case.params))
    policies = offline_set(
        alone(loaded),
        surroundings.namespaces_of(case, cases),
        objects=tuple(surroundings.params_of((*cases.params, *case.params))),
        authorize=_authorize(case),
        makers=Makers(),
        queues=lambda: queues,
        as_written=surroundings.as_written,
        existing=existing,
        extra=surroundings.external(existing) if existing or loaded.background else None,
    )
    acting = ActingPolicies(
        with_exceptions(loaded.background, loaded.exceptions),
        policies.surroundings,
        scope_of(kinds),
        existing_requests(existing, kinds) if loaded.background else (),
    )
    user = case.user or CaseUser(username="someone")
    circumstances = RequestCircumstances(
        operation=case.operation,
        user=UserInfo(username=user.username, groups=user.groups),
        kinds=kinds,
    )
    old = as_it_was(case.object, case.operation, case.old_object)
    request = request_for(case.object, circumstances, old_object=old)
    for obj in (case.object, old):
        check_readable(obj)
    request = msgspec.structs.replace(request, sub_resource=case.sub_resource)
    return PreparedCase(request, policies, acting)


def run_together(
    case: Case, cases: Cases, loaded: Loaded, surroundings: CaseSurroundings = NO_SURROUNDINGS
) -> CaseOutcome:
    """Send a case's request through all policies there are: does their order matter?"""
    try:
        asked = ask_case(case, cases, loaded, surroundings)
    except ObjectError as error:
        return CaseOutcome(case, (str(error),))
    found = list(order_matters(asked.policies, asked.request))
    lines = [line for each in found for line in each.difference]
    return CaseOutcome(case, tuple(map(str, found)), tuple(lines))


def uncovered(loaded: Loaded, outcomes: Iterable[CaseOutcome]) -> list[tuple[str, str]]:
    """Return the validations that no case violates: they are untested.

    Returns:
        The policy's id, and where the validation stands, in the order of the policies.
    """
    violated = frozenset[tuple[str, str]]().union(*(outcome.violated for outcome in outcomes))
    return [
        (policy.id, validation.place)
        for policy in loaded.policies
        for validation in policy.validations
        if (policy.id, validation.place) not in violated
    ]


def _authorize(case: Case) -> Authorize:
    def decide(_user: UserInfo, asked: AuthorizedAction) -> PermissionDecision:
        return PermissionDecision(allowed=any(p.allows(asked) for p in case.permissions))

    return decide


@dataclass(frozen=True, slots=True)
class _Acts:
    """What policies that act by themselves do about an object, once it is stored."""

    generated: tuple[PolicyActed, ...] = ()
    deleted: tuple[PolicyActed, ...] = ()
    mutated: tuple[PolicyActed, ...] = ()

    @property
    def all(self) -> tuple[PolicyActed, ...]:
        """What all of them do."""
        return (*self.generated, *self.mutated, *self.deleted)

    @property
    def objects(self) -> list[Json]:
        """The generated objects, in order."""
        return [obj for each in self.generated for obj in each.result.objects]

    @property
    def targets(self) -> list[Json]:
        """The mutated objects, in order."""
        return [obj for each in self.mutated for obj in each.result.objects]

    @property
    def concerned(self) -> list[str]:
        """The policies that do something."""
        return [policy.id for policy, result in self.all if result.outcome == "matched"]

    @property
    def is_deleted(self) -> bool:
        """Whether a policy deletes the object."""
        return any(result.outcome == "matched" for _, result in self.deleted)

    @property
    def asked(self) -> bool:
        """Whether there are such policies."""
        return bool(self.all)


def _acts(asked: PreparedCase, result: Json, decision: Decision) -> _Acts:
    if not decision.allowed:
        return _Acts()
    request = asked.request
    if request.operation == "DELETE":
        return _Acts(tuple(asked.acting.generated(request)))
    stored = msgspec.structs.replace(request, object=raw(result))
    acting = asked.acting
    done = acting.generated(stored), acting.deleted(stored), acting.mutated(stored)
    return _Acts(*map(tuple, done))


def _act_problems(expect: Expectation, acted: _Acts) -> Iterator[str]:
    for policy, result in acted.all:
        if result.outcome == "failed":
            yield f"`{policy.id}` failed: {result.error}"
    if expect.deleted is not None and expect.deleted != acted.is_deleted:
        yield "deleted, but should not be" if acted.is_deleted else "no policy deletes the object"
    yield from _numbers("generated", expect.generated, acted.objects)
    yield from _numbers("mutated", expect.targets, acted.targets)


def _numbers(what: str, wanted: Sized | None, made: Sequence[Json]) -> Iterator[str]:
    if wanted is not None and len(wanted) != len(made):
        names = ", ".join(f"{obj['kind']} {obj['metadata']['name']}" for obj in made)
        yield f"{what} are {len(made)} objects, and not {len(wanted)}: {names or 'none'}"


def _problems(expect: Expectation, decision: Decision, acted: _Acts) -> Iterator[str]:
    matched = [*decision.matched, *acted.concerned]
    if expect.skipped:
        if matched or decision.failures:
            yield f"matched unexpectedly: {', '.join(matched)}"
        return
    excluded = () in (expect.generated, expect.targets) or expect.deleted is False
    if not matched and not decision.failures and not (acted.asked and excluded):
        yield "no policy matched this request; expect `skipped: true` if that is intended"
    yield from _unexpected("denial", _texts(expect.denied), [str(d) for d in decision.denials])
    yield from _unexpected("warning", _texts(expect.warned), list(decision.warnings))
    if expect.allowed is False and decision.allowed:
        yield "allowed, but should not be"
    if expect.unchanged and decision.operations:
        paths = ", ".join(operation.path for operation in decision.operations)
        yield f"changed, but should not be: {paths}"


def _unexpected(what: str, expected: Sequence[str], actual: Sequence[str]) -> Iterator[str]:
    """Compare messages with the parts that are expected of them; each must have its counterpart."""
    for part in expected:
        if not any(part in message for message in actual):
            yield f"no {what} with `{part}`"
    for message in actual:
        if not any(part in message for part in expected):
            yield f"unexpected {what}: {message}"


def _not_settled(again: Decision) -> Iterator[str]:
    """Check that a second time changes nothing: the API server may well ask twice."""
    if again.operations:
        changes = ", ".join(f"{o.op} {o.path}" for o in again.operations)
        yield f"not idempotent: sent again, it is changed again ({changes})"


def _compared(expect: Expectation, actual: Json, acted: _Acts) -> Iterator[tuple[str, Json, Json]]:
    """Yield what is compared, as expected and as it is."""
    if expect.mutated is not None:
        yield "the resulting object", expect.mutated, _part(actual, expect.mutated)
    if expect.result is not None:
        yield "the resulting object", expect.result, actual
    for what, wanted, made in (
        ("generated", expect.generated, acted.objects),
        ("mutated", expect.targets, acted.targets),
    ):
        for index, (part, obj) in enumerate(zip(wanted or (), made, strict=False)):
            yield f"{what} object {index + 1}", part, _part(obj, part)


def _part(actual: Json, expected: Json) -> Json:
    """Return the part of `actual` that `expected` has; null for missing values."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        return {
            key: _part(actual.get(key), value)
            for key, value in expected.items()
            if key in actual or value is None
        }
    if isinstance(actual, list) and isinstance(expected, list) and len(actual) == len(expected):
        return [_part(a, e) for a, e in zip(actual, expected, strict=True)]
    return actual


def difference(expected: Json, actual: Json) -> list[str]:
    """Return a unified diff of two objects as YAML, empty if they are the same."""
    return [] if expected == actual else yaml_diff(expected, actual, "expected", "actual")


def _texts(texts: Texts) -> Sequence[str]:
    return (texts,) if isinstance(texts, str) else texts

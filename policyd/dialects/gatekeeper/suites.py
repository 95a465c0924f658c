"""Run Gatekeeper's test suites (`kind: Suite` of test.gatekeeper.sh), strictly.

A test names a template and a constraint; its cases name objects and how many violations there are
to be. A case whose object the constraint does not even name by kind fails: it would show nothing.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import msgspec

from policyd.api.admission import AdmissionRequest, ReviewError, parse_review
from policyd.api.inject import Closed
from policyd.api.meta import Json
from policyd.dialects.gatekeeper.matching import ConstraintMatch, of_kind, read_match
from policyd.dialects.gatekeeper.templates import constrain, read_template, wrong_parameters
from policyd.engine.compile.schema import ForeignShape, schema_of
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.decision import Decision
from policyd.engine.model.facts import Facts
from policyd.engine.model.params import StoredParams
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.cases import Case, CaseOutcome, Expectation
from policyd.engine.offline.requests import (
    ObjectError,
    RequestCircumstances,
    namespace_lookup,
    request_for,
)

GROUP: Final = "test.gatekeeper.sh"
"""The API group of suites."""


class Assertion(Closed, frozen=True):
    """The expected number of violations, of those whose message a pattern matches."""

    violations: Literal["yes", "no"] | bool | int = "yes"
    message: str | None = None


class SuiteCase(Closed, frozen=True):
    """An object, and the assertions about it."""

    name: str
    object: str = ""
    inventory: tuple[str, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    skip: bool = False


class SuiteTest(Closed, frozen=True):
    """A template with a constraint, and cases; an invalid constraint has none."""

    template: str
    constraint: str
    name: str = ""
    cases: tuple[SuiteCase, ...] = ()
    invalid: bool = False
    skip: bool = False


class Suite(Closed, frozen=True):
    """A file of tests; the files it names are relative to it."""

    api_version: str
    kind: Literal["Suite"]
    tests: tuple[SuiteTest, ...]
    metadata: dict[str, Any] = {}
    skip: bool = False


Read = Callable[[str], Sequence[Document]]
"""Returns the documents of a file that a suite names."""


@cache
def _shape() -> ForeignShape:
    return ForeignShape(schema_of(Suite))


def is_suite(value: Json) -> bool:
    """Tell whether a document is a suite."""
    return (
        isinstance(value, dict)
        and value.get("kind") == "Suite"
        and str(value.get("apiVersion", "")).startswith(f"{GROUP}/")
    )


def read_suite(document: Document) -> tuple[Suite | None, list[Finding]]:
    """Read a suite, and return the findings."""
    value, findings = _shape().read(document)
    return (None if value is None else msgspec.convert(value, Suite)), findings


@dataclass(frozen=True, slots=True)
class _Constrained:
    """A template with a constraint, ready to be asked."""

    policy: CompiledPolicy
    constraint: Json
    match: ConstraintMatch


SuiteOutcome = CaseOutcome | Finding | CompiledPolicy
"""The outcome of a suite: results of cases, reasons for skipping, and policies."""


def run_suite(suite: Suite, read: Read) -> Iterator[SuiteOutcome]:
    """Run the tests of a suite; findings are about the files it names, and prevent tests.

    Args:
        suite: The suite; tests that it marks as skipped are.
        read: Returns the documents of a file that the suite names.
    """
    for test in () if suite.skip else suite.tests:
        if not test.skip:
            yield from _run_test(test, read)


def _run_test(test: SuiteTest, read: Read) -> Iterator[SuiteOutcome]:
    constrained = _constrained(test, read)
    if isinstance(constrained, CaseOutcome):
        yield constrained
    elif isinstance(constrained, list):
        yield from constrained
    else:
        yield constrained.policy
        for case in test.cases:
            if not case.skip:
                yield _run_case(test, case, constrained, read)


def _constrained(test: SuiteTest, read: Read) -> _Constrained | CaseOutcome | list[Finding]:
    """Put a template and a constraint together, or say why that cannot be done."""
    template_document, constraint = _only(read(test.template)), _only(read(test.constraint))
    if template_document is None or constraint is None:
        name = test.constraint if template_document else test.template
        return _failed(test, None, f"there is not one object in {name}")
    template, findings = read_template(template_document)
    if template is None:
        return findings
    wrong = list(wrong_parameters(template, constraint.value))
    if test.invalid:
        return _failed(test, None, *([] if wrong else ["the constraint should be invalid"]))
    if wrong:
        return _failed(test, None, *wrong)
    policy = constrain(template, template_document, constraint)
    match, _ = read_match(constraint)
    if not isinstance(policy, CompiledPolicy) or match is None:
        return policy if isinstance(policy, list) else []
    return _Constrained(policy, constraint.value, match)


def _run_case(
    test: SuiteTest, case: SuiteCase, constrained: _Constrained, read: Read
) -> CaseOutcome:
    documents = read(case.object) if case.object else ()
    obj = _only(documents)
    if obj is None:
        return _failed(test, case, f"there is not one object in {case.object or 'no file'}")
    if not case.assertions:
        return _failed(test, case, "a case needs `assertions`")
    try:
        request = _request(obj.value)
    except (ObjectError, ReviewError) as error:
        return _failed(test, case, str(error))
    inventory = [document.value for name in case.inventory for document in read(name)]
    surroundings = PolicyContext(
        namespaces=namespace_lookup(inventory, {}), params=StoredParams([constrained.constraint])
    )
    problems = []
    if not of_kind(constrained.match, Facts(request, surroundings)):
        problems.append(f"the constraint does not match a {request.kind.kind}")
    policy_set = PolicySet([constrained.policy], surroundings=surroundings)
    decision = policy_set.validate(request)
    problems += _problems(case.assertions, decision)
    violated = frozenset((o.origin, o.validation) for o in decision.objections)
    return CaseOutcome(_as_case(test, case, obj.value), tuple(problems), (), violated)


def _request(obj: Json) -> AdmissionRequest:
    """Return the request that an AdmissionReview is, or that creates an object.

    Raises:
        ReviewError: If it is an AdmissionReview without a request.
        ObjectError: If it is not an object of Kubernetes.
    """
    if isinstance(obj, dict) and obj.get("kind") == "AdmissionReview":
        request = {"uid": "offline", **(obj.get("request") or {})}
        return parse_review(msgspec.json.encode({**obj, "request": request}))
    return request_for(obj, RequestCircumstances(namespace=""))  # one that names none is in none


def _problems(assertions: Iterable[Assertion], decision: Decision) -> Iterator[str]:
    messages = [denial.message for denial in decision.objections or decision.denials]
    for assertion in assertions:
        try:
            found = _found(assertion.message, messages)
        except re.error as error:
            yield f"`{assertion.message}` is not a pattern: {error}"
            continue
        if not _is_as_many(assertion, len(found)):
            about = f" with `{assertion.message}`" if assertion.message else ""
            shown = f": {'; '.join(messages)}" if messages else ""
            yield f"{len(found)} violations{about}, expected {_wanted(assertion)}{shown}"


def _found(pattern: str | None, messages: Sequence[str]) -> list[str]:
    return [text for text in messages if pattern is None or re.search(pattern, text)]


def _is_as_many(assertion: Assertion, number: int) -> bool:
    wanted = assertion.violations
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        return number == wanted
    return (number > 0) == (wanted in ("yes", True))


def _wanted(assertion: Assertion) -> str:
    match assertion.violations:
        case "yes" | True:
            return "at least 1"
        case "no" | False:
            return "none"
        case number:
            return str(number)


def _failed(test: SuiteTest, case: SuiteCase | None, *problems: str) -> CaseOutcome:
    return CaseOutcome(_as_case(test, case, {}), problems)


def _as_case(test: SuiteTest, case: SuiteCase | None, obj: Json) -> Case:
    name = f"{test.name}: {case.name}" if case and test.name else case.name if case else test.name
    return Case(name=name, object=obj, expect=Expectation())


def _only(documents: Sequence[Document]) -> Document | None:
    return documents[0] if len(documents) == 1 else None

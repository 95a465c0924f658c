"""Policies, as they are shown: their state, roll-out and shadows, and their results."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec

from policyd.api.meta import Condition, Json, Wire, find_condition
from policyd.api.policy import BindingObject, PolicyObject, PolicyStatus
from policyd.dashboard.views.review_counts import OTHER, ReviewCounts, Reviewed
from policyd.engine.offline.report import ReportedResult

PAGE: Final = 100
"""Policies, or namespaces, on one page."""
MOST_RESULTS: Final = 300
"""Results of one policy that are listed; the others are counted."""


class ReadPolicies(NamedTuple):
    """What is read of policies.

    Attributes:
        policies: The Policy objects.
        bindings: The PolicyBindings.
        missing: Why they cannot be read; "" if they can.
        results: Those of reports, by namespace.
        results_missing: Why there are none, or not all.
        name: The policy that is asked about; "" for all.
        reviewed: What the webhooks count; None where they are not asked.
    """

    policies: tuple[PolicyObject, ...] = ()
    bindings: tuple[BindingObject, ...] = ()
    missing: str = ""
    results: Mapping[str, tuple[ReportedResult, ...]] = {}
    results_missing: str = ""
    name: str = ""
    reviewed: Reviewed | None = None


class _Step(Wire, frozen=True):
    enforcement: str = ""
    percent: int = 100
    namespaces: tuple[str, ...] = ()
    namespace_selector: dict[str, Json] = {}


class _Validation(Wire, frozen=True):
    name: str = ""
    message: str = ""
    expression: str = ""


class _Spec(Wire, frozen=True):
    """The parts of a spec that are shown; a broken policy may have them, too."""

    description: str = ""
    enforcement: str = "Deny"
    shadow_of: str = ""
    inject: dict[str, Json] | None = None
    mutations: tuple[Json, ...] = ()
    validations: tuple[_Validation, ...] = ()
    rollout: tuple[_Step, ...] = ()


@dataclass(frozen=True, slots=True)
class ResultCounts:
    """What reports say of a policy, or of a namespace.

    Attributes:
        matched: Objects that it concerns.
        fine: Objects that it has no objection to.
        refused: Objects that would be refused if they came now.
        warned: Objects that are warned of.
        noted: Objects that audits note.
        failed: Objects for which it could not be evaluated.
        lifted: Objects that an exception exempts.
        admitted: Requests that were allowed although it objects, of a day or more.
    """

    fine: int = 0
    refused: int = 0
    warned: int = 0
    noted: int = 0
    failed: int = 0
    lifted: int = 0
    admitted: int = 0

    @property
    def matched(self) -> int:
        """Objects that it concerns."""
        return self.fine + self.refused + self.warned + self.noted + self.failed + self.lifted


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """A policy.

    Attributes:
        name: Its name.
        description: Its purpose.
        does: What it does to objects.
        state: Whether it can be used, in a word.
        tag: That, as the style sheet knows it.
        findings: What is wrong with it, each with its place and a hint.
        in_force: What is used instead; "" if it is itself.
        rollout: Its steps.
        shadow_of: The policy that it may replace; "" if it is none.
        counts: What reports say; None if they say nothing.
        reviews: What the webhooks count; None if they do not count it, or are not asked.
    """

    name: str
    description: str = ""
    does: str = ""
    state: str = ""
    tag: str = ""
    findings: tuple[str, ...] = ()
    in_force: str = ""
    rollout: tuple[str, ...] = ()
    shadow_of: str = ""
    counts: ResultCounts | None = None
    reviews: ReviewCounts | None = None


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """The results of a namespace."""

    name: str
    counts: ResultCounts


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A result of a policy in a namespace."""

    namespace: str
    validation: str
    result: str
    count: int
    admitted: int
    message: str
    first: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A policy, and its shadow that may replace it."""

    of: PolicyRow | None
    shadow: PolicyRow
    differences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesView:
    """What the view of all policies shows."""

    broken: tuple[PolicyRow, ...]
    pairs: tuple[Pair, ...]
    staged: tuple[PolicyRow, ...]
    rows: tuple[PolicyRow, ...]
    namespaces: tuple[NamespaceRow, ...]
    missing: str
    results_missing: str
    reviewed: Reviewed | None
    word: str
    found: int
    page: int
    pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePolicyView:
    """What the view of one policy shows."""

    row: PolicyRow
    validations: tuple[tuple[str, str, str], ...]
    bindings: tuple[tuple[str, str], ...]
    pair: Pair | None
    results: tuple[ResultRow, ...]
    more: int
    results_missing: str
    reviewed: Reviewed | None


def policies_view(read: ReadPolicies, query: Mapping[str, str], now: float) -> PoliciesView:
    """Return what is shown of all policies."""
    del now
    rows = _rows(read)
    word = query.get("word", "")
    found = [each for each in rows.values() if word.lower() in each.name.lower()]
    pages = max(1, -(-len(found) // PAGE))
    page = min(pages, max(1, _number(query.get("page", ""))))
    return PoliciesView(
        broken=tuple(each for each in rows.values() if each.findings and each.tag == "warn"),
        pairs=tuple(_pairs(rows, read)),
        staged=tuple(each for each in rows.values() if each.rollout),
        rows=tuple(found[(page - 1) * PAGE : page * PAGE]),
        namespaces=tuple(_namespaces(read))[:PAGE],
        missing=read.missing,
        results_missing=read.results_missing,
        reviewed=read.reviewed,
        word=word,
        found=len(found),
        page=page,
        pages=pages,
    )


def policy_view(read: ReadPolicies, query: Mapping[str, str], now: float) -> OnePolicyView:
    """Return what is shown of one policy, which the cluster or a report has."""
    del query, now
    rows = _rows(read)
    row = rows[read.name]
    pairs = _pairs(rows, read)
    results = sorted(_results(read), key=_urgency)
    spec = next((_spec(each) for each in read.policies if each.metadata.name == read.name), _Spec())
    return OnePolicyView(
        row=row,
        validations=tuple((v.name, v.message, v.expression) for v in spec.validations),
        bindings=tuple(_bindings(read)),
        pair=next((p for p in pairs if read.name in {p.shadow.name, p.shadow.shadow_of}), None),
        results=tuple(results[:MOST_RESULTS]),
        more=max(0, len(results) - MOST_RESULTS),
        results_missing=read.results_missing,
        reviewed=read.reviewed,
    )


def known(read: ReadPolicies) -> bool:
    """Tell whether the cluster, or a report, has the policy that is asked about."""
    return read.name in _rows(read)


def _rows(read: ReadPolicies) -> dict[str, PolicyRow]:
    """Return all policies by name, those that only reports know as well."""
    counts = _counted(
        (result.key.policy, result)
        for results in read.results.values()
        for result in results
        if not result.key.shadow_of
    )
    rows = {
        each.metadata.name: _row(each, counts.get(each.metadata.name)) for each in read.policies
    }
    reviewed = read.reviewed or Reviewed()
    for name in (counts.keys() | reviewed.counts.keys()) - rows.keys() - {OTHER}:
        state = "" if read.missing else "from a file"
        rows[name] = PolicyRow(name=name, state=state, counts=counts.get(name))
    return {
        # What a shadow would answer is compared, and not counted.
        name: row if row.shadow_of else replace(row, reviews=reviewed.of(name))
        for name, row in sorted(rows.items())
    }


def _row(policy: PolicyObject, counts: ResultCounts | None) -> PolicyRow:
    spec = _spec(policy)
    state, tag, findings = _state(policy.status)
    in_force = find_condition(policy.status.conditions, "InForce") if policy.status else None
    return PolicyRow(
        name=policy.metadata.name,
        description=spec.description,
        does=_does(spec),
        state=state,
        tag=tag,
        findings=findings,
        in_force="" if in_force is None else in_force.message,
        rollout=tuple(map(_step, spec.rollout)),
        shadow_of=spec.shadow_of,
        counts=counts,
    )


def _spec(policy: PolicyObject) -> _Spec:
    """Return the parts of a spec that are shown, each only if it is of its type."""
    given = policy.spec if isinstance(policy.spec, dict) else {}
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(_Spec):
        try:
            found[field.name] = msgspec.convert(given[field.encode_name], field.type)
        except (KeyError, msgspec.ValidationError):
            continue
    return _Spec(**found)


def _does(spec: _Spec) -> str:
    does = ["changes objects"] if spec.inject or spec.mutations else []
    if spec.validations:
        does.append(_EFFECTS.get(spec.enforcement, spec.enforcement))
    return ", ".join(does)


_EFFECTS: Final = {"Deny": "denies", "Warn": "warns", "Audit": "notes in audits"}
_STATES: Final[Mapping[str, tuple[str, str]]] = {
    "Compiled": ("in use", "finished"),
    "Invalid": ("broken", "warn"),
    "Unbound": ("not bound", "warn"),
    "Shadow": ("shadow", "admitted"),
    "TooMany": ("left out", "warn"),
}


def _state(status: PolicyStatus | None) -> tuple[str, str, tuple[str, ...]]:
    """Return the state of a policy, how it is shown, and what is wrong with it."""
    ready = None if status is None else find_condition(status.conditions, "Ready")
    if ready is None:
        return "not looked at yet", "", ()
    word, tag = _STATES.get(ready.reason, (ready.reason, ""))
    return word, tag, _findings(ready)


def _findings(ready: Condition) -> tuple[str, ...]:
    return tuple(line for line in ready.message.split("\n") if line)[:20]


def _step(step: _Step) -> str:
    to = ", ".join(step.namespaces[:5]) or "all namespaces"
    more = f" and {len(step.namespaces) - 5} more" if len(step.namespaces) > 5 else ""
    chosen = " that a selector picks" if step.namespace_selector else ""
    part = "" if step.percent == 100 else f", {step.percent} of 100 workloads"
    return f"{step.enforcement} in {to}{more}{chosen}{part}"


def _counted(pairs: Iterable[tuple[str, ReportedResult]]) -> dict[str, ResultCounts]:
    """Add up results by a name."""
    sums: dict[str, Counter[str]] = {}
    for name, result in pairs:
        found = sums.setdefault(name, Counter())
        found[_column(result)] += result.objects
        found["admitted"] += result.admitted
    return {name: ResultCounts(**found) for name, found in sums.items()}


def _column(result: ReportedResult) -> str:
    key = result.key
    if key.result != "fail":
        return {"pass": "fine", "error": "failed", "skip": "lifted"}[key.result]
    if "Deny" in key.enforcement:
        return "refused"
    return "warned" if "Warn" in key.enforcement else "noted"


def _namespaces(read: ReadPolicies) -> Iterator[NamespaceRow]:
    counts = _counted(
        (namespace, result)
        for namespace, results in read.results.items()
        for result in results
        if not result.key.shadow_of
    )
    order = sorted(counts, key=lambda name: (-counts[name].refused, -counts[name].warned, name))
    return (NamespaceRow(name, counts[name]) for name in order)


def _pairs(rows: Mapping[str, PolicyRow], read: ReadPolicies) -> Iterator[Pair]:
    differing: Counter[str] = Counter()
    for results in read.results.values():
        for each in results:
            if each.key.shadow_of and each.key.result in {"fail", "error"}:
                differing[each.key.policy] += max(each.admitted, each.objects)
    for row in rows.values():
        if row.shadow_of:
            yield Pair(rows.get(row.shadow_of), row, differing[row.name])


def _results(read: ReadPolicies) -> Iterator[ResultRow]:
    for namespace, results in read.results.items():
        for each in results:
            if each.key.policy == read.name:
                strict = f" ({each.key.enforcement})" if each.key.enforcement else ""
                yield ResultRow(
                    namespace=namespace,
                    validation=each.key.validation,
                    result=f"{each.key.result}{strict}",
                    count=each.objects,
                    admitted=each.admitted,
                    message=each.message,
                    first=", ".join(each.subjects[:3]),
                )


def _urgency(row: ResultRow) -> tuple[bool, int]:
    return row.result.startswith(("pass", "skip")), -row.count


def _bindings(read: ReadPolicies) -> Iterator[tuple[str, str]]:
    for each in read.bindings:
        if each.policy_name == read.name:
            word, _, findings = _state(each.status)
            yield each.metadata.name, "; ".join(findings) or word


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 6 else 1

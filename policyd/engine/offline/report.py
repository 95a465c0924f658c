"""Gather the verdicts of policies on many objects in a report for each namespace.

A report has a result for each policy, validation and outcome, with how many objects it is about and
the names of the first few. So a cluster has no more reports than namespaces, and a report no more
results than there are validations, for any number of objects. Reports are PolicyReports of the
Policy Working Group, or Reports of OpenReports, whose fields have the same names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from policyd.api.meta import Json, cut
from policyd.engine.model.decision import Decision

Result = Literal["pass", "fail", "error", "skip"]

NAME: Final = "policyd"
"""The name of every report, and the source of its results."""

MOST_NAMED: Final = 10
"""Objects that a result names."""

MOST_NAMED_AT_ALL: Final = 50_000
"""Objects that all results of a book name together; more are counted only."""

MOST_RESULTS: Final = 400
"""The number of results of a report, at most: etcd bounds the size of an object."""

LONGEST_MESSAGE: Final = 500
"""Bytes of a message that are kept."""

FORGOTTEN_SECONDS: Final = 24 * 3600.0
"""The time that results from admission alone stay in a report, in seconds."""

_MOST_DIGITS: Final = 18
"""Of a number in a report: any client with the right to write reports may have written it."""

_ORDER: Final = {"fail": 0, "error": 1, "skip": 2, "pass": 3}


class ResultKey(NamedTuple):
    """The key of a result; each has a count."""

    policy: str
    validation: str
    result: Result
    enforcement: str
    """The enforcement of the failed validation; empty if none failed."""
    shadow_of: str = ""
    """The policy that this one may replace, if it has no say yet."""


class ReportSubject(NamedTuple):
    """An object that a result is about."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(slots=True)
class ResultCount:
    """The number of objects with a result, and the first of them."""

    count: int = 0
    message: str = ""
    subjects: list[ReportSubject] = field(default_factory=list)


Rows = Mapping[ResultKey, ResultCount]


class ReportBook:
    """Collects results by namespace; those of cluster-scoped objects are under ""."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[ResultKey, ResultCount]] = {}
        self._named = 0

    @property
    def namespaces(self) -> Mapping[str, Rows]:
        """The results of each namespace."""
        return self._namespaces

    def note(
        self, namespace: str, key: ResultKey, *, message: str = "", subject: ReportSubject | None
    ) -> None:
        """Take note that a result is about one more object, or about none in particular."""
        rows = self._namespaces.get(namespace)
        if rows is None:
            rows = self._namespaces[namespace] = {}
        row = rows.get(key)
        if row is None:
            row = rows[key] = ResultCount()
        row.count += subject is not None
        if message and not row.message:
            row.message = cut(message, LONGEST_MESSAGE, end="…")
        named = key.result in ("fail", "error") and len(row.subjects) < MOST_NAMED
        if subject is not None and named and self._named < MOST_NAMED_AT_ALL:
            self._named += 1
            row.subjects.append(subject)

    def row(self, namespace: str, key: ResultKey) -> ResultCount:
        """Return the count of a result, for one that names no object and has no message."""
        self.note(namespace, key, subject=None)
        return self._namespaces[namespace][key]

    def take(
        self,
        subject: ReportSubject,
        decision: Decision,
        *,
        shadows: Mapping[str, str] | None = None,
    ) -> None:
        """Take note of all that was decided of an object.

        Args:
            subject: The object.
            decision: The verdict of validations.
            shadows: For each policy that is a shadow, the policy that it may replace.
        """
        for key, message in results_of(decision, shadows or {}):
            self.note(subject.namespace, key, message=message, subject=subject)


def results_of(decision: Decision, shadows: Mapping[str, str]) -> Iterator[tuple[ResultKey, str]]:
    """Yield the results of a decision on an object, each once, with a message."""
    messages: dict[ResultKey, str] = {}
    for objection in decision.objections:
        result: Result = "error" if objection.failed else "fail"
        shadow_of = shadows.get(objection.policy, "")
        enforcement = "" if shadow_of else "+".join(objection.actions)
        key = ResultKey(objection.policy, objection.validation, result, enforcement, shadow_of)
        messages.setdefault(key, objection.advice)
    for failure in decision.failures:
        if failure.ignored:
            key = ResultKey(failure.policy, "", "error", "", shadows.get(failure.policy, ""))
            messages.setdefault(key, failure.message)
    reported = {key.policy for key in messages}
    for policy in decision.matched:
        if policy not in reported:
            messages[ResultKey(policy, "", "pass", "", shadows.get(policy, ""))] = ""
    for text in decision.exempted:
        policy, _, why = text.partition(": ")
        if policy not in reported and policy not in decision.matched:
            messages[ResultKey(policy, "", "skip", "", shadows.get(policy, ""))] = f"lifted: {why}"
    yield from messages.items()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportApi:
    """An API of reports: its version, and its kinds in a namespace and of the cluster."""

    group: str
    version: str
    kind: str
    cluster_kind: str

    @property
    def api_version(self) -> str:
        """Group and version."""
        return f"{self.group}/{self.version}"


APIS: Final = (
    ReportApi(
        group="openreports.io", version="v1alpha1", kind="Report", cluster_kind="ClusterReport"
    ),
    ReportApi(
        group="wgpolicyk8s.io",
        version="v1alpha2",
        kind="PolicyReport",
        cluster_kind="ClusterPolicyReport",
    ),
)
"""The APIs that are known, the one that succeeds the other first."""


def scanned(api: ReportApi, namespace: str, rows: Rows, old: Json | None, *, now: float) -> Json:
    """Return a report with the results of a scan; results of admission stay for a day.

    Args:
        api: The API of reports.
        namespace: Its namespace; empty for that of the cluster.
        rows: The results of the scan there.
        old: The existing report; None if there is none.
        now: Seconds since the epoch.

    Returns:
        The report; None if it would be empty.
    """
    before = _results(old)
    results = {key: _found(key, row) for key, row in rows.items()}
    for key, result in before.items():
        admitted = _number(result, "admitted")
        if admitted and now - _seconds(result) < FORGOTTEN_SECONDS:
            kept = results.setdefault(
                key, _found(key, ResultCount(message=result.get("message", "")))
            )
            kept["properties"]["admitted"] = str(admitted)
    return _report(api, namespace, results, old, now=now)


def admitted(api: ReportApi, namespace: str, rows: Rows, old: Json | None, *, now: float) -> Json:
    """Return a report with new results of admission, and the results of scans."""
    results = {key: _copied(result) for key, result in _results(old).items()}
    for key, row in rows.items():
        result = results.setdefault(key, _found(key, ResultCount(message=row.message)))
        result["properties"]["admitted"] = str(_number(result, "admitted") + row.count)
        result["message"] = row.message
    return _report(api, namespace, results, old, now=now)


def same_report(one: Json | None, other: Json | None) -> bool:
    """Tell whether two reports say the same, whenever they were written."""
    fields = ("summary", "results", "scope")
    if one is None or other is None:
        return one is other
    return all(one.get(name) == other.get(name) for name in fields)


def _report(
    api: ReportApi,
    namespace: str,
    results: Mapping[ResultKey, Json],
    old: Json | None,
    *,
    now: float,
) -> Json:
    if not results:
        return None
    before = _results(old)
    chosen = sorted(results, key=lambda key: (_ORDER[key.result], key))[:MOST_RESULTS]
    listed = [_stamped(results[key], before.get(key), now) for key in sorted(chosen)]
    labels = {"app.kubernetes.io/managed-by": NAME}
    metadata: dict[str, Json] = {"name": NAME, "labels": labels}
    scope = {}
    if namespace:
        metadata["namespace"] = namespace
        scope = {"scope": {"apiVersion": "v1", "kind": "Namespace", "name": namespace}}
    version = ((old or {}).get("metadata") or {}).get("resourceVersion")
    if version:
        metadata["resourceVersion"] = version
    return {
        "apiVersion": api.api_version,
        "kind": api.kind if namespace else api.cluster_kind,
        "metadata": metadata,
        **scope,
        "summary": _summary(results),
        "results": listed,
    }


def _summary(results: Mapping[ResultKey, Json]) -> Json:
    counts = dict.fromkeys(("pass", "fail", "warn", "error", "skip"), 0)
    for key, result in results.items():
        if not key.shadow_of:
            counts[key.result] += max(_number(result, "count"), key.result == "skip")
    return counts


def _found(key: ResultKey, row: ResultCount) -> dict[str, Json]:
    properties = {"count": str(row.count)}
    if key.enforcement:
        properties["enforcement"] = key.enforcement
    if key.shadow_of:
        properties["shadowOf"] = key.shadow_of
    result = {"source": NAME, "policy": key.policy, "rule": key.validation, "result": key.result}
    named = [dict(zip(_SUBJECT, subject, strict=True)) for subject in row.subjects]
    resources = [{name: text for name, text in each.items() if text} for each in named]
    optional = {"message": row.message, "resources": resources}
    given = {name: value for name, value in (result | optional).items() if value}
    return {**given, "properties": properties}


_SUBJECT: Final = ("apiVersion", "kind", "namespace", "name")


class ReportedResult(NamedTuple):
    """A result of a report.

    Attributes:
        key: What it is about.
        objects: How many the last scan found.
        admitted: Requests that were allowed nevertheless, of a day or more.
        message: A sentence; "" if there is none.
        subjects: `Kind name` of the first objects.
    """

    key: ResultKey
    objects: int
    admitted: int
    message: str
    subjects: tuple[str, ...]


def results_in(report: Json | None) -> Iterator[ReportedResult]:
    """Yield the results of policyd in a report; other clients may have written it, too."""
    for key, result in _results(report).items():
        resources = result.get("resources")
        named = [each for each in resources or () if isinstance(each, dict)]
        yield ReportedResult(
            key,
            _number(result, "count"),
            _number(result, "admitted"),
            cut(str(result.get("message") or ""), LONGEST_MESSAGE, end="..."),
            tuple(f"{each.get('kind', '')} {each.get('name', '')}" for each in named[:MOST_NAMED]),
        )


def _results(report: Json | None) -> dict[ResultKey, Json]:
    """Return the results of a report that are ours: others may have written into it."""
    listed = (report or {}).get("results") or ()
    ours = [each for each in listed if isinstance(each, dict) and each.get("source") == NAME]
    return {_key(each): each for each in ours if each.get("result") in _ORDER}


def _key(result: Json) -> ResultKey:
    properties = result.get("properties") or {}
    enforcement, shadow_of = properties.get("enforcement", ""), properties.get("shadowOf", "")
    policy, validation = result.get("policy", ""), result.get("rule", "")
    return ResultKey(policy, validation, result["result"], enforcement, shadow_of)


def _number(result: Json, name: str) -> int:
    text = (result.get("properties") or {}).get(name, "0")
    plain = text.isdecimal() and text.isascii() and len(text) <= _MOST_DIGITS
    return int(text) if plain else 0


def _seconds(result: Json) -> float:
    return float((result.get("timestamp") or {}).get("seconds") or 0)


def _copied(result: Json) -> dict[str, Json]:
    properties = {"count": "0", **(result.get("properties") or {})}
    return {**result, "properties": properties}


def _stamped(result: Json, before: Json | None, now: float) -> Json:
    """Return the time since which a result is unchanged."""
    plain = {name: value for name, value in result.items() if name != "timestamp"}
    if before is not None and {**before, "timestamp": None} == {**plain, "timestamp": None}:
        return before
    return {**plain, "timestamp": {"seconds": int(now), "nanos": 0}}

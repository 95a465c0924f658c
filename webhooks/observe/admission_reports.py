"""Requests that are allowed although a policy objects, counted in reports of namespaces.

Counts are gathered in memory, a number for each namespace, validation and outcome, and added to
reports now and then: never an object a request. All replicas, and the scan, add to the same report.
"""

from functools import partial
from typing import Final, NoReturn

import structlog

from policyd.api.admission import AdmissionRequest
from policyd.api.meta import Json
from policyd.engine.model.decision import Decision
from policyd.engine.offline.report import ReportApi, ResultCount, ResultKey, admitted, results_of
from policyd.engine.offline.shadows import ShadowDifference
from policyd.kube.errors import ApiError
from policyd.kube.pace import Pace
from policyd.kube.reports import Reports

EVERY_SECONDS: Final = 30.0
"""How often counts are added to reports, at most."""

MOST_ROWS: Final = 10_000
"""Counts that are kept until they are written; further ones are left out."""

WRITES_PER_SECOND: Final = 10.0

log = structlog.get_logger(__name__)


class ReportedCounts:
    """Counts of objections to allowed requests, until they are in reports."""

    def __init__(self, reports: Reports, *, pace: Pace) -> None:
        self._reports = reports
        self._pace = pace
        self._rows: dict[str, dict[ResultKey, ResultCount]] = {}
        self._size = 0
        self._left_out = 0

    def take(self, request: AdmissionRequest, decision: Decision) -> None:
        """Count the objections of policies to a request that is allowed."""
        if not decision.allowed:
            return
        namespace = _namespace(request)
        for key, message in results_of(decision, {}):
            if key.result in ("fail", "error"):
                self._add(namespace, key, message)

    def take_difference(self, request: AdmissionRequest, found: ShadowDifference) -> None:
        """Count that a shadow would have answered differently."""
        key = ResultKey(found.shadow, found.phase, "fail", "", found.of)
        self._add(_namespace(request), key, str(found))

    async def run(self) -> NoReturn:
        """Add counts to reports until cancelled; without reports, they are dropped."""
        while True:
            await self._pace.sleep(EVERY_SECONDS)
            try:
                if await self._reports.api() is not None:
                    await self.flush()
                else:
                    self._rows, self._size = {}, 0
            except ApiError as error:
                log.warning("reports_unknown", reason=str(error))
            except Exception:  # a bug, which must not stop the reviews
                log.exception("admission_reports_failed")

    async def flush(self) -> None:
        """Add all counts to reports; counts that cannot be written are kept."""
        if self._left_out:
            log.warning("results_left_out", count=self._left_out)
            self._left_out = 0
        for namespace in sorted(self._rows):
            rows = self._rows.pop(namespace)
            self._size -= len(rows)
            try:
                await self._reports.update(namespace, partial(self._report, namespace, rows))
            except ApiError as error:
                log.warning("report_late", namespace=namespace, reason=str(error))
                self._put_back(namespace, rows)
                return
            await self._pace.sleep(1 / WRITES_PER_SECOND)

    def _report(
        self, namespace: str, rows: dict[ResultKey, ResultCount], api: ReportApi, old: Json | None
    ) -> Json | None:
        return admitted(api, namespace, rows, old, now=self._pace.clock.now())

    def _add(self, namespace: str, key: ResultKey, message: str, count: int = 1) -> None:
        rows = self._rows.setdefault(namespace, {})
        row = rows.get(key)
        if row is None:
            if self._size >= MOST_ROWS:
                self._left_out += count
                return
            self._size += 1
            row = rows[key] = ResultCount()
        row.count += count
        row.message = message

    def _put_back(self, namespace: str, rows: dict[ResultKey, ResultCount]) -> None:
        for key, row in rows.items():
            self._add(namespace, key, row.message, row.count)


def _namespace(request: AdmissionRequest) -> str:
    """Return whose report a request belongs in; a namespace belongs to the cluster."""
    return "" if request.kind.kind == "Namespace" else request.namespace

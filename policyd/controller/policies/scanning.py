"""The background scan: every policy on every object it concerns, over and over, without haste.

Objects are listed in pages and dropped with them, a few at a time, so that the load on memory and
processor is low. Only the leader scans. A scan that is broken off writes nothing: half a report
would say that the other objects are in order.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from policyd.api.meta import Json
from policyd.controller.writes import NotLeadingError
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.surroundings import no_claims
from policyd.engine.objects.pods import counted_part
from policyd.engine.offline.report import ReportApi, ResultKey, Rows, scanned
from policyd.engine.offline.requests import given_claims
from policyd.engine.offline.scan import Listed, PolicyScan, ScannedObject, resources_to_list
from policyd.jobs.kinds.registry import KINDS
from policyd.kube.client import Client
from policyd.kube.discovery import served_resources
from policyd.kube.errors import ApiError, ForbiddenError, NotFoundError
from policyd.kube.pace import Pace
from policyd.kube.pages import pages, whole
from policyd.kube.reports import Reports
from policyd.kube.resources import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Resource

PAGE: Final = 100
"""Objects that are asked for, and kept, at a time."""

TURN: Final = 10
"""Objects that are looked at before others have a turn."""

SETTLE_SECONDS: Final = 10.0
"""How long policies that change are left alone before they are scanned with."""

STAND_BY_SECONDS: Final = 2.0
"""How often a stand-by looks whether it leads now."""

WRITES_PER_SECOND: Final = 10.0
"""Reports that are looked at, and written if they differ, within a second."""

_KNOWN: Final = tuple(Listed(kind.group, kind.version, kind.plural) for kind in KINDS)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSettings:
    """Settings of scans."""

    every_seconds: float = 900.0
    """From the end of a scan to the beginning of the next, if no policy changes."""

    objects_per_second: float = 200.0
    """How many objects are looked at within a second, at most."""

    exempt: frozenset[str] = frozenset()
    """Namespaces that are left out, as the webhooks leave them out."""


class ScanMetrics:
    """The metrics of scans."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.scans = Counter(
            "policyd_scans_total",
            "Background scans, by how they ended",
            ("outcome",),
            registry=registry,
        )
        self.objects = Counter(
            "policyd_scanned_objects_total", "Objects that scans looked at", registry=registry
        )
        self.seconds = Gauge(
            "policyd_scan_duration_seconds", "How long the last scan took", registry=registry
        )
        self.writes = Counter(
            "policyd_report_writes_total",
            "Reports written because they changed",
            registry=registry,
        )


class Scanner:
    """Scans the existing objects, and keeps the reports.

    Args of the constructor:
        client: The API server.
        reports: Where to write.
        policies: Returns the policies in force.
        leading: Tells whether this process may write.
        settings: How scans go.
        metrics: Where they are counted.
        pace: Time.
    """

    def __init__(  # noqa: PLR0913 - all that a scan reads and writes
        self,
        client: Client,
        reports: Reports,
        *,
        policies: Callable[[], PolicySet],
        leading: Callable[[], bool],
        metrics: ScanMetrics,
        settings: ScanSettings | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._client = client
        self._reports = reports
        self._policies = policies
        self._leading = leading
        self._settings = settings or ScanSettings()
        self._metrics = metrics
        self._pace = pace or Pace()
        self.changed = asyncio.Event()
        """To be set when other policies are in force."""

    async def run(self) -> NoReturn:
        """Scan until cancelled; a scan that fails is tried again."""
        while True:
            while not self._leading():
                await self._pace.sleep(STAND_BY_SECONDS)
            self.changed.clear()
            try:
                await self.scan()
            except NotLeadingError:
                continue
            except ApiError as error:
                self._metrics.scans.labels("failed").inc()
                log.warning("scan_failed", reason=str(error))
            except Exception:  # a bug, which must not stop the queue beside it
                self._metrics.scans.labels("failed").inc()
                log.exception("scan_error")
            if await self._pace.wait(self.changed, self._settings.every_seconds):
                await self._pace.sleep(SETTLE_SECONDS)

    async def scan(self) -> None:
        """Look at everything once, and write the reports that differ.

        Raises:
            ApiError: If something cannot be listed or written for the time being.
            NotLeadingError: If another process leads by now.
        """
        if await self._reports.api() is None:
            return
        began = self._pace.clock.monotonic()
        scan = await self._begin()
        for listed in resources_to_list(scan.policies, _KNOWN):
            try:
                await self._look_at(scan, listed)
            except (ForbiddenError, NotFoundError) as error:
                _leave_out(scan, listed, error)
        await self._write(scan.book.namespaces)
        self._metrics.seconds.set(self._pace.clock.monotonic() - began)
        self._metrics.scans.labels("complete").inc()
        log.info("scan_complete", namespaces=len(scan.book.namespaces))

    async def _begin(self) -> PolicyScan:
        """Read the claims of pods, if policies count their devices: a scan waits for no lookup."""
        policies = self._policies()
        scan = PolicyScan(policies, claims=no_claims)
        if not any(policy.counts_claims for policy in scan.policies):
            return scan
        parts: dict[bytes, Json] = {}
        found: list[Json] = []
        for resource in (RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES):
            try:
                async for page in pages(self._client, resource, into=dict, limit=PAGE):
                    self._check()
                    for item in page.items:
                        part = counted_part(item)
                        same: Json = parts.setdefault(msgspec.json.encode(part), part)
                        metadata = {key: item["metadata"].get(key) for key in ("namespace", "name")}
                        found.append(whole(resource, {**same, "metadata": metadata}))
            except NotFoundError:  # an older cluster has none
                continue
            except ForbiddenError as error:
                listed = Listed(resource.group, resource.version, resource.plural)
                _leave_out(scan, listed, error)
                return scan
        return PolicyScan(policies, claims=given_claims(found))

    async def _look_at(self, scan: PolicyScan, listed: Listed) -> None:
        """Look at all objects of a resource."""
        api_version = f"{listed.group}/{listed.version}" if listed.group else listed.version
        served = await served_resources(self._client, api_version)
        resource = next((each for each in served if each.plural == listed.plural), None)
        if resource is None:
            raise NotFoundError("no such kind is served")
        async for page in pages(self._client, resource, into=dict, limit=PAGE):
            await self._take(scan, listed, resource, page.items)

    async def _take(
        self, scan: PolicyScan, listed: Listed, resource: Resource, items: Iterable[Json]
    ) -> None:
        """Look at some objects, and wait as long as they may take."""
        number = 0
        for number, item in enumerate(items, start=1):
            found = found_of(listed, resource, item)
            if found.within not in self._settings.exempt:
                scan.evaluate(found)
            if number % TURN == 0:
                self._check()
                await self._pace.sleep(TURN / self._settings.objects_per_second)
        self._metrics.objects.inc(number)

    async def _write(self, found: Mapping[str, Rows]) -> None:
        """Write the reports that differ, and take away those that say nothing any more."""
        for namespace in sorted({*found, *await self._reports.namespaces()}):
            self._check()
            rows = found.get(namespace, {})
            if await self._reports.update(namespace, partial(self._report, namespace, rows)):
                self._metrics.writes.inc()
            await self._pace.sleep(1 / WRITES_PER_SECOND)

    def _report(self, namespace: str, rows: Rows, api: ReportApi, old: Json | None) -> Json | None:
        return scanned(api, namespace, rows, old, now=self._pace.clock.now())

    def _check(self) -> None:
        if not self._leading():
            raise NotLeadingError


def found_of(listed: Listed, resource: Resource, item: Json) -> ScannedObject:
    """Return an item of a list as an object, without managed fields."""
    metadata = item["metadata"]
    return ScannedObject(
        resource=listed,
        kind=resource.kind,
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        value=whole(resource, item),
    )


def _leave_out(scan: PolicyScan, listed: Listed, error: ApiError) -> None:
    """Note in the report of the cluster the resources that could not be listed."""
    name = f"{listed.plural}.{listed.group}" if listed.group else listed.plural
    log.warning("resource_not_scanned", resource=name, reason=str(error))
    message = f"{name} cannot be listed: {error}"
    scan.book.note("", ResultKey("policyd", name, "skip", ""), message=message, subject=None)

"""Reports in the API server: read, merged and written back, so that several may write the same one.

Findings of scans and of the webhooks go into the same reports. A write has the resourceVersion that
it is based on; if another process was faster, the report is made anew.
"""

from collections.abc import Callable
from typing import Final

import structlog

from policyd.api.meta import Json
from policyd.engine.offline.report import APIS, NAME, ReportApi, same_report
from policyd.kube.client import Client, PartialObject
from policyd.kube.discovery import served_resources
from policyd.kube.errors import AlreadyExistsError, ConflictError, ForbiddenError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import Resource

MOST_TRIES: Final = 5
"""How often a report is made anew before it is left for the next time."""

MANAGED_BY: Final = f"app.kubernetes.io/managed-by={NAME}"

Merge = Callable[[ReportApi, Json | None], Json | None]
"""Makes a report of the one there is; None for none."""

log = structlog.get_logger(__name__)


class Reports:
    """The reports of a cluster, of whichever API it has."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._api: ReportApi | None = None
        self._warned = False

    async def api(self) -> ReportApi | None:
        """Return the API of reports that is served; None, which is logged once, if there is none.

        Raises:
            ApiError: If the API server cannot be asked.
        """
        if self._api is not None:
            return self._api
        for api in APIS:
            if await self._serves(api):
                log.info("reports_served", api=api.api_version)
                self._api = api
                return api
        if not self._warned:
            self._warned = True
            versions = " or ".join(api.api_version for api in APIS)
            log.warning("reports_not_served", hint=f"install the kinds of {versions}")
        return None

    async def update(self, namespace: str, merge: Merge) -> bool:
        """Bring the report of a namespace up to date; tell whether that took a write.

        A namespace that is gone, or going, has no report.

        Raises:
            ApiError: If it cannot be read or written.
        """
        api = await self.api()
        if api is None:
            return False
        for _ in range(MOST_TRIES):
            try:
                return await self._try(api, namespace, merge)
            except (ConflictError, AlreadyExistsError):
                continue
        log.warning("report_late", namespace=namespace)
        return False

    async def namespaces(self) -> set[str]:
        """Return the namespaces that have reports of ours; "" stands for the cluster.

        Raises:
            ApiError: If they cannot be listed.
        """
        api = await self.api()
        if api is None:
            return set()
        found, resource = {""}, resource_of(api, namespaced=True)
        listed = pages(self._client, resource, into=PartialObject, label_selector=MANAGED_BY)
        async for page in listed:
            found |= {item.metadata.namespace for item in page.items if item.metadata.name == NAME}
        return found

    async def _serves(self, api: ReportApi) -> bool:
        served = await served_resources(self._client, api.api_version)
        return {api.kind, api.cluster_kind} <= {resource.kind for resource in served}

    async def _try(self, api: ReportApi, namespace: str, merge: Merge) -> bool:
        resource = resource_of(api, namespaced=bool(namespace))
        old = await self._read(resource, namespace)
        new = merge(api, old)
        if same_report(old, new):
            return False
        try:
            await self._write(resource, namespace, old, new)
        except NotFoundError:
            return False  # the namespace is gone, or another client deleted the report
        except ForbiddenError:
            if old is None and namespace:
                log.info("report_refused", namespace=namespace)  # as while a namespace ends
                return False
            raise
        return True

    async def _read(self, resource: Resource, namespace: str) -> Json | None:
        try:
            return await self._client.get(resource, NAME, namespace=namespace, into=dict)
        except NotFoundError:
            return None

    async def _write(
        self, resource: Resource, namespace: str, old: Json | None, new: Json | None
    ) -> None:
        if new is None:
            assert old is not None, "what is deleted was there"
            version = old["metadata"]["resourceVersion"]
            await self._client.delete(resource, NAME, namespace=namespace, resource_version=version)
        elif old is None:
            await self._client.create(resource, new, namespace=namespace, into=PartialObject)
        else:
            await self._client.replace(resource, new, namespace=namespace, into=PartialObject)


def resource_of(api: ReportApi, *, namespaced: bool) -> Resource:
    """Return where an API keeps the reports of namespaces, or of the cluster."""
    kind = api.kind if namespaced else api.cluster_kind
    return Resource(api.group, api.version, f"{kind.lower()}s", kind, namespaced=namespaced)

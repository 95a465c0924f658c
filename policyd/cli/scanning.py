"""Background scans beside the controller, with the policies that the webhooks have."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from prometheus_client import CollectorRegistry

from policyd.config import Settings
from policyd.controller.policies.scanning import ScanMetrics, Scanner, ScanSettings
from policyd.kube.client import Client
from policyd.kube.reports import Reports
from webhooks.server import WebhookServer, read_policies


async def scan_what_exists(
    client: Client,
    *,
    sources: Settings,
    settings: ScanSettings,
    leading: Callable[[], bool],
    registry: CollectorRegistry,
) -> NoReturn:
    """Scan until cancelled, while this process leads.

    Args:
        client: The API server.
        sources: Where the policies are.
        settings: How scans go.
        leading: Tells whether this process may write.
        registry: Where scans are counted.
    """
    server = WebhookServer(settings=sources, client=client)
    async with asyncio.TaskGroup() as group:

        def start(work: Coroutine[Any, Any, NoReturn]) -> None:
            group.create_task(work)

        known = await read_policies(server, start)
        scanner = Scanner(
            client,
            Reports(client),
            policies=lambda: known.in_force,
            leading=leading,
            metrics=ScanMetrics(registry),
            settings=settings,
        )
        scanner.changed = server.policies_changed
        group.create_task(scanner.run())
    raise AssertionError("scans end only when they are cancelled")

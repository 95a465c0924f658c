"""`policyd controller`: the queue, on a cluster that is there."""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NoReturn

import click
import structlog

from policyd.api.makers import Makers
from policyd.api.names import SYSTEM_NAMESPACES
from policyd.cli.configuring import CONFIG, configured
from policyd.cli.options import KUBECONFIG
from policyd.config import Settings
from policyd.connections import Listening
from policyd.controller.cycle_loop import cycle_spans
from policyd.controller.metrics.counters import metrics_of
from policyd.controller.metrics.health import ControllerHealth, serve_health
from policyd.controller.metrics.series_bounds import SeriesBounds
from policyd.controller.queues.pending_workloads import prepare_orders
from policyd.controller.queues.visibility import Callers, create_app
from policyd.controller.run import Controller
from policyd.controller.settings import ControllerSettings, ForecastsSettings
from policyd.environment import environment
from policyd.errors import ConfigurationError
from policyd.health import HEALTH_BOUNDS
from policyd.kube.connection import ApiConnection, connection_from
from policyd.kube.http_client import HttpClient
from policyd.kube.kueue_lease import NAMESPACE
from policyd.process import keep_for_good, run
from policyd.profiling import profiles
from policyd.serving import served
from policyd.standard_input import STORED_FILE
from policyd.status.naming import OtherTeams
from policyd.telemetry import configure_logging
from policyd.tracing import tracing

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """The arguments of the controller."""

    config: str
    feature_gates: str
    owner_references: str
    kubeconfig: str
    context: str
    namespace: str
    leader_election: bool
    kueue_namespace: str
    workers: int
    health_host: str
    health_port: int | None
    visibility_port: int | None
    other_teams: OtherTeams | None
    forecasts: bool
    forecast_names: bool
    forecast_memory: str
    hours_record: str
    find_outside_quota: bool
    delete_outside_quota: bool
    reports: bool
    policies: tuple[str, ...]
    kyverno: bool
    scan_seconds: float
    scan_rate: float
    metric_queues: int
    traces: str
    metric_queues_of_namespace: int


@click.command("controller")
@CONFIG
@click.option(
    "--feature-gates", default="", metavar="A=true,B=false", help="Kueue's feature gates."
)
@click.option(
    "--owner-references",
    type=click.Choice(["verify", "trust"]),
    default="verify",
    show_default=True,
    help="Whether owner references that any user can write are trusted; as for the webhooks.",
)
@KUBECONFIG
@click.option("--context", default="", help="A context of the kubeconfig; its current one if not.")
@click.option("--namespace", default="", help="Where the Lease is.  [our own, or the context's]")
@click.option(
    "--leader-election/--no-leader-election",
    default=True,
    help="Let only the leader of several controllers write. Off: there must be only one.",
)
@click.option(
    "--kueue-namespace",
    default=NAMESPACE,
    show_default=True,
    help="Where Kueue may run: policyd stands by while it leads. Empty: do not look.",
)
@click.option("--workers", default=16, show_default=True, help="Objects reconciled at a time.")
@click.option(
    "--health-host", default="127.0.0.1", show_default=True, help="Address of these ports."
)
@click.option("--health-port", type=int, help="Port of /livez, /readyz and /metrics.  [not served]")
@click.option(
    "--visibility-port",
    type=int,
    help="Port of Kueue's visibility API and of queue snapshots, for APIServices.  [not served]",
)
@click.option(
    "--other-teams",
    type=click.Choice(["names", "team", "hidden"]),
    help="Whether messages name jobs of other namespaces.  [visibility.otherTeams of --config]",
)
@click.option(
    "--forecasts/--no-forecasts", default=True, help="Forecast when pending jobs start.  [forecast]"
)
@click.option(
    "--forecast-names/--no-forecast-names",
    default=True,
    help="Remember namespaces and names of jobs for forecasts.  [remember]",
)
@click.option(
    "--forecast-memory",
    default="",
    metavar="CONFIGMAP",
    help="An existing ConfigMap beside the Lease that keeps what forecasts learnt.  [not kept]",
)
@click.option(
    "--hours-record",
    default="",
    metavar="CONFIGMAP",
    help="An existing ConfigMap beside the Lease that keeps the record of GPU-hours.  [not kept]",
)
@click.option(
    "--find-outside-quota/--ignore-outside-quota",
    default=True,
    help="Watch all pods, and report those that run outside of quota.  [find]",
)
@click.option(
    "--delete-outside-quota", is_flag=True, help="Delete such pods, as long as they have no node."
)
@click.option(
    "--reports",
    is_flag=True,
    help="Scan existing objects, and write the results as PolicyReports.",
)
@click.option(
    "--policies",
    multiple=True,
    type=STORED_FILE,
    metavar="PATH",
    help="Policies to scan with, in addition to those of the API server; may be repeated.",
)
@click.option(
    "--kyverno", is_flag=True, help="Scan with Kyverno's policies of the API server as well."
)
@click.option(
    "--scan-seconds",
    type=click.FloatRange(min=1),
    default=900.0,
    show_default=True,
    help="Seconds between scans.",
)
@click.option(
    "--scan-rate",
    type=click.FloatRange(min=1),
    default=200.0,
    show_default=True,
    help="Objects scanned a second, at most.",
)
@click.option(
    "--metric-queues",
    type=click.IntRange(min=0),
    default=SeriesBounds().local_queues,
    show_default=True,
    help="LocalQueues with series of their own in the metrics, as many ClusterQueues and Cohorts.",
)
@click.option(
    "--metric-queues-of-namespace",
    type=click.IntRange(min=0),
    default=SeriesBounds().of_namespace,
    show_default=True,
    help="The LocalQueues with series of their own in one namespace, at most.",
)
@click.option(
    "--traces", default="", metavar="URL", help="Collector of traces, OTLP over HTTP.  [no traces]"
)
@click.option(
    "--log-format", type=click.Choice(["json", "lines"]), default="json", show_default=True
)
@click.option("--verbose", is_flag=True, help="Log details for troubleshooting.")
def command(
    *,
    log_format: Literal["json", "lines"],
    verbose: bool,
    **given: Any,  # noqa: ANN401 - click gives each option its type
) -> None:
    """Run the queue: admit, start, stop and finish the jobs of a cluster.

    Waits until Kueue's kinds are installed: `policyd crds` prints them. Ctrl-C stops it, and
    another controller takes over at once.
    """
    configure_logging(json=log_format == "json", least="debug" if verbose else "info")
    run(partial(_run, ControllerOptions(**given)))


async def _run(options: ControllerOptions, stop: asyncio.Event) -> None:
    queueing = configured(ControllerSettings(), path=options.config, gates=options.feature_gates)
    connection = connection_from(
        environment(), kubeconfig=options.kubeconfig, context=options.context
    )
    bounds = SeriesBounds(
        local_queues=options.metric_queues,
        of_namespace=options.metric_queues_of_namespace,
        cluster_queues=options.metric_queues,
    )
    health = ControllerHealth(metrics_of(replace(queueing.metrics, bounds=bounds)))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(profiles(queueing.pprof_bind_address))
        client = await stack.enter_async_context(
            HttpClient(connection, count=health.metrics.api_request)
        )
        if options.health_port is not None:
            served = serve_health(health, host=options.health_host, port=options.health_port)
            await stack.enter_async_context(served)
        settings = controller_settings(options, connection, queueing)
        controller = Controller(client, settings, health=health)
        tracer = stack.enter_context(
            tracing(
                options.traces, service="policyd-controller", dropped=health.metrics.spans_dropped
            )
        )
        if tracer is not None:
            controller.workloads.cycles.trace = cycle_spans(tracer, controller.pace.clock)
        if options.visibility_port is not None:
            await _serve_visibility(stack, controller, client, options)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(controller.run()), group.create_task(_keep(health))]
            if options.reports:
                tasks.append(group.create_task(_scans(options, client, controller)))
            await stop.wait()
            for task in tasks:
                task.cancel()


def _scans(
    options: ControllerOptions, client: HttpClient, controller: Controller
) -> Coroutine[Any, Any, NoReturn]:
    """Return the work of scanning, which is off by default, with the modules that only it needs."""
    from policyd.cli.scanning import scan_what_exists  # noqa: PLC0415 - see above
    from policyd.controller.policies.scanning import ScanSettings  # noqa: PLC0415

    return scan_what_exists(
        client,
        sources=Settings(policies=options.policies, from_cluster=True, kyverno=options.kyverno),
        settings=ScanSettings(
            every_seconds=options.scan_seconds,
            objects_per_second=options.scan_rate,
            exempt=frozenset({*SYSTEM_NAMESPACES, controller.settings.namespace}),
        ),
        leading=controller.leading,
        registry=controller.health.metrics.registry,
    )


async def _keep(health: ControllerHealth) -> None:
    """Exclude the objects that were read at the start from garbage collection."""
    await health.synced.wait()
    keep_for_good()


async def _serve_visibility(
    stack: AsyncExitStack, controller: Controller, client: HttpClient, options: ControllerOptions
) -> None:
    """Serve pending workloads and snapshots until the stack is closed, if the API server asks.

    The chart switches this on everywhere, and the queue must work where API aggregation is off.

    Raises:
        ConfigurationError: If the port is taken.
    """
    callers = Callers(client, pace=controller.pace, tls=controller.settings.tls)
    try:
        await callers.read()
    except ConfigurationError as error:
        log.warning("visibility_not_served", error=str(error), hint=error.hint)
        return
    await stack.enter_async_context(_visibility(controller, callers, options))


@asynccontextmanager
async def _visibility(
    controller: Controller, callers: Callers, options: ControllerOptions
) -> AsyncIterator[int]:
    """Serve the pending workloads of each queue while the block runs; give the port."""
    port = options.visibility_port or 0
    cache, pace = controller.cache, controller.pace

    def ready() -> bool:
        return controller.health.ready

    app = create_app(cache, ready=ready, names=lambda: callers.names, pace=pace)
    host, option = options.health_host, "--visibility-port"
    listening = Listening(
        bounds=HEALTH_BOUNDS, tls=callers.tls, count=controller.health.metrics.connection_closed
    )
    async with served(app, listening, host=host, port=port, option=option) as given:
        works = callers.follow(), prepare_orders(cache, ready=ready, pace=pace)
        tasks = [asyncio.create_task(work) for work in works]
        try:
            yield given
        finally:
            for task in tasks:
                task.cancel()


def controller_settings(
    options: ControllerOptions, connection: ApiConnection, settings: ControllerSettings
) -> ControllerSettings:
    """Return settings with how the process runs."""
    identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}" if options.leader_election else ""
    namespace = options.namespace or connection.namespace
    makers = Makers(trusted=options.owner_references == "trust")
    return replace(
        settings,
        integrations=replace(settings.integrations, makers=makers),
        identity=identity,
        namespace=namespace,
        kueue_namespace=options.kueue_namespace,
        workers=options.workers,
        other_teams=options.other_teams or settings.other_teams,
        forecasts=ForecastsSettings(
            enabled=options.forecasts,
            names=options.forecast_names,
            memory=f"{namespace}/{options.forecast_memory}" if options.forecast_memory else "",
        ),
        hours_record=f"{namespace}/{options.hours_record}" if options.hours_record else "",
        reports_outside_quota=options.find_outside_quota,
        deletes_outside_quota=options.delete_outside_quota,
    )
